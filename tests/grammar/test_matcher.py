"""`CompiledGrammar`, `Matcher` and `MatcherBatch`: the laws that users rely on."""

from __future__ import annotations

import random
import threading
import weakref

import numpy as np
import pytest
import torch
from test_engine import MACHINES, H, members
from toy import EOS, SlowMachine, ToyVocabulary, toy_vocabulary
from toy_machines import Counted, Lists, Tagged, parentheses, random_machine, words

from logitkit.grammar import matcher as matcher_module
from logitkit.grammar.arena import Arena, arena_of
from logitkit.grammar.machine import Budget, Machine
from logitkit.grammar.matcher import CompiledGrammar, Matcher
from logitkit.grammar.matcher_batch import MatcherBatch

VOCABULARY = toy_vocabulary()
TEXTS = [VOCABULARY.bytes_of(t) for t in range(VOCABULARY.size)]
A, B, OPEN, CLOSE = (VOCABULARY.tokenize(text)[0] for text in (b"a", b"b", b"(", b")"))


def grammar_of(machine: Machine, vocabulary: ToyVocabulary = VOCABULARY) -> CompiledGrammar:
    return CompiledGrammar(machine, vocabulary, Budget())


def allowed(matcher: Matcher) -> set[int]:
    return members(matcher.mask().numpy(), matcher.grammar.arena.words)


def random_steps(matcher: Matcher, dice: random.Random, most: int) -> int:
    """Accept random tokens that are not eos; how many."""
    for done in range(most):
        tokens = sorted(allowed(matcher) - set(EOS))
        if not tokens:
            return done
        assert matcher.accept(dice.choice(tokens))
    return most


def check_random_text(matcher: Matcher, dice: random.Random, steps: int) -> None:
    """Random tokens, each mask checked against the oracle."""
    slow, vocabulary = SlowMachine(matcher.grammar.program.machine), matcher.grammar.vocabulary
    assert isinstance(vocabulary, ToyVocabulary)
    at = slow.start
    for _ in range(steps):
        got = allowed(matcher)
        assert got == slow.allowed(at, vocabulary)
        tokens = sorted(got - set(vocabulary.eos_token_ids))
        if not tokens:
            return
        token = dice.choice(tokens)
        after = slow.take(at, token, vocabulary)
        assert matcher.accept(token) and after is not None
        at = after


def test_a_text_from_start_to_stop() -> None:
    matcher = grammar_of(words(b"ab", b"abab")).matcher()
    assert not matcher.is_complete and not matcher.is_stopped
    prefixes = (b"a", b"ab", b"aba", b"abab")
    assert allowed(matcher) == {t for t, text in enumerate(TEXTS) if text in prefixes}
    assert matcher.accept(A) and matcher.accept(B)
    assert matcher.is_complete and not matcher.is_stopped
    assert set(EOS) <= allowed(matcher)
    assert matcher.accept(EOS[1])
    assert matcher.is_stopped and matcher.is_complete
    assert allowed(matcher) == set(EOS)
    assert matcher.accept(EOS[0]) and not matcher.accept(A)
    assert matcher.num_accepted == 4


def test_where_no_byte_is_possible_only_eos_is_allowed() -> None:
    matcher = grammar_of(words(b"ab")).matcher()
    matcher.accept(A)
    matcher.accept(B)
    assert allowed(matcher) == set(EOS)


def test_the_empty_text_may_be_a_language() -> None:
    matcher = grammar_of(words(b"")).matcher()
    assert matcher.is_complete and allowed(matcher) == set(EOS)
    assert matcher.forced_tokens() == []


def test_a_refused_token_changes_nothing() -> None:
    matcher = grammar_of(parentheses()).matcher()
    assert matcher.accept(OPEN)
    before, mask = matcher.configuration, matcher.mask()
    for token in (A, *EOS, 9, 5, -1, VOCABULARY.size, 10**9):
        if 0 <= token < VOCABULARY.size:
            assert matcher.accept(token) is False
        else:
            with pytest.raises(ValueError, match="`token`"):
                matcher.accept(token)
        assert matcher.configuration == before and matcher.mask() is mask
        assert matcher.num_accepted == 1
    assert matcher.accept(CLOSE) and matcher.is_complete


@pytest.mark.parametrize("name", MACHINES)
def test_rolling_back_equals_never_having_gone_there(name: str) -> None:
    dice, grammar = random.Random(1), grammar_of(MACHINES[name]())
    for _ in range(15):
        matcher = grammar.matcher()
        kept = random_steps(matcher, dice, 4)
        before, mask = matcher.configuration, allowed(matcher)
        more = random_steps(matcher, dice, 4)
        if matcher.is_complete and matcher.accept(EOS[0]):
            more += 1
        matcher.rollback(more)
        assert matcher.configuration == before and allowed(matcher) == mask
        assert matcher.num_accepted == kept and not matcher.is_stopped
        matcher.rollback(kept)
        assert matcher.configuration == grammar.start


def test_rollback_asks_for_no_more_than_there_is() -> None:
    matcher = grammar_of(words(b"ab")).matcher()
    matcher.accept(A)
    matcher.rollback(0)
    for n in (2, -1):
        with pytest.raises(ValueError, match=f"n={n} must be from 0 to 1"):
            matcher.rollback(n)
    assert matcher.num_accepted == 1


def test_reset_goes_back_to_the_start() -> None:
    matcher = grammar_of(words(b"ab")).matcher()
    matcher.accept(A)
    matcher.reset()
    assert matcher.configuration == matcher.grammar.start and matcher.num_accepted == 0


def test_a_fork_goes_its_own_way_and_keeps_the_history() -> None:
    matcher = grammar_of(parentheses()).matcher()
    matcher.accept(OPEN)
    fork = matcher.fork()
    assert fork.accept(CLOSE) and matcher.accept(OPEN)
    assert fork.is_complete and not matcher.is_complete
    fork.rollback(2)
    assert fork.configuration == fork.grammar.start and matcher.num_accepted == 2


def test_masks_are_shared_tensors_of_the_whole_width() -> None:
    grammar = grammar_of(words(b"ab"))
    mask = grammar.matcher().mask()
    assert mask.dtype == torch.int32 and mask.shape == (-(-VOCABULARY.size // 32),)
    assert grammar.matcher().mask() is mask
    same = grammar_of(words(b"ab")).matcher().mask()
    assert same.data_ptr() == mask.data_ptr()


def test_forced_tokens_stop_one_token_short() -> None:
    matcher = grammar_of(words(b"aaabab", b"aaaxyz")).matcher()
    assert VOCABULARY.tokenize(b"aaa") == [A, A, A]
    assert matcher.forced_tokens() == [A, A]
    for token in matcher.forced_tokens():
        assert matcher.accept(token)
    assert matcher.forced_tokens() == []
    assert grammar_of(Tagged()).matcher().forced_tokens() == []


@pytest.mark.parametrize("seed", range(20))
def test_forced_tokens_are_accepted_and_leave_no_choice(seed: int) -> None:
    matcher, dice = grammar_of(random_machine(seed)).matcher(), random.Random(seed)
    for _ in range(5):
        for token in matcher.forced_tokens():
            assert not matcher.is_complete
            spelled = VOCABULARY.bytes_of(token)
            first = {VOCABULARY.bytes_of(t)[:1] for t in allowed(matcher)}
            assert first == {spelled[:1]}
            assert matcher.accept(token)
        if not random_steps(matcher, dice, 1):
            break


def test_a_batch_equals_its_matchers_alone() -> None:
    dice = random.Random(5)
    grammars = [grammar_of(make()) for make in MACHINES.values()]
    single = [grammar.matcher() for grammar in grammars]
    batched = [grammar.matcher() for grammar in grammars]
    batch = MatcherBatch(batched)
    out = torch.empty(len(single), grammars[0].arena.words, dtype=torch.int32)
    for step in range(25):
        ids = batch.row_ids()
        assert ids.dtype == torch.int32
        batch.fill(out)
        assert torch.equal(batch.rows[ids.long()], out)
        assert torch.equal(out, torch.stack([matcher.mask() for matcher in single]))
        tokens = [dice.choice(sorted(allowed(matcher))) for matcher in single]
        tokens = [9 if dice.random() < 0.1 or (t in EOS and step < 9) else t for t in tokens]
        want = [matcher.accept(token) for matcher, token in zip(single, tokens, strict=True)]
        accepted = batch.accept(torch.tensor(tokens) if step % 2 else tokens)
        assert accepted.dtype == torch.bool and accepted.tolist() == want
        if step % 5 == 4:  # asked, and moved, by themselves in between
            for one, other in zip(single, batched, strict=True):
                back = dice.randint(0, min(2, one.num_accepted))
                one.rollback(back)
                other.rollback(back)
        if step % 7 == 6:
            assert batched[0].accept(9) is False
    for one, other in zip(single, batched, strict=True):
        assert one.configuration == other.configuration
        assert one.num_accepted == other.num_accepted
        assert one.is_complete == other.is_complete and one.is_stopped == other.is_stopped
        other.rollback(other.num_accepted)
        assert other.configuration == other.grammar.start


def test_a_long_log_moves_into_the_matchers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logitkit.grammar.matcher_batch.LOGGED", 4)
    grammar = grammar_of(Counted(0, 1000, H))
    matchers = [grammar.matcher(), grammar.matcher()]
    batch = MatcherBatch(matchers)
    for step in range(11):
        assert batch.accept([A, A if step % 2 else CLOSE]).tolist() == [True, step % 2 == 1]
    assert [matcher.num_accepted for matcher in matchers] == [11, 5]
    matchers[0].rollback(6)
    assert matchers[0].configuration == matchers[1].configuration


def test_a_matcher_is_in_its_last_batch_only() -> None:
    grammar = grammar_of(parentheses())
    one, other = grammar.matcher(), grammar.matcher()
    first = MatcherBatch([one, other])
    first.accept([OPEN, OPEN])
    second = MatcherBatch([other])
    assert second.accept([CLOSE]).tolist() == [True]
    assert other.num_accepted == 2 and other.is_complete
    with pytest.raises(ValueError, match="moved on to another MatcherBatch"):
        first.accept([OPEN, OPEN])
    assert one.accept(CLOSE) and one.num_accepted == 2


def test_what_a_batch_cannot_be_is_refused() -> None:
    matcher = grammar_of(words(b"a")).matcher()
    stranger = grammar_of(words(b"a"), ToyVocabulary([b"", b"a"])).matcher()
    for matchers, message in (
        ([], "matchers is empty"),
        ([matcher, matcher], "names a matcher twice"),
        ([matcher, stranger], "over one vocabulary"),
    ):
        with pytest.raises(ValueError, match=message):
            MatcherBatch(matchers)
    batch = MatcherBatch([matcher])
    with pytest.raises(ValueError, match=r"tokens must be \[1\], not \[2\]"):
        batch.accept([1, 2])
    with pytest.raises(ValueError, match="out must be int32"):
        batch.fill(torch.empty(1, 3, dtype=torch.int32))


def follow(grammars: list[CompiledGrammar], seed: int, failures: list[BaseException]) -> None:
    """Random texts of random grammars, each mask checked against the oracle."""
    dice = random.Random(seed)
    try:
        for _ in range(4):
            check_random_text(dice.choice(grammars).matcher(), dice, 6)
    except BaseException as error:
        failures.append(error)


def test_threads_may_share_a_grammar() -> None:
    """Four threads explore the same fresh grammars at once; every mask is right."""
    for seed in range(6):
        machines = [Lists(H + 20, H + 20, H), random_machine(seed), parentheses()]
        vocabulary = toy_vocabulary(size_over=seed + 6)
        grammars = [grammar_of(machine, vocabulary) for machine in machines]
        failures: list[BaseException] = []
        threads = [
            threading.Thread(target=follow, args=(grammars, 10 * seed + i, failures))
            for i in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]


def test_what_single_calls_remember_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matcher_module, "POSITIONS", 10)
    matcher = grammar_of(Counted(0, 1000, H)).matcher()
    for _ in range(40):
        assert matcher.accept(A) and A in allowed(matcher)
    assert len(matcher.grammar._positions) <= 10
    matcher.rollback(40)
    assert matcher.configuration == matcher.grammar.start


def test_equal_vocabularies_share_an_arena_and_dead_ones_give_it_back() -> None:
    one, other = ToyVocabulary([b"", b"a", b"q"]), ToyVocabulary([b"", b"a", b"q"])
    arena = arena_of(one)
    assert arena_of(other) is arena
    watched = weakref.ref(arena)
    del arena, one
    assert watched() is not None
    del other
    assert watched() is None


def test_memory_of_dead_grammars_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logitkit.grammar.programs.SWEEP_STATES", 1)
    vocabulary = ToyVocabulary([b"", b"(", b")", b"((", b"))", b",", b"a", b"1", b"[", b"]", b'"'])
    arena = arena_of(vocabulary)
    kept = grammar_of(parentheses(), vocabulary)
    slow = SlowMachine(kept.program.machine)
    matcher = kept.matcher()
    for token in (3, 1):
        assert matcher.accept(token)
    at = slow.run(b"(((")
    assert at is not None
    used = []
    for seed in range(40):
        grammar = grammar_of(Lists(30, 30, 2) if seed % 2 else random_machine(seed), vocabulary)
        dead = grammar.matcher()
        check_random_text(dead, random.Random(seed), 12)
        assert allowed(matcher) == slow.allowed(at, vocabulary)
        used.append(
            (arena.heap.states_in_use, int(arena.heap.counts[0]), len(arena._programs._programs))
        )
        del grammar, dead
    states, nodes, programs = np.max(used, axis=0)
    assert states < 60 and nodes < 40 and programs <= 3, used
    assert matcher.accept(4) and matcher.accept(2) and matcher.is_complete


def test_rows_beyond_the_budget_are_renewed_and_never_overwritten() -> None:
    """The store holds 64 rows; the words below need far more."""
    texts = [f"{i:03d}".encode() for i in random.Random(0).sample(range(1000), 300)]
    vocabulary = ToyVocabulary([b"", *(bytes([48 + i]) for i in range(10)), *texts])
    arena = Arena(vocabulary, row_bytes=0)
    machine = words(*texts)
    slow = SlowMachine(machine)
    start = arena.start(arena.add(machine, Budget()))
    generations = set()
    for text in texts:
        rows, prefixes = start[None], [b""]
        for byte in text[:2]:
            rows = np.concatenate([rows, arena.advance(rows[-1:], np.array([byte - 47]))])
            prefixes.append(prefixes[-1] + bytes([byte]))
        store, ids = arena.masks(rows)
        generations.add(store.generation)
        first = store.data[ids].copy()
        for prefix, row in zip(prefixes, first, strict=True):
            at = slow.run(prefix)
            assert at is not None
            assert members(row, arena.words) == slow.allowed(at, vocabulary)
        held = store, ids, first
        arena.masks(start[None])
        assert (held[0].data[held[1]] == held[2]).all()
    assert len(generations) > 2
    assert len(arena.store.data) == 64
