"""`Range`: the values that a number may have, as exact integers, for `magnitude`.

Decimals are scaled to integers by a power of ten that is large enough for every bound.
"""

from __future__ import annotations

from decimal import Decimal
from itertools import combinations
from math import gcd, lcm

from logitkit.errors import GrammarError
from logitkit.grammar.json_schema.types import Number

MOST_NOT_MULTIPLES = 12  # of one number: they are counted by inclusion and exclusion
MAX_DIGITS = 1_100  # of a bound, written out


def fraction_digits(value: Decimal) -> int:
    """Digits after the point, without zeros at the end."""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    zeros = len(digits) - len(bytes(digits).rstrip(b"\0"))
    return max(0, -exponent - zeros) if any(digits) else 0


def scaled(value: Decimal, scale: int) -> int:
    """`value` * 10^scale, which must be an integer."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    whole = int("".join(map(str, digits)) or "0")
    shift = exponent + scale
    unit: int = 10 ** abs(shift)
    whole = whole * unit if shift >= 0 else whole // unit
    return -whole if sign else whole


def _is_long(value: Decimal) -> bool:
    return bool(value) and (
        abs(value.adjusted()) > MAX_DIGITS or fraction_digits(value) > MAX_DIGITS
    )


def refuse_not_multiples(number: Number) -> None:
    """Raise GrammarError where too many `not` of `multipleOf` meet in one number."""
    count = len(number.not_multiples)
    if count > MOST_NOT_MULTIPLES:
        raise GrammarError(
            f"`not` (or `oneOf`) of `multipleOf` names {count} different numbers in one place, and "
            f"at most {MOST_NOT_MULTIPLES} can be told apart; use fewer"
        )


class Range:
    """The values of a `Number` from zero on.

    `scale`: values are integers times 10^-scale; `low` and `high` (None: no bound) are such
    integers. `step`: the digits of fraction that decide about multiples; where `grid` is set no
    value has more. `period`: remainders of integers at scale 10^step that make a difference.
    """

    def __init__(self, number: Number) -> None:
        self.grid = number.integer or number.multiple_of is not None
        bounds = [v for v in (number.minimum, number.maximum) if v is not None]
        self.tracked = [v for v in (*bounds, *number.excluded, Decimal(0)) if v >= 0]
        if any(_is_long(value) for value in (*bounds, *self.tracked)):
            raise GrammarError(f"a bound has more than {MAX_DIGITS} digits; use a shorter one")
        self._set_moduli(number)
        self.places = max([1, self.step, *map(fraction_digits, self.tracked)])
        self.scale = max([self.places, *map(fraction_digits, bounds)])
        low, high = number.minimum, number.maximum
        self.low = 0 if low is None else max(0, scaled(low, self.scale))
        self._low_open = number.exclusive_minimum and low is not None and low >= 0
        self.high = None if high is None else scaled(high, self.scale)
        self._high_open = number.exclusive_maximum
        self._excluded = frozenset(scaled(v, self.scale) for v in number.excluded if v >= 0)
        self.exceptions = len(self._excluded)

    def _set_moduli(self, number: Number) -> None:
        """Integers at scale 10^step: all multiples of `modulus`, none of `others`."""
        given = [] if number.multiple_of is None else [number.multiple_of]
        excluded = sorted(number.not_multiples)
        steps = [0] if number.integer else [fraction_digits(v) for v in given or excluded]
        self.step = max(steps, default=0)

        def at_step(value: Decimal) -> int:
            if _is_long(value):
                raise GrammarError(f"`multipleOf` {value} has too many digits")
            digits = fraction_digits(value)
            if digits <= self.step:
                return scaled(value, self.step)
            whole = scaled(value, digits)
            return whole // gcd(whole, 10 ** (digits - self.step))

        self._modulus = at_step(given[0]) if given else 1
        others = {at_step(value) for value in excluded}
        self._others = [o for o in sorted(others) if not any(o % p == 0 for p in others if p < o)]
        self.has_holes = bool(others)
        self.period = lcm(self._modulus, *self._others)
        self._any_wanted = self.count(1, self.period) > 0

    def _in_range(self, value: int) -> bool:
        """Whether the scaled value is inside the bounds and not excluded."""
        if value < self.low or (self._low_open and value == self.low):
            return False
        if self.high is not None and (
            value > self.high or (self._high_open and value == self.high)
        ):
            return False
        return value not in self._excluded

    def fits(self, remainder: int) -> bool:
        """Whether integers at scale 10^step with this remainder are wanted."""
        return remainder % self._modulus == 0 and all(remainder % o for o in self._others)

    def count(self, first: int, last: int) -> int:
        """How many integers from `first` to `last` are wanted, by inclusion and exclusion."""
        total: int = 0
        for size in range(len(self._others) + 1):
            for chosen in combinations(self._others, size):
                every = lcm(self._modulus, *chosen)
                total += (-1) ** size * (last // every - (first - 1) // every)
        return total

    def has_multiple(self, first: int, width: int) -> bool:
        """Whether one of `width` integers from `first` on, at scale 10^step, is wanted.

        Without regard to bounds, and always where multiples decide nothing.
        """
        if not self.grid:
            return True
        if width >= self.period:
            return self._any_wanted
        return self.count(first, first + width - 1) > 0

    def some_between(self, first: int, after: int) -> bool:
        """Whether a wanted value lies in [first, after), both scaled."""
        low = max(first, self.low)
        high = after if self.high is None else min(after, self.high)
        if not self.grid:
            if low == high != after:
                return self.holds(low)
            return low < high
        unit: int = 10 ** (self.scale - self.step)
        bottom = -(-low // unit)
        if self._low_open and bottom * unit == self.low:
            bottom += 1
        top = high // unit
        if top * unit == after or (self._high_open and top * unit == self.high):
            top -= 1
        if bottom > top:
            return False
        lost = sum(
            value % unit == 0 and bottom <= value // unit <= top and self.fits(value // unit)
            for value in self._excluded
        )
        return self.count(bottom, top) > lost

    def holds(self, value: int) -> bool:
        """Whether the scaled value is wanted."""
        if not self._in_range(value):
            return False
        unit: int = 10 ** (self.scale - self.step)
        whole, rest = divmod(value, unit)
        return not self.grid if rest else self.fits(whole)
