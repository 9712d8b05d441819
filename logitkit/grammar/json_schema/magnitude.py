"""`Magnitude`: the digits of a number under constraints, without its sign, for `numbers`.

A prefix of the digits of a bound (or of an excluded value) is *tight* and kept as text; any other
prefix is *loose*, and of it only the number of digits, two comparisons and a remainder matter. A
digit is offered only where a value can follow.
"""

from __future__ import annotations

from decimal import Decimal

from logitkit.grammar.json_schema.ranges import Range, scaled
from logitkit.grammar.json_schema.types import Number

State = tuple[object, ...]

DIGITS = tuple(range(0x30, 0x3A))
POINT = 0x2E


class Magnitude:
    """The spellings of the values that are not negative.

    States: ("t", text) tight; ("i", length, above, below, remainder) loose in the integer part,
    where above and below say whether it exceeds the minimum's digits, or falls short of the
    maximum's, at their own length; (".", remainder) and ("f", digits, remainder) loose in the
    fraction, which decides nothing but multiples; ("any",) where all digits fit.
    """

    def __init__(self, number: Number) -> None:
        self._integer = number.integer
        self._range = Range(number)
        spelled = map(self._spell, self._range.tracked)
        self._tight = {text[:i] for text in spelled for i in range(len(text) + 1)}
        self._low_text = self._digits(self._range.low)
        high = self._range.high
        self._high_text = None if high is None else self._digits(high)
        self._longest = max(len(self._low_text), len(self._high_text or ""))
        self._memo: dict[State, list[tuple[int, State]]] = {}

    def _spell(self, value: Decimal) -> str:
        """`value` with exactly `places` digits of fraction."""
        digits = str(scaled(value, self._range.places)).rjust(self._range.places + 1, "0")
        cut = len(digits) - self._range.places
        return digits[:cut] if self._integer else f"{digits[:cut]}.{digits[cut:]}"

    def _digits(self, scaled: int) -> str:
        """Digits of the integer part of a scaled value; empty for zero or less."""
        whole = scaled // 10**self._range.scale
        return str(whole) if whole > 0 else ""

    # Values ---------------------------------------------------------------------------------

    def _tight_alive(self, text: str) -> bool:
        whole, point, fraction = text.partition(".")
        prefix = int(whole + fraction)
        if point:
            width = 10 ** (self._range.scale - len(fraction))
            return self._range.some_between(prefix * width, (prefix + 1) * width)
        return any(
            self._range.some_between(prefix * width, (prefix + 1) * width)
            for width in (10 ** (self._range.scale + more) for more in self._lengths(whole))
        )

    def _lengths(self, whole: str) -> range:
        """How many more digits the integer part may need."""
        if whole == "0":
            return range(1)
        room = self._longest - len(whole)
        if self._range.high is None:
            room = (
                max(room, 0) + len(str(self._range.period)) + 1 + len(str(self._range.exceptions))
            )
        return range(room + 1)

    def _loosen(self, text: str) -> State | None:
        """The state after `text`, which was tight until its last byte."""
        whole, point, fraction = text.partition(".")
        if point:
            if len(fraction) <= self._range.scale:
                alive = self._tight_alive(text)
            else:
                alive = self._beyond_alive(int(whole + fraction[:-1]))
            if not alive:
                return None
            return self._fraction(len(fraction), int(whole + fraction), fraction)
        size = len(whole)
        above = size <= len(self._low_text) and whole > self._low_text[:size]
        below = (
            self._high_text is not None
            and size <= len(self._high_text)
            and whole < self._high_text[:size]
        )
        remainder = int(whole) * 10**self._range.step % self._range.period
        return self._loose_integer(size, above, below, remainder)

    def _beyond_alive(self, below: int) -> bool:
        """Whether a wanted value lies strictly between a scaled one and the next."""
        high = self._range.high
        if self._range.grid or below < self._range.low:
            return False
        return high is None or below < high

    def _fraction(self, digits: int, prefix: int, fraction: str) -> State | None:
        """The loose state with `digits` of fraction read, in range whatever follows."""
        if not digits:
            return self._after_point(prefix * 10**self._range.step % self._range.period)
        if digits > self._range.step:
            if fraction[self._range.step :].strip("0"):
                return None if self._range.grid else ("any",)
            prefix, digits = prefix // 10 ** (digits - self._range.step), self._range.step
        remainder = prefix * 10 ** (self._range.step - digits) % self._range.period
        return self._loose_fraction(digits, remainder)

    def _loose_fraction(self, digits: int, remainder: int) -> State | None:
        if not self._range.grid:
            return ("f", digits, remainder) if self._range.has_holes else ("any",)
        alive = self._range.has_multiple(remainder, 10 ** (self._range.step - digits))
        return ("f", digits, remainder) if alive else None

    def _after_point(self, remainder: int) -> State | None:
        """The loose state that waits for the first digit of the fraction."""
        return None if self._loose_fraction(0, remainder) is None else (".", remainder)

    def _length_fits(self, size: int, above: object, below: object) -> bool:
        low, high = len(self._low_text), self._high_text
        if size < low or (size == low and not above):
            return False
        return high is None or size < len(high) or (size == len(high) and bool(below))

    def _loose_integer(self, size: int, above: bool, below: bool, remainder: int) -> State | None:
        """The loose state after `size` digits; None where no value follows.

        `remainder` is that of the number at scale 10^step.
        """
        size = min(size, self._longest + 1)
        above = above and size <= len(self._low_text)
        below = below and self._high_text is not None and size <= len(self._high_text)
        for more in reversed(self._lengths("1" * size)):
            if self._length_fits(size + more, above, below) and self._range.has_multiple(
                remainder * 10**more, 10 ** (more + self._range.step)
            ):
                return ("i", size, above, below, remainder)
        return None

    def moves(self, state: State) -> list[tuple[int, State]]:
        found = self._memo.get(state)
        if found is None:
            pairs = ((byte, self._next(state, byte)) for byte in (POINT, *DIGITS))
            found = self._memo[state] = [(byte, to) for byte, to in pairs if to is not None]
        return found

    def _next(self, state: State, byte: int) -> State | None:
        match state:
            case ("t", str(text)):
                return self._next_tight(text, byte)
            case ("i", int(size), bool(above), bool(below), int(remainder)):
                if byte == POINT:
                    inside = not self._integer and self._length_fits(size, above, below)
                    return self._after_point(remainder) if inside else None
                digit = (byte - 0x30) * 10**self._range.step
                remainder = (remainder * 10 + digit) % self._range.period
                return self._loose_integer(size + 1, above, below, remainder)
            case (".", int(remainder)):
                return self._next_fraction(0, remainder, byte)
            case ("f", int(digits), int(remainder)):
                return self._next_fraction(digits, remainder, byte)
        return None if byte == POINT else ("any",)

    def _next_tight(self, text: str, byte: int) -> State | None:
        whole, point, fraction = text.partition(".")
        if byte == POINT:
            if point or not text or self._integer:
                return None
        elif whole == "0" and not point:
            return None
        if byte == 0x30 and len(fraction) == self._range.places and point and fraction:
            return ("t", text)
        after = text + chr(byte)
        if after not in self._tight:
            return self._loosen(after)
        return ("t", after) if self._tight_alive(after) else None

    def _next_fraction(self, digits: int, remainder: int, byte: int) -> State | None:
        if byte == POINT:
            return None
        if not self._range.grid and not self._range.has_holes:
            return ("any",)
        if digits == self._range.step:
            if byte != 0x30:
                return None if self._range.grid else ("any",)
            return ("f", digits, remainder)
        width = 10 ** (self._range.step - digits - 1)
        remainder = (remainder + (byte - 0x30) * width) % self._range.period
        return self._loose_fraction(digits + 1, remainder)

    def complete(self, state: State) -> bool:
        match state:
            case ("t", str(text)):
                if not text or text.endswith("."):
                    return False
                whole, _, fraction = text.partition(".")
                return self._range.holds(
                    int(whole + fraction) * 10 ** (self._range.scale - len(fraction))
                )
            case ("i", int(size), bool(above), bool(below), int(remainder)):
                return self._length_fits(size, above, below) and self._range.fits(remainder)
            case ("f", int(_), int(remainder)):
                return self._range.fits(remainder)
        return state == ("any",)
