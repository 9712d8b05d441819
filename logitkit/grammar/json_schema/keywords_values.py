"""`enum` and `const`: the values of a schema that lists them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from logitkit.grammar.json_schema import values
from logitkit.grammar.json_schema.keywords_checks import wrong
from logitkit.grammar.json_schema.keywords_reader import Reader
from logitkit.grammar.json_schema.normalise_expressions import EVERYTHING
from logitkit.grammar.json_schema.references import Place
from logitkit.grammar.json_schema.types import (
    Array,
    Boolean,
    Literal,
    Null,
    Number,
    Object,
    String,
    Type,
)


def listed(reader: Reader, place: Place, schema: dict[str, Any]) -> list[Literal] | None:
    """The values of `enum` and `const`, each once; None without either."""
    allowed: list[Literal] | None = None
    for name in ("enum", "const"):
        if not reader.has(schema, name):
            continue
        given = schema[name] if name == "enum" else [schema[name]]
        if not isinstance(given, list):
            wrong(place, name, "must be a list of values")
        known: dict[Hashable, Literal] = {}
        where = place.at(name)
        for value in given:
            values.check(value, where)
            known.setdefault(values.key(value), Literal(values.text(value)))
        if allowed is None:
            allowed = list(known.values())
        else:
            allowed = [item for item in allowed if values.identity(item.text) in known]
    return allowed


def of_types(literals: list[Literal], leaf: tuple[Type, ...]) -> tuple[Type, ...]:
    """The literals whose type `leaf` has; the rest of `leaf` is asked about each later."""
    if leaf is EVERYTHING:
        return tuple(literals)
    kinds = {type(item) for item in leaf}
    integer = all(item.integer for item in leaf if isinstance(item, Number))
    return tuple(item for item in literals if _has_type(item, kinds, integer))


def _has_type(literal: Literal, kinds: set[type], integer: bool) -> bool:
    first = literal.text[0]
    if first == '"':
        return String in kinds
    if first == "{":
        return Object in kinds
    if first == "[":
        return Array in kinds
    if first in "tf":
        return Boolean in kinds
    if first == "n":
        return Null in kinds
    if Number not in kinds:
        return False
    number = values.parse(literal.text)
    return not integer or bool(number == number.to_integral_value())
