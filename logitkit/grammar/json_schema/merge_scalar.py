"""Plain values: which of them a type has, intersections of numbers, empty ranges of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor, gcd, lcm

from logitkit.errors import GrammarError
from logitkit.grammar import strings
from logitkit.grammar.json_schema import values
from logitkit.grammar.json_schema.types import Boolean, Literal, Null, Number, String, Type

_TRIES = 1_000  # of candidates for a number, before an emptiness question is refused


def holds_plain(item: Type, value: object) -> bool:
    """Whether a value that is no array or object is one of the values of `item`."""
    if isinstance(item, Literal):
        return values.identity(item.text) == values.key(value)
    if value is None:
        return isinstance(item, Null)
    if isinstance(value, bool):
        return isinstance(item, Boolean) and value in item.values
    if isinstance(value, str):
        return isinstance(item, String) and (
            item.language == strings.ANY or strings.matches(item.language, value)
        )
    assert isinstance(value, Decimal)
    return isinstance(item, Number) and holds(item, value)


def holds_literal(types: Sequence[Type], literal: Literal) -> bool:
    """Whether a literal that is no array or object is one of the values of `types`."""
    value = values.parse(literal.text)
    return any(holds_plain(item, value) for item in types)


def is_word_of(language: strings.Language, literal: Literal) -> bool:
    """Whether a literal is a string of `language`."""
    value = values.parse(literal.text)
    return isinstance(value, str) and strings.matches(language, value)


def merge_numbers(first: Number, second: Number) -> Number | None:
    """The numbers that are in both; None where there are none."""
    merged = replace(
        first,
        integer=first.integer or second.integer,
        multiple_of=_common_multiple(first.multiple_of, second.multiple_of),
        excluded=first.excluded | second.excluded,
        not_multiples=first.not_multiples | second.not_multiples,
    )
    low, high = second.minimum, second.maximum
    if low is not None and (merged.minimum is None or low >= merged.minimum):
        strict = second.exclusive_minimum or (low == merged.minimum and merged.exclusive_minimum)
        merged = replace(merged, minimum=low, exclusive_minimum=strict)
    if high is not None and (merged.maximum is None or high <= merged.maximum):
        strict = second.exclusive_maximum or (high == merged.maximum and merged.exclusive_maximum)
        merged = replace(merged, maximum=high, exclusive_maximum=strict)
    return None if is_empty_number(merged) else merged


def _common_multiple(first: Decimal | None, second: Decimal | None) -> Decimal | None:
    if first is None or second is None or first == second:
        return second if first is None else first
    a, b = Fraction(first), Fraction(second)
    common = Fraction(lcm(a.numerator, b.numerator), gcd(a.denominator, b.denominator))
    return _decimal(common)


def _decimal(value: Fraction) -> Decimal:
    """A fraction whose denominator divides a power of ten, exactly."""
    places = 0
    while value.denominator != 1:
        value *= 10
        places += 1
    digits = Decimal(value.numerator).as_tuple()
    return Decimal((digits.sign, digits.digits, -places))


def holds(number: Number, value: Decimal) -> bool:
    """Whether `value` is one of the numbers; exact."""
    if number.minimum is not None and (
        value < number.minimum or (number.exclusive_minimum and value == number.minimum)
    ):
        return False
    if number.maximum is not None and (
        value > number.maximum or (number.exclusive_maximum and value == number.maximum)
    ):
        return False
    if value in number.excluded:
        return False
    if not (number.integer or number.multiple_of or number.not_multiples):
        return True
    exact = Fraction(value)
    if number.integer and exact.denominator != 1:
        return False
    if number.multiple_of is not None and (exact / Fraction(number.multiple_of)).denominator != 1:
        return False
    return all((exact / Fraction(step)).denominator != 1 for step in number.not_multiples)


def is_empty_number(number: Number) -> bool:
    """Whether no number is allowed; exact."""
    low, high = number.minimum, number.maximum
    if low is not None and high is not None:
        if low > high:
            return True
        if low == high:
            return not holds(number, low)
    if not (number.integer or number.multiple_of):
        return False  # a dense interval: finitely many excluded, multiples are no interval
    if (low is None or high is None) and not number.not_multiples:
        return False
    step = Fraction(1) if number.integer else Fraction(0)
    if number.multiple_of is not None:
        own = Fraction(number.multiple_of)
        step = _lcm(step, own) if step else own
    if any((step / Fraction(other)).denominator == 1 for other in number.not_multiples):
        return True
    return _scan_finds_nothing(number, step)


def _lcm(a: Fraction, b: Fraction) -> Fraction:
    return Fraction(lcm(a.numerator, b.numerator), gcd(a.denominator, b.denominator))


def _scan_finds_nothing(number: Number, step: Fraction) -> bool:
    """Try the multiples of `step` in the range, from its finite end on."""
    if number.minimum is not None:
        bound, sign = Fraction(number.minimum), 1
    elif number.maximum is not None:
        bound, sign = Fraction(number.maximum), -1
    else:
        bound, sign = Fraction(0), 1
    position = -((-sign * bound) // step)  # the first multiple at or inside the bound
    for _ in range(_TRIES + len(number.excluded)):
        value = _decimal(sign * position * step)
        beyond = number.maximum if sign > 0 else number.minimum
        if beyond is not None and sign * value > sign * beyond:
            return True
        if holds(number, value):
            return False
        position += 1
    raise GrammarError(
        "`multipleOf` and `not` leave a range of numbers too thin to decide; simplify them"
    )


def few_numbers(number: Number, limit: int) -> list[str] | None:
    """The spellings of all integers in a range with at most `limit` of them; None for others."""
    if not number.integer or number.minimum is None or number.maximum is None:
        return None
    low, high = ceil(number.minimum), floor(number.maximum)
    if high - low > 2 * limit:
        return None
    found = [str(value) for value in range(low, high + 1) if holds(number, Decimal(value))]
    return found if len(found) <= limit else None
