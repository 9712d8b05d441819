"""Checks of keyword values that the families of keywords share."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, NoReturn

from logitkit.errors import GrammarError
from logitkit.grammar.json_schema import values
from logitkit.grammar.json_schema.references import Place


def wrong(place: Place, name: str, must: str) -> NoReturn:
    """Raise GrammarError: the value of the keyword `name` at `place` is not what it must be."""
    raise GrammarError(f"`{name}` {must}, not {short(place.value[name])}", place.at(name))


def short(value: object) -> str:
    """`value` for a message, cut to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def count(place: Place, name: str) -> int:
    """The value of a keyword that counts: a whole number from 0 on (2.0 is one)."""
    value = place.value[name]
    if not values.is_number(value) or value < 0 or value != value // 1:
        wrong(place, name, "must be a whole number from 0 on")
    return int(value)


def number(place: Place, name: str) -> Decimal:
    """The exact value of a keyword that is a number."""
    value = place.value[name]
    if not values.is_number(value):
        wrong(place, name, "must be a number")
    values.check_number(value, place.at(name))
    return values.exact(value)


def names(place: Place, name: str, value: Any) -> list[str]:
    """A list of names of members, each once."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        wrong(place, name, "must be a list of strings")
    for item in value:
        values.check_text(item, place.at(name))
    return list(dict.fromkeys(value))
