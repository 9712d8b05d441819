"""Sets of spelled strings as tries that are never built: ranges of a sorted list, for `machine`.

A position is a range [low, high) of the sorted spellings that share their first `depth` bytes. All
spellings end with the closing quote, so none is a prefix of another.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

QUOTE = 0x22


class Words:
    """Distinct spellings, sorted."""

    def __init__(self, spellings: Iterable[bytes]) -> None:
        self.spellings = sorted(spellings)

    def children(self, low: int, high: int, depth: int) -> list[tuple[int, int, int]]:
        """(byte, low, high) of each way on from the range [low, high) at `depth`."""
        words = self.spellings
        found = []
        while low < high:
            word = words[low]
            byte = word[depth]
            if words[high - 1][depth] == byte:
                found.append((byte, low, high))
                break
            end = bisect_left(words, word[:depth] + bytes((byte + 1,)), low, high)
            found.append((byte, low, end))
            low = end
        return found
