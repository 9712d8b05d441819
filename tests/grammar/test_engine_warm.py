"""Work ahead: `warm` leaves no row to be built, `table` is the same language as dense arrays."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from test_engine import members
from test_matcher import allowed, check_random_text
from toy import SlowMachine, ToyVocabulary
from toy_machines import (
    Counted,
    FreeText,
    Lists,
    Marked,
    Tagged,
    parentheses,
    random_machine,
    words,
)

from logitkit.grammar.arena import Arena
from logitkit.grammar.machine import PLAIN_TEXT, Budget, Machine
from logitkit.grammar.matcher import CompiledGrammar

TOKENS = (
    b"", b"a", b"b", b"c", b"ab", b"abc", b"x", b"cx", b"aaaa", b"(", b")", b"((", b"))", b")(",
    b",", b"),(", b"[", b"]", b'"', b'""', b'["', b'"]', b'","', b"]]", b"],[", b"[[", b"1", b"12",
    b"1,", b"1]", b",1", b'","a', b"}", b"{", b":", b"2", b" ", b'"}', b"aa(", b")a", b")aa",
    b"\xc3", b"\xa9", b"\n", b"",
)  # fmt: skip
VOCABULARY = ToyVocabulary(TOKENS, (0,), {"<tool_call>": (44,), "</tool_call>": (44,)})
H = VOCABULARY.horizon
MACHINES: dict[str, Callable[[], Machine]] = {
    "words": lambda: words(b"ab", b"abc", b"", b'["a","a"]'),
    "parentheses": parentheses,
    "near": lambda: Counted(2, 7, H),
    "far": lambda: Counted(1, 40, H),
    "far away": lambda: Counted(0, 10**9, H),
    "short lists": lambda: Lists(3, 2, H),
    "longer lists": lambda: Lists(12, 9, H),
    "frames beyond a limit": lambda: Marked(11, H),
    "long lists": lambda: Lists(10**6, 10**6, H),
    "control tokens": Tagged,
    "free text": lambda: FreeText(PLAIN_TEXT),
}


def grammar_of(machine: Machine, budget: Budget | None = None) -> CompiledGrammar:
    return CompiledGrammar(machine, VOCABULARY, budget or Budget())


@pytest.mark.parametrize("name", [*MACHINES, 0, 1, 2, 3, 4, 7, 8, 9, 10])
def test_after_warming_no_row_is_missing(name: str | int, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = random_machine(name) if isinstance(name, int) else MACHINES[name]()
    grammar = grammar_of(machine)
    assert grammar.warm(seconds=60.0) is True

    def build(*configuration: int) -> int:
        raise AssertionError(f"{configuration} has no row")

    monkeypatch.setattr(grammar.arena._masks, "_build", build)
    dice = random.Random(7)
    for _ in range(12):
        check_random_text(grammar.matcher(), dice, 25)


def test_warming_stops_at_its_limits_and_goes_on_later() -> None:
    grammar = grammar_of(Lists(12, 9, H))
    assert grammar.warm(seconds=0.0) is False
    assert grammar.warm(states=5) is False and 5 <= grammar.program.expanded < 10
    assert grammar.warm(seconds=60.0, row_bytes=0) is False
    assert grammar.warm(seconds=60.0) is True
    assert grammar.warm() is True


def test_warming_respects_the_budget_of_the_grammar() -> None:
    grammar = grammar_of(Lists(12, 9, H), Budget(states=20))
    assert grammar.warm(seconds=60.0) is False
    assert grammar.program.expanded <= 20


REGULAR = {name: MACHINES[name] for name in ("words", "near", "far", "free text")}


@pytest.mark.parametrize("name", [*REGULAR, *range(12)])
def test_a_table_is_the_same_language(name: str | int) -> None:
    machine = random_machine(name, False) if isinstance(name, int) else REGULAR[name]()
    grammar, slow, dice = grammar_of(machine), SlowMachine(machine), random.Random(3)
    table = grammar.table()
    assert table is not None and grammar.is_regular
    assert table.transitions.dtype == np.int32 and table.transitions.shape[1] == 256
    assert not table.transitions[:2].any() and not table.final[:2].any()
    rows = grammar.arena.store.data
    assert members(rows[table.row_of_state[0]], grammar.arena.words) == set()
    assert members(rows[table.row_of_state[1]], grammar.arena.words) == {0}
    for _ in range(30):
        state, at = table.start, slow.start
        for _ in range(20):
            got = members(rows[table.row_of_state[state]], grammar.arena.words)
            assert got == slow.allowed(at, VOCABULARY)
            assert bool(table.final[state]) == slow.is_final(at)
            alive = np.flatnonzero(table.transitions[state]).tolist()
            assert alive == slow.alive_bytes(at)
            if not alive:
                break
            byte = dice.choice(alive)
            state, after = int(table.transitions[state, byte]), slow.step(at, byte)
            assert after is not None
            at = after


def test_what_has_no_table() -> None:
    assert grammar_of(parentheses()).table() is None and not grammar_of(Tagged()).is_regular
    assert grammar_of(Counted(0, 10**6, H)).table() is None
    assert grammar_of(Counted(0, 30, H), Budget(states=10)).table() is None
    assert grammar_of(Counted(0, 30, H), Budget(seconds=1e-9)).table() is None
    assert grammar_of(Counted(0, 30, H), Budget(row_bytes=1)).table() is None
    assert grammar_of(Counted(0, 30, H)).table() is not None


def test_rows_of_a_table_stay_when_the_store_is_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{i:03d}".encode() for i in random.Random(0).sample(range(1000), 300)]
    vocabulary = ToyVocabulary([b"", *(bytes([48 + i]) for i in range(10)), b"a", b"x"])
    arena = Arena(vocabulary, row_bytes=0)
    monkeypatch.setattr("logitkit.grammar.matcher.arena_of", lambda _: arena)
    grammar = CompiledGrammar(Counted(0, 30, 3), vocabulary, Budget())
    other = CompiledGrammar(words(*texts), vocabulary, Budget())
    before = grammar.table()
    assert before is not None
    rows = [arena.store.data[i].copy() for i in before.row_of_state]
    generation = arena.store.generation
    for text in texts:
        matcher = other.matcher()
        for token in vocabulary.tokenize(text):
            assert token in allowed(matcher) and matcher.accept(token)
    assert arena.store.generation > generation
    after = grammar.table()
    assert after is not None and (after.transitions == before.transitions).all()
    for state, row in enumerate(rows):
        assert (arena.store.data[after.row_of_state[state]] == row).all()


def test_a_budget_on_states_is_an_error_that_says_so() -> None:
    grammar = grammar_of(words(b"abcabcabcabc"), Budget(states=3))
    matcher = grammar.matcher()
    with pytest.raises(ValueError, match=r"needs more than `states`=3.*Budget\(states="):
        for token in (1, 2, 3, 1, 2):
            matcher.accept(token)
