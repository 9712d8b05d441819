"""The keys of `machine`'s states: tuples of small integers that begin with their phase; inside
strings that are not known, the keys of the string's own body.

`n` is the number of the item in an array: exact near the array's bounds, else -b on the way to a
bound b far off, with the exact number in the machine's counter, or the last bound once all are
passed. `w` is the state of the whitespace before the next token (see `whitespace`), `depth` is 0
unless whitespace depends on it. What a thread has to remember is interned.
"""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeVar

from logitkit.grammar.machine import Move

VALUE = 0  # (frame, depth, n, wants, w): before a value
ITEMS = 1  # (depth, n, threads, w): after `[`
MEMBERS = 2  # (depth, threads, w): after `{`
KEY = 3  # (depth, threads, w): after a comma in an object
COLON = 4  # (depth, wants, w): after a key
ENDED = 5  # (frame, depth, n, threads, w): after a value
SCALAR = 6  # (frame, depth, n, items): inside a number or a word
WORD = 7  # (set, low, high, depth): inside a literal string
NAME = 8  # (names, bits, depth): inside a declared name
EITHER = 9  # (names, low, high, bits, depth, state, threads): or inside an undeclared one
SITE = 10  # (frame, depth, n, pairs): the caller of a value
KEY_SITE = 11  # (depth, threads): the caller of a key

ROOT, ARRAY, OBJECT = range(3)  # frames

Ints = tuple[Any, ...]
Moves = list[tuple[int, int, Move]]
Pairs = tuple[tuple[int, int], ...]  # (node, body or scalar; thread after it), sorted
T = TypeVar("T")


class Interned(Generic[T]):
    """Values as small integers.

    Here and wherever the grammars number things a number is given away last: whatever is raised on
    the way (an interrupt, a budget) leaves no number behind that would mean something else later.
    """

    def __init__(self) -> None:
        self.values: list[T] = []
        self._ids: dict[T, int] = {}

    def id(self, value: T) -> int:
        found = self._ids.get(value)
        if found is None:
            found = len(self.values)
            self.values.append(value)
            self._ids[value] = found
        return found

    def __getitem__(self, index: int) -> T:
        return self.values[index]


class Base(NamedTuple):
    """The moves of the tokens that may come in a gap: `inner` ones and the closing bracket."""

    inner: Moves
    close: Moves
    final: bool = False


def first(move: tuple[int, int, Move]) -> int:
    """The order of moves."""
    return move[0]
