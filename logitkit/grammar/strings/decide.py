"""Decisions about languages: is one empty, do two share a string.

Small automata are given to interegular, over class ids of our own making; larger ones are searched
in `completions`, within a budget. Of interegular, mind that it takes a state 0 for none, and that
the truth value of an automaton counts its strings.
"""

from __future__ import annotations

from functools import lru_cache

from interegular.fsm import FSM, Alphabet, TransitionKey

from logitkit.grammar.machine import check_time
from logitkit.grammar.strings.charset import ALL, Partition
from logitkit.grammar.strings.completions import Completions
from logitkit.grammar.strings.language import (
    ANY,
    NONE,
    And,
    Language,
    Not,
    conjunction,
    disjunction,
)

MOST_PAIRS = 3_600  # states of one automaton times states of the other
MOST_STATES = 60
MOST_WORK = 60_000  # pairs times classes of characters


@lru_cache(4096)
def is_empty(a: Language) -> bool:
    """Whether no string is in `a`; GrammarError if that takes too long to find out."""
    if a.nullable or a is NONE:
        return a is NONE
    if isinstance(a, And):
        wanted = conjunction(part for part in a.parts if not isinstance(part, Not))
        unwanted = disjunction(part.inner for part in a.parts if isinstance(part, Not))
        if unwanted is not NONE:
            pair = _small_pair(wanted, unwanted)
            if pair is not None:
                return bool(pair[0].issubset(pair[1]))  # type: ignore[no-untyped-call]
    return not _completions(a).live(a)


@lru_cache(4096)
def disjoint(a: Language, b: Language) -> bool:
    """Whether no string is in both; GrammarError if that takes too long to find out."""
    both = conjunction((a, b))
    if both is NONE or both.nullable:
        return both is NONE
    pair = _small_pair(a, b)
    return is_empty(both) if pair is None else pair[0].isdisjoint(pair[1])


def _completions(*languages: Language) -> Completions:
    charsets = [charset for language in languages for charset in language.charsets()]
    return Completions(Partition([*charsets, ALL]), ALL)


def _small_pair(a: Language, b: Language) -> tuple[FSM, FSM] | None:
    """Both as automata over the same classes, unless the pair is too large for interegular."""
    if ANY in (a, b):
        return None
    completions = _completions(a, b)
    classes = completions.spelled.bit_length()
    if classes > MOST_WORK:
        return None
    left = _small(completions, a, classes)
    right = None if left is None else _small(completions, b, classes)
    if left is None or right is None:
        return None
    pairs = len(left.states) * len(right.states)
    return (left, right) if pairs <= MOST_PAIRS and pairs * classes <= MOST_WORK else None


def _small(completions: Completions, a: Language, classes: int) -> FSM | None:
    """The automaton of `a`, with its states numbered from 1; None if it has more than 60."""
    numbers = {a: 1}
    table: dict[int, dict[int, int]] = {}
    for state in (queue := [a]):
        check_time()
        row: dict[int, int] = {}
        for block, after in completions.after(state):
            if after is NONE:
                continue
            if after not in numbers:
                if len(numbers) == MOST_STATES:
                    return None
                numbers[after] = len(numbers) + 1
                queue.append(after)
            while block:
                lowest = block & -block
                row[lowest.bit_length() - 1] = numbers[after]
                block ^= lowest
        table[numbers[state]] = row
    finals = {number for state, number in numbers.items() if state.nullable}
    alphabet = Alphabet({chr(index): TransitionKey(index) for index in range(classes)})
    return FSM(alphabet, set(numbers.values()), 1, finals, table)
