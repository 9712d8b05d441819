"""`Spelling`: how characters are written as bytes, and tries of bytes that lead to classes.

Between `automaton` and `body`. Three ways: raw UTF-8 (RFC 3629), the canonical JSON spelling of a
string's inside, and every JSON spelling. Only bytes of the alphabet are used, so every path of a
trie leads to a character.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, Union

from logitkit.grammar.strings.charset import ALL, CharSet, chars, interval

Mode = Literal["raw", "canonical", "any"]
# Where a byte leads: to a slot, or to a node whose own slots are these.
To = Union[int, tuple["Node", tuple[int, ...]]]  # noqa: UP007
Span = tuple[int, int, To]

SHORT = {0x22: '"', 0x5C: "\\", 0x08: "b", 0x0C: "f", 0x0A: "n", 0x0D: "r", 0x09: "t"}
CONTROLS = interval(0, 0x1F)
SHORT_SET = CharSet((point, point) for point in SHORT)
# (bytes, first and last code point, code points of one first byte, what the first byte adds to)
LENGTHS = ((0x80, 0x7FF, 64, 0xC0), (0x800, 0xFFFF, 4096, 0xE0), (0x10000, 0x10FFFF, 262144, 0xF0))


class Node:
    """A place inside a character. `moves`: (first byte, last byte, where they lead), sorted."""

    __slots__ = ("_make", "_moves")

    def __init__(self, make: Callable[[], list[Span]]):
        self._make = make
        self._moves: list[Span] | None = None

    @property
    def moves(self) -> list[Span]:
        if self._moves is None:
            self._moves = self._make()
        return self._moves


class Spelling:
    """One way to write characters with the bytes that `alphabet` allows.

    `spelled`: the characters that can be written.
    """

    def __init__(self, mode: Mode, alphabet: tuple[bool, ...]):
        self.mode = mode
        self.alphabet = alphabet
        self._nodes: dict[tuple[object, ...], Node] = {}
        raw = _raw_spelled(alphabet)
        if mode == "raw":
            self._raw, self._hex, self.spelled = raw, CharSet(), raw
            return
        self._raw = raw - CONTROLS - chars('"\\')
        self._short: dict[int, str] = {}
        self._hex = CharSet()
        if alphabet[0x5C]:
            short = {**SHORT, 0x2F: "/"} if mode == "any" else SHORT
            self._short = {point: char for point, char in short.items() if alphabet[ord(char)]}
            if alphabet[ord("u")]:
                self._hex = self._hex_spelled()
        self.spelled = self._raw | self._hex | CharSet((point, point) for point in self._short)

    def root(self, spans: list[tuple[int, int, int]]) -> list[Span]:
        """The moves at the start of a character; `spans` are (first, last code point, slot)."""
        if self.mode == "raw":
            return self._utf8(spans)
        moves = self._utf8(_clip(spans, self._raw))
        escaped = self._escape(spans)
        if escaped:
            slots = _slots(escaped)
            local = _localise(escaped, slots)
            node = self._node(("escape", tuple(local)), lambda: local)
            moves.append((0x5C, 0x5C, (node, slots)))
            moves.sort(key=lambda move: move[0])
        return moves

    def _node(self, key: tuple[object, ...], make: Callable[[], list[Span]]) -> Node:
        found = self._nodes.get(key)
        return found or self._nodes.setdefault(key, Node(make))

    # -- UTF-8

    def _utf8(self, spans: Iterable[tuple[int, int, int]]) -> list[Span]:
        spans = list(spans)
        moves: list[Span] = [(low, min(high, 0x7F), to) for low, high, to in spans if low <= 0x7F]
        for first, last, unit, byte in LENGTHS:
            inside: list[Span] = [
                (max(low, first), min(high, last), to)
                for low, high, to in spans
                if low <= last and high >= first
            ]
            if inside:
                moves += self._continued(inside, 0, unit, byte)
        return moves

    def _continued(self, spans: list[Span], base: int, unit: int, byte: int) -> list[Span]:
        """Moves over bytes from `byte` on, each of which stands for `unit` code points."""

        def child(index: int, inside: list[Span]) -> Node:
            start = base + index * unit
            key = ("utf8", unit, start, tuple(inside))
            return self._node(key, lambda: self._continued(inside, start, unit // 64, 0x80))

        def uniform(to: To) -> Node:
            every: list[Span] = [(0, unit - 1, to)]
            return self._node(("utf8", unit), lambda: self._continued(every, 0, unit // 64, 0x80))

        return [
            (byte + first, byte + last, to)
            for first, last, to in _split(spans, base, unit, child, uniform)
        ]

    # -- JSON escapes

    def _escape(self, spans: list[tuple[int, int, int]]) -> list[Span]:
        """The moves behind a backslash."""
        moves: list[Span] = []
        for point, char in self._short.items():
            moves += [(ord(char), ord(char), to) for low, high, to in spans if low <= point <= high]
        units = list(_clip(spans, self._hex))
        coded: list[Span] = [span for span in units if span[1] <= 0xFFFF]
        coded += [(low, 0xFFFF, to) for low, high, to in units if low <= 0xFFFF < high]
        coded += self._pairs(
            [(max(low, 0x10000), high, to) for low, high, to in units if high > 0xFFFF]
        )
        if coded:
            coded.sort(key=lambda span: span[0])
            slots = _slots(coded)
            local = _localise(coded, slots)
            moves.append((0x75, 0x75, (self._digits(local, 0, 4096), slots)))
        return sorted(moves, key=lambda move: move[0])

    def _pairs(self, spans: list[Span]) -> list[Span]:
        """High surrogates, each of which leads to its low ones."""

        def child(index: int, inside: list[Span]) -> Node:
            start = 0x10000 + index * 1024 - 0xDC00
            return self._low([(low - start, high - start, to) for low, high, to in inside])

        def uniform(to: To) -> Node:
            return self._low([(0xDC00, 0xDFFF, to)])

        return [
            (0xD800 + first, 0xD800 + last, to)
            for first, last, to in _split(spans, 0x10000, 1024, child, uniform)
        ]

    def _low(self, spans: list[Span]) -> Node:
        """`\\u` and the low surrogates of `spans`."""
        slots = _slots(spans)
        inner = self._node(
            ("low u", tuple(spans)), lambda: [(0x75, 0x75, (self._digits(spans, 0, 4096), slots))]
        )
        return self._node(("low", tuple(spans)), lambda: [(0x5C, 0x5C, (inner, slots))])

    def _digits(self, spans: list[Span], base: int, unit: int) -> Node:
        """Hexadecimal digits, the first of which stands for `unit` values from `base` on."""
        key = ("hex", base, unit, tuple(spans))
        return self._node(key, lambda: self._digit_moves(spans, base, unit))

    def _digit_moves(self, spans: list[Span], base: int, unit: int) -> list[Span]:
        def child(index: int, inside: list[Span]) -> Node:
            return self._digits(inside, base + index * unit, unit // 16)

        def uniform(to: To) -> Node:
            return self._digits([(0, unit - 1, to)], 0, unit // 16)

        moves: list[Span] = []
        for first, last, to in _split(spans, base, unit, child, uniform):
            for byte, start, stop in self._digit_bytes():
                low, high = max(first, start), min(last, stop)
                if low <= high:
                    moves += [
                        (byte + value - start, byte + value - start, to)
                        for value in range(low, high + 1)
                        if self.alphabet[byte + value - start]
                    ]
        return _joined(sorted(moves, key=lambda move: move[0]))

    def _digit_bytes(self) -> list[tuple[int, int, int]]:
        """(first byte, first value, last value) of each kind of digit."""
        kinds = [(0x30, 0, 9), (0x61, 10, 15)]
        return [*kinds, (0x41, 10, 15)] if self.mode == "any" else kinds

    def _hex_spelled(self) -> CharSet:
        """The characters that `\\u` and digits of the alphabet can write."""
        values = [
            value
            for value in range(16)
            if any(
                start <= value <= stop and self.alphabet[byte + value - start]
                for byte, start, stop in self._digit_bytes()
            )
        ]
        if len(values) == 16:
            units = interval(0, 0xFFFF)
            return ALL if self.mode == "any" else CONTROLS - SHORT_SET
        spans = [(value, value) for value in values]
        for _ in range(3):
            spans = [(16 * a + v, 16 * a + v) for a, _ in spans for v in values]
        units = CharSet(spans)
        if self.mode == "canonical":
            return units & (CONTROLS - SHORT_SET)
        highs = [low for low, _ in spans if 0xD800 <= low <= 0xDBFF]
        lows = [low for low, _ in spans if 0xDC00 <= low <= 0xDFFF]
        pairs = (0x10000 + ((a - 0xD800) << 10) + (b - 0xDC00) for a in highs for b in lows)
        return units | CharSet((point, point) for point in pairs)


def _split(
    spans: list[Span],
    base: int,
    unit: int,
    child: Callable[[int, list[Span]], Node],
    uniform: Callable[[To], Node],
) -> list[Span]:
    """Spans of code points as spans of the units that hold them; units that are not all of one
    span become nodes of their own."""
    if unit == 1:
        return [(low - base, high - base, to) for low, high, to in spans]
    found: list[Span] = []
    partial: dict[int, list[Span]] = {}
    for low, high, to in spans:
        first, last = (low - base) // unit, (high - base) // unit
        whole_first = first if (low - base) % unit == 0 else first + 1
        whole_last = last if (high - base + 1) % unit == 0 else last - 1
        if whole_first <= whole_last:
            slots = _slots([(low, high, to)])
            ((_, _, local),) = _localise([(low, high, to)], slots)
            found.append((whole_first, whole_last, (uniform(local), slots)))
        for index in {first, last}:
            if not whole_first <= index <= whole_last:
                start = base + index * unit
                piece = (max(low, start), min(high, start + unit - 1), to)
                partial.setdefault(index, []).append(piece)
    for index, inside in partial.items():
        slots = _slots(inside)
        found.append((index, index, (child(index, _localise(inside, slots)), slots)))
    return _joined(sorted(found, key=lambda span: span[0]))


def _slots(spans: Iterable[Span]) -> tuple[int, ...]:
    used: set[int] = set()
    for _, _, to in spans:
        used.update((to,) if isinstance(to, int) else to[1])
    return tuple(sorted(used))


def _localise(spans: Iterable[Span], slots: tuple[int, ...]) -> list[Span]:
    """The spans with their slots numbered by their place in `slots`."""
    number = {slot: index for index, slot in enumerate(slots)}
    return [
        (low, high, number[to])
        if isinstance(to, int)
        else (low, high, (to[0], tuple(number[slot] for slot in to[1])))
        for low, high, to in spans
    ]


def _joined(spans: list[Span]) -> list[Span]:
    """Sorted spans, with neighbours that lead to the same place made one."""
    found: list[Span] = []
    for low, high, to in spans:
        if found and found[-1][1] + 1 == low and found[-1][2] == to:
            found[-1] = (found[-1][0], high, to)
        else:
            found.append((low, high, to))
    return found


def _clip(spans: Iterable[tuple[int, int, int]], inside: CharSet) -> Iterable[tuple[int, int, int]]:
    """The parts of sorted spans that are in the set."""
    ranges = inside.ranges
    at = 0
    for low, high, to in spans:
        while at < len(ranges) and ranges[at][1] < low:
            at += 1
        look = at
        while look < len(ranges) and ranges[look][0] <= high:
            yield max(low, ranges[look][0]), min(high, ranges[look][1]), to
            look += 1


def _raw_spelled(alphabet: tuple[bool, ...]) -> CharSet:
    """The characters whose UTF-8 is all in the alphabet."""
    tails = CharSet((byte - 0x80, byte - 0x80) for byte in range(0x80, 0xC0) if alphabet[byte])
    found = [(byte, byte) for byte in range(0x80) if alphabet[byte]]
    for (first, last, unit, lead), stop in zip(LENGTHS, (0xE0, 0xF0, 0xF5), strict=True):
        starts = [(byte - lead) * unit for byte in range(lead, stop) if alphabet[byte]]
        if tails == interval(0, 63):
            spans = [(start, start + unit - 1) for start in starts]
        else:
            while unit > 64:
                unit //= 64
                points = [p for low, high in tails.ranges for p in range(low, high + 1)]
                starts = [start + point * unit for start in starts for point in points]
            spans = [(start + low, start + high) for start in starts for low, high in tails.ranges]
        found += [
            (max(low, first), min(high, last))
            for low, high in spans
            if high >= first and low <= last
        ]
    return CharSet(found)
