"""Sets of code points as sequences of UTF-8 byte ranges: how a class of EBNF is lowered."""

from __future__ import annotations

from collections.abc import Iterator

from logitkit.grammar.machine import JSON_TEXT, PLAIN_TEXT
from logitkit.grammar.strings.charset import ALL, LAST, CharSet, chars, interval

ByteRanges = tuple[tuple[int, int], ...]

# The code points that each number of bytes encodes.
_WIDTHS = (
    interval(0, 0x7F),
    interval(0x80, 0x7FF),
    interval(0x800, 0xFFFF),
    interval(0x10000, LAST),
)
_PLAIN = ALL & ~(interval(0, 0x1F) | interval(0x7F, 0x7F))
_JSON = _PLAIN & ~chars('"\\')


def slices_in(points: CharSet) -> int:
    """The slices of the vocabulary (see `machine`) whose every code point is in the set."""
    outside = ~points
    return (0 if outside & _PLAIN else PLAIN_TEXT) | (0 if outside & _JSON else JSON_TEXT)


def byte_sequences(points: CharSet) -> Iterator[ByteRanges]:
    """The set as sequences of byte ranges; the first ranges of two are equal or disjoint."""
    for size, width in enumerate(_WIDTHS, 1):
        for low, high in (points & width).ranges:
            yield from _split(low, high, size)


def _split(low: int, high: int, size: int) -> Iterator[ByteRanges]:
    """A range whose code points all take `size` bytes, cut where a continuation byte wraps."""
    for tail in range(1, size):
        block = 1 << (6 * tail)
        if low // block == high // block:
            break
        if low % block:
            cut = low | (block - 1)
        elif high % block != block - 1:
            cut = (high & ~(block - 1)) - 1
        else:
            continue
        yield from _split(low, cut, size)
        yield from _split(cut + 1, high, size)
        return
    yield tuple(zip(chr(low).encode(), chr(high).encode(), strict=True))
