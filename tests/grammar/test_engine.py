"""The engine against the slow oracle: masks, moves and forced bytes of small machines."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from toy import Slow, SlowMachine, ToyVocabulary, toy_vocabulary
from toy_machines import (
    Counted,
    FreeText,
    Lists,
    Marked,
    ShortText,
    Tagged,
    parentheses,
    random_machine,
    words,
)

from logitkit.grammar.arena import Arena, arena_of
from logitkit.grammar.machine import JSON_TEXT, PLAIN_TEXT, Budget, Machine
from logitkit.grammar.memory import DEAD, FREE, STOPPED

VOCABULARY = toy_vocabulary()
H = VOCABULARY.horizon
MACHINES: dict[str, Callable[[], Machine]] = {
    "words": lambda: words(b"ab", b"aba", b'{"a":1}', b"aaaa", "日本".encode(), b""),
    "parentheses": parentheses,
    "no far state": lambda: Counted(2, 20, H),
    "far from the start": lambda: Counted(0, 1000, H),
    "far after a lower bound": lambda: Counted(7, H + 9, H),
    "lists with bounds far away": lambda: Lists(10**9, 10**9, H),
    "lists with near bounds": lambda: Lists(3, 5, H),
    "lists with both kinds": lambda: Lists(H + 20, H + 20, H),
    "control tokens": Tagged,
    "JSON text": lambda: FreeText(JSON_TEXT),
    "plain text": lambda: FreeText(PLAIN_TEXT),
    "short text": lambda: ShortText(5),
    "text of some length": lambda: ShortText(60),
}


def members(row: np.ndarray, words: int) -> set[int]:
    """The ids that a row of a mask allows."""
    bits = np.unpackbits(row.view(np.uint8), bitorder="little")
    assert len(bits) == words * 32
    return set(np.flatnonzero(bits).tolist())


class Text(NamedTuple):
    """A text under way: what the oracle and the engine think of it."""

    slow: SlowMachine
    at: Slow
    configuration: np.ndarray  # [3]


def begin(arena: Arena, machine: Machine) -> Text:
    slow = SlowMachine(machine)
    return Text(slow, slow.start, arena.start(arena.add(machine, Budget())))


def go_on(arena: Arena, vocabulary: ToyVocabulary, text: Text, token: int) -> tuple[Text, set[int]]:
    after = text.slow.take(text.at, token, vocabulary)
    assert after is not None
    moved = arena.advance(text.configuration[None], np.array([token]))[0]
    now = Text(text.slow, after, moved)
    return now, check_mask(arena, vocabulary, now)


def check_mask(arena: Arena, vocabulary: ToyVocabulary, text: Text) -> set[int]:
    """The engine's mask, which must be the oracle's."""
    store, ids = arena.masks(text.configuration[None])
    got, want = members(store.data[ids[0]], arena.words), text.slow.allowed(text.at, vocabulary)
    assert got == want, (text.at, sorted(got - want), sorted(want - got))
    return got - set(vocabulary.eos_token_ids)


@pytest.fixture(scope="module")
def arena() -> Arena:
    return arena_of(VOCABULARY)


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("seed", range(8))
def test_masks_equal_brute_force_along_random_texts(arena: Arena, name: str, seed: int) -> None:
    dice = random.Random(seed)
    text = begin(arena, MACHINES[name]())
    allowed = check_mask(arena, VOCABULARY, text)
    for _ in range(14):
        if not allowed:
            break
        longest = max(allowed, key=lambda t: len(VOCABULARY.bytes_of(t)))
        token = longest if dice.random() < 0.2 else dice.choice(sorted(allowed))
        text, allowed = go_on(arena, VOCABULARY, text, token)


@pytest.mark.parametrize("seed", range(150))
def test_masks_of_random_machines_equal_brute_force(arena: Arena, seed: int) -> None:
    dice = random.Random(seed)
    text = begin(arena, random_machine(seed, stack=seed % 3 != 0))
    allowed = check_mask(arena, VOCABULARY, text)
    for _ in range(8):
        if not allowed:
            break
        text, allowed = go_on(arena, VOCABULARY, text, dice.choice(sorted(allowed)))


def test_a_vocabulary_that_lacks_bytes_and_fills_its_last_word() -> None:
    tokens = [b"a", b"ab", b"(", b"))", b")", b"(()", b"", b",("] * 8
    vocabulary = ToyVocabulary(tokens, eos_token_ids=(6,))
    assert vocabulary.size == 64
    arena = Arena(vocabulary)
    text = begin(arena, parentheses())
    assert check_mask(arena, vocabulary, text) == {t for t in range(64) if t % 8 in (2, 5)}
    text, _ = go_on(arena, vocabulary, text, 5)
    text, allowed = go_on(arena, vocabulary, text, 4)
    assert allowed == {t for t in range(64) if t % 8 in (2, 5, 7)}


def test_far_states_are_left_at_every_distance_from_the_bound(arena: Arena) -> None:
    """The longest token takes 300 of 700: each first step leaves another rest."""
    machine = Counted(0, 700, H)
    long = VOCABULARY.tokenize(b"a" * 300)[0]
    for first in (1, 2, 40, 99, 100, 101, 299, 300, 301, 398, 399, 400):
        text = begin(arena, machine)
        for token in VOCABULARY.tokenize(b"a" * first):
            text, _ = go_on(arena, VOCABULARY, text, token)
        while long in check_mask(arena, VOCABULARY, text):
            text, _ = go_on(arena, VOCABULARY, text, long)
        left = 700 - (first + 300 * ((700 - first) // 300))
        for token in VOCABULARY.tokenize(b"a" * left):
            text, _ = go_on(arena, VOCABULARY, text, token)
        assert text.slow.alive_bytes(text.at) == [ord("x")]


def test_frames_that_were_pushed_beyond_a_limit_still_count() -> None:
    """`],[` ends an item and begins the next, so a list may be left while its counter is too high
    for its far state."""
    tokens = [b"", b"[", b"]", b",", b"],[", b"],[],[", b"1", b"],[" * 6, b",1", b"[[", b'"', b'""']
    vocabulary = ToyVocabulary(tokens)
    arena = Arena(vocabulary)
    horizon = vocabulary.horizon
    assert horizon == 18
    for seed in range(30):
        dice = random.Random(seed)
        text = begin(arena, Lists(horizon + 3 + seed % 7, 5, horizon))
        allowed = check_mask(arena, vocabulary, text)
        for step in range(60):
            weights = [(1.0 if t in (4, 5, 7, 8) or step == 0 else 0.2) for t in sorted(allowed)]
            if not allowed:
                break
            token = dice.choices(sorted(allowed), weights)[0]
            if step < 2 and {1, 9} & allowed:
                token = 9 if 9 in allowed else 1
            text, allowed = go_on(arena, vocabulary, text, token)


def test_a_frame_may_be_popped_when_its_counter_is_far_beyond_the_limit() -> None:
    """`aaaa(` at the limit pushes a counter that `)aaaa` would carry over the bound."""
    parts = [b"a" * k for k in range(1, 9)]
    opened = [part + b"(" for part in parts[:7]]
    closed = [b")" + part for part in parts[:7]]
    vocabulary = ToyVocabulary([b"", b"(", b")", b"()", b")(", b"a()a", *parts, *opened, *closed])
    arena = Arena(vocabulary)
    assert vocabulary.horizon == 8
    for seed in range(40):
        dice = random.Random(seed)
        text = begin(arena, Marked(20 + seed % 5, 8))
        allowed = check_mask(arena, vocabulary, text)
        while allowed:
            text, allowed = go_on(arena, vocabulary, text, dice.choice(sorted(allowed)))
            if text.slow.run(b"a", text.at) is None and not text.at.stack:
                break


def test_rows_do_not_multiply_with_counters_or_depth(arena: Arena) -> None:
    vocabulary = ToyVocabulary([b"", b"a", b"b", b"(", b")", b"x", b","])
    arena = Arena(vocabulary)
    text = begin(arena, Counted(0, 10**9, vocabulary.horizon))
    check_mask(arena, vocabulary, text)
    before = arena.store.count
    for _ in range(20):
        text, _ = go_on(arena, vocabulary, text, 1)
    assert arena.store.count == before
    text = begin(arena, parentheses())
    check_mask(arena, vocabulary, text)
    for _ in range(20):
        text, _ = go_on(arena, vocabulary, text, 3)
    assert arena.store.count == before + 2  # "(" only, then "(" and ")" at any depth


def test_the_special_states_stay_what_they_are(arena: Arena) -> None:
    start = arena.start(arena.add(words(b"a"), Budget()))
    a, eos = VOCABULARY.tokenize(b"a")[0], VOCABULARY.eos_token_ids
    rows = np.array([[FREE, 0, 0], [DEAD, 0, 0], [STOPPED, 0, 0], start], np.int64)
    for token in (a, *eos, -1, VOCABULARY.size, 10**6, 5, 9):
        after = arena.advance(rows, np.full(4, token))
        assert after[0].tolist() == [FREE, 0, 0]
        assert after[1].tolist() == [DEAD, 0, 0]
        assert after[2, 0] == (STOPPED if token in eos else DEAD)
        assert (after[3, 0] != DEAD) == (token == a)
    ids = arena.row_ids(rows)
    assert ids[0] == 0 and ids[1] == 1
    assert members(arena.store.data[0], arena.words) == set(range(arena.words * 32))
    assert members(arena.store.data[1], arena.words) == set()
    assert members(arena.store.data[ids[2]], arena.words) == set(eos)
    done = arena.advance(arena.advance(start[None], np.array([a])), np.array([eos[1]]))
    assert done[0].tolist() == [STOPPED, 0, 0]


def test_a_batch_of_strangers_equals_its_rows_alone(arena: Arena) -> None:
    dice = random.Random(3)
    texts = [begin(arena, make()) for make in MACHINES.values()]
    rows = np.stack([text.configuration for text in texts])
    slow: list[Slow | None] = [text.at for text in texts]
    for _ in range(12):
        store, ids = arena.masks(rows)
        tokens = []
        for id_, at, text in zip(ids, slow, texts, strict=True):
            got = members(store.data[id_], arena.words)
            assert got == (text.slow.allowed(at, VOCABULARY) if at else set())
            tokens.append(dice.choice(sorted(got)) if got and dice.random() < 0.9 else 9)
        tokens = [9 if t in VOCABULARY.eos_token_ids else t for t in tokens]
        after = arena.advance(rows, np.array(tokens))
        alone = [arena.advance(rows[i : i + 1], np.array([t]))[0] for i, t in enumerate(tokens)]
        assert (after == np.stack(alone)).all()
        slow = [t.slow.take(a, k, VOCABULARY) for t, a, k in zip(texts, slow, tokens, strict=True)]
        assert [a is None for a in slow] == (after[:, 0] == DEAD).tolist()
        rows = after


def test_forced_bytes_are_those_without_a_choice(arena: Arena) -> None:
    for machine, done, forced in (
        (words(b"abcdef", b"abcxyz"), b"", b"abc"),
        (words(b"abcdef", b"abcxyz"), b"abcx", b"yz"),
        (words(b"ab", b"abcd"), b"", b"ab"),  # it may end there
        (parentheses(), b"", b"("),
        (parentheses(), b"(", b""),
        (Counted(2, 4, H), b"abc", b""),
        (Tagged(), b"", b""),
        (Lists(10, 0, H), b'[["', b'"'),
        (words(b"a" * 5000), b"", b"a" * 4096),
    ):
        text = begin(arena, machine)
        for token in VOCABULARY.tokenize(done):
            text, _ = go_on(arena, VOCABULARY, text, token)
        state, node, counter = text.configuration.tolist()
        assert arena.forced_bytes((state, node, counter)) == forced


def test_a_return_that_its_caller_refuses_is_no_choice(arena: Arena) -> None:
    """`[""]` alone is refused at the top of `Lists`, so after `[""` only a comma may follow."""
    text = begin(arena, Lists(5, 0, H))
    for token in VOCABULARY.tokenize(b'[""'):
        text, _ = go_on(arena, VOCABULARY, text, token)
    state, node, counter = text.configuration.tolist()
    assert arena.forced_bytes((state, node, counter)) == b","
