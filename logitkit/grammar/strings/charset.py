"""`CharSet`: a set of Unicode scalar values, and the partition of code points into classes.

The bottom of `strings`. Surrogates (U+D800 to U+DFFF) are never members: no text that is encoded as
UTF-8 holds them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from functools import lru_cache
from weakref import WeakValueDictionary

from logitkit.grammar.machine import check_time

Ranges = tuple[tuple[int, int], ...]

LAST = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)


_interned: WeakValueDictionary[Ranges, CharSet] = WeakValueDictionary()


class CharSet:
    """An immutable set of code points as sorted, disjoint, non-adjacent inclusive ranges.

    Equal sets are one object, so that looking one up costs no Python.
    """

    __slots__ = ("__weakref__", "_starts", "ranges")

    ranges: Ranges
    _starts: list[int]

    def __new__(cls, ranges: Iterable[tuple[int, int]] = ()) -> CharSet:
        """The union of inclusive `ranges`, in any order, less the surrogates."""
        merged: list[tuple[int, int]] = []
        for low, high in sorted(ranges):
            if low > high:
                continue
            if merged and low <= merged[-1][1] + 1:
                if high > merged[-1][1]:
                    merged[-1] = (merged[-1][0], high)
            else:
                merged.append((low, high))
        key = _without_surrogates(merged)
        found = _interned.get(key)
        if found is not None:
            return found
        made = super().__new__(cls)
        made.ranges = key
        made._starts = [low for low, _ in key]
        return _interned.setdefault(key, made)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __contains__(self, point: int) -> bool:
        at = bisect_right(self._starts, point) - 1
        return at >= 0 and point <= self.ranges[at][1]

    def __or__(self, other: CharSet) -> CharSet:
        return CharSet(self.ranges + other.ranges)

    def __invert__(self) -> CharSet:
        gaps, start = [], 0
        for low, high in self.ranges:
            gaps.append((start, low - 1))
            start = high + 1
        gaps.append((start, LAST))
        return CharSet(gaps)

    def __and__(self, other: CharSet) -> CharSet:
        found: list[tuple[int, int]] = []
        left, right = self.ranges, other.ranges
        i = j = 0
        while i < len(left) and j < len(right):
            low = max(left[i][0], right[j][0])
            high = min(left[i][1], right[j][1])
            if low <= high:
                found.append((low, high))
            if left[i][1] < right[j][1]:
                i += 1
            else:
                j += 1
        return CharSet(found)

    def __sub__(self, other: CharSet) -> CharSet:
        return self & ~other

    def __repr__(self) -> str:
        shown = ", ".join(f"{low:04X}-{high:04X}" for low, high in self.ranges[:6])
        return f"CharSet({shown}{', ...' if len(self.ranges) > 6 else ''})"


def _without_surrogates(ranges: list[tuple[int, int]]) -> Ranges:
    first, last = SURROGATES
    if all(high < first or low > last for low, high in ranges):
        return tuple(ranges)
    kept: list[tuple[int, int]] = []
    for low, high in ranges:
        if low < first:
            kept.append((low, min(high, first - 1)))
        if high > last:
            kept.append((max(low, last + 1), high))
    return tuple(kept)


def chars(text: str) -> CharSet:
    """The set of the characters of `text`."""
    return CharSet((ord(char), ord(char)) for char in text)


def interval(low: int, high: int) -> CharSet:
    """The set of one inclusive range."""
    return CharSet(((low, high),))


@lru_cache(4096)
def single(char: str) -> CharSet:
    """The set of one character."""
    return CharSet(((ord(char), ord(char)),))


EMPTY = CharSet()
ALL = interval(0, LAST)


class Partition:
    """The coarsest classes of code points that a collection of sets cannot tell apart.

    A class is one bit. `masks[charset]` is the set's classes; `full` is all of them; `segments` are
    the code points in order as (first, last, bit of their class).
    """

    __slots__ = ("full", "masks", "segments")

    def __init__(self, charsets: Iterable[CharSet]):
        distinct = list(dict.fromkeys(charsets))
        flips: dict[int, int] = {0: 0, SURROGATES[0]: 0, SURROGATES[1] + 1: 0}
        for index, charset in enumerate(distinct):
            bit = 1 << index
            for low, high in charset.ranges:
                flips[low] = flips.get(low, 0) ^ bit
                flips[high + 1] = flips.get(high + 1, 0) ^ bit
        bounds = sorted(flips)
        classes: dict[int, int] = {}
        segments: list[tuple[int, int, int]] = []
        members = 0
        for at, start in enumerate(bounds):
            members ^= flips[start]
            stop = bounds[at + 1] if at + 1 < len(bounds) else LAST + 1
            if start == SURROGATES[0] or start >= stop:
                continue
            bit = classes.setdefault(members, 1 << len(classes))
            segments.append((start, stop - 1, bit))
        self.segments = segments
        self.full = (1 << len(classes)) - 1
        masks = [0] * len(distinct)
        for members, bit in classes.items():
            check_time()
            while members:
                lowest = members & -members
                masks[lowest.bit_length() - 1] |= bit
                members ^= lowest
        self.masks = dict(zip(distinct, masks, strict=True))


class PointMasks(dict[CharSet, int]):
    """Stands in for `Partition.masks` at a single code point: 1 for the sets that hold it."""

    def __init__(self, point: int):
        super().__init__()
        self._point = point

    def __missing__(self, charset: CharSet) -> int:
        return int(self._point in charset)
