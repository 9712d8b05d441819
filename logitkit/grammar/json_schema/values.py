"""JSON values as the normaliser compares and spells them: exact numbers, one spelling per value.

`text` writes the canonical spelling, `key` is equal for equal JSON values (1 and 1.0, objects in
any order of members; True is not 1). Numbers become `Decimal`, read from their JSON text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable
from decimal import Decimal
from functools import lru_cache
from typing import Any

from logitkit.errors import GrammarError

MAX_DIGITS = 1_000  # of a number that must be written out without an exponent
_quoted = json.JSONEncoder(ensure_ascii=False).encode
_EXACT_POWERS = 22
MAX_DEPTH = 100  # of a value in enum or const


def is_number(value: object) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def exact(value: int | float | Decimal) -> Decimal:
    """The exact decimal that the JSON text of `value` meant: 0.1 is one tenth."""
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


def number_text(number: Decimal) -> str:
    """`number` without trailing zeros in a fraction, integers without a point.

    It has no exponent either, unless it was written with one beyond the powers of ten that a
    float64 holds exactly: digits would be read back as an integer that differs from the float.
    """
    if not number:
        return "0"
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    if exponent > _EXACT_POWERS:
        return f"{'-' if sign else ''}{''.join(map(str, digits))}e{exponent}"
    text = f"{number:f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return text


def check(value: Any, where: str) -> None:
    """Raise GrammarError where `value` (of an enum or const) cannot be spelled in JSON."""
    pending = [(value, 0)]
    while pending:
        item, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise GrammarError(f"the value is nested deeper than {MAX_DEPTH}; simplify it", where)
        if isinstance(item, str):
            check_text(item, where)
        elif isinstance(item, list):
            pending += [(child, depth + 1) for child in item]
        elif isinstance(item, dict):
            for name, child in item.items():
                check_text(name, where)
                pending.append((child, depth + 1))
        elif is_number(item):
            check_number(item, where)
        elif item is not None and not isinstance(item, bool):
            raise GrammarError(f"{item!r} is not a JSON value", where)


def check_text(text: object, where: str) -> None:
    """Raise GrammarError unless `text` is a string of Unicode scalar values."""
    if not isinstance(text, str):
        raise GrammarError(f"the name {text!r} must be a string", where)
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise GrammarError(f"{text!r} has a lone surrogate, which UTF-8 cannot spell", where)


def check_number(value: int | float | Decimal, where: str) -> None:
    """Raise GrammarError unless `value` is finite and short enough to be written out."""
    if isinstance(value, int):  # which may be too large for `isfinite`
        long = abs(value).bit_length() > 3 * MAX_DIGITS
    elif not math.isfinite(value):
        raise GrammarError(f"{value!r} is not a JSON number", where)
    else:
        number = exact(value)
        exponent = number.as_tuple().exponent
        assert isinstance(exponent, int)
        long = number.adjusted() > MAX_DIGITS or exponent < -MAX_DIGITS
    if long:
        raise GrammarError(f"a number has more than {MAX_DIGITS} digits; use a shorter one", where)


def text(value: Any) -> str:
    """The compact JSON of a checked value, members in the given order."""
    if isinstance(value, str):
        return _quoted(value)
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, list):
        return "[" + ",".join(map(text, value)) + "]"
    if isinstance(value, dict):
        members = (f"{_quoted(name)}:{text(item)}" for name, item in value.items())
        return "{" + ",".join(members) + "}"
    return number_text(exact(value))


@lru_cache(maxsize=8192)
def parse(literal: str) -> Any:
    """The value of a canonical text; do not change it. Numbers are Decimal."""
    if literal[0] == '"' and "\\" not in literal:
        return literal[1:-1]
    return json.loads(literal, parse_float=Decimal, parse_int=Decimal)


@lru_cache(maxsize=8192)
def identity(literal: str) -> Hashable:
    """`key` of a canonical text."""
    return key(parse(literal))


def key(value: Any) -> Hashable:
    """A hashable that is equal for equal JSON values and only for those."""
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, list):
        return ("array", tuple(map(key, value)))
    if isinstance(value, dict):
        return ("object", frozenset((name, key(item)) for name, item in value.items()))
    return exact(value) if is_number(value) else value
