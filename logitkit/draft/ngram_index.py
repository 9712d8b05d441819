"""`NgramIndex`: where each n-gram of a growing text stood last, in a hash table.

Below `draft.ngram`. An n-gram of order 1..`max_order` that is followed by a token is entered under
its hash with the position of that token; later ones overwrite earlier ones. Entries are compared
token by token, so that equal hashes of unlike n-grams do no harm.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

SEPARATOR = -1  # no n-gram reaches over it

Ids = NDArray[np.int64]

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
_ORDERS = 64  # an entry is position * 64 + order


class NgramIndex:
    """The tokens of one text and, for each of its n-grams, the latest place where it went on."""

    def __init__(self, max_order: int) -> None:
        assert 1 <= max_order < _ORDERS
        self.max_order = max_order
        self.length = 0
        self.tokens: Ids = np.empty(0, np.int64)
        self.table: Ids = np.empty(0, np.int64)

    def extend(self, tokens: Ids) -> None:
        """Append `tokens` [n] and enter the n-grams that they follow."""
        if not len(tokens):
            return
        start, self.length = self.length, self.length + len(tokens)
        if self.length > len(self.tokens):
            grown = np.empty(max(64, 2 * self.length), np.int64)
            grown[:start] = self.tokens[:start]
            self.tokens = grown
            entries = len(grown) * self.max_order
            self.table = np.full(1 << (2 * entries - 1).bit_length(), -1, np.int64)
            enter(self.tokens, 0, start, self.table, self.max_order)
        self.tokens[start : self.length] = tokens
        enter(self.tokens, start, self.length, self.table, self.max_order)

    def find(self, query: Ids, length: int) -> tuple[int, int]:
        """The longest suffix of `query[:length]` that is entered here.

        Returns the position of the token that followed it last, and its order (0: none).
        """
        if not self.length:
            return 0, 0
        position, order = find(query, length, self.tokens, self.table, self.max_order)
        return int(position), int(order)

    def copy(self, position: int, count: int) -> Ids:
        """The `count` tokens from `position` on; at the end of the text, on with the copy itself.

        Ends at a separator.
        """
        text = self.tokens[position : min(position + count, self.length)]
        if len(text) < count:
            text = np.resize(text, count)  # period: the distance from the match to the end
        ends = np.flatnonzero(text == SEPARATOR)
        return text[: ends[0]] if len(ends) else text


@njit(cache=True, nogil=True)
def _hash(hashed: Any, token: Any) -> Any:
    mixed = (hashed ^ np.uint64(token)) * _MULTIPLIER
    return mixed ^ (mixed >> _SHIFT)


@njit(cache=True, nogil=True)
def _slot(hashed: Any, order: int, query: Ids, end: int, tokens: Ids, table: Ids) -> Any:
    """The slot that holds the n-gram `query[end - order : end]`, or the free one for it."""
    mask = np.uint64(len(table) - 1)
    place = (hashed >> np.uint64(16)) & mask
    while True:
        entry = table[np.int64(place)]
        if entry < 0:
            return np.int64(place)
        if entry % _ORDERS == order:
            position = entry // _ORDERS
            same = True
            for i in range(1, order + 1):
                if tokens[position - i] != query[end - i]:
                    same = False
                    break
            if same:
                return np.int64(place)
        place = (place + np.uint64(1)) & mask


@njit(cache=True, nogil=True)
def enter(tokens: Ids, start: int, stop: int, table: Ids, max_order: int) -> None:
    """Enter the n-grams before each of the positions `start..stop - 1`.

    Those that reach over a separator are entered too, and never found: no query goes so far.
    """
    for position in range(start, stop):
        if tokens[position] < 0:
            continue
        hashed = np.uint64(0)
        for order in range(1, min(max_order, position) + 1):
            hashed = _hash(hashed, tokens[position - order])
            place = _slot(hashed, order, tokens, position, tokens, table)
            table[place] = position * _ORDERS + order


@njit(cache=True, nogil=True)
def find(query: Ids, length: int, tokens: Ids, table: Ids, max_order: int) -> Any:
    """Position and order of the longest suffix of `query[:length]` that is entered."""
    position, longest = np.int64(0), 0
    hashed = np.uint64(0)
    for order in range(1, min(max_order, length) + 1):
        token = query[length - order]
        if token < 0:
            break
        hashed = _hash(hashed, token)
        entry = table[_slot(hashed, order, query, length, tokens, table)]
        if entry < 0:
            break  # what does not occur has no longer forms either
        position, longest = entry // _ORDERS, order
    return position, longest
