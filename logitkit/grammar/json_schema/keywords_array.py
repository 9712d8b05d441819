"""The keywords of arrays, in the spelling of every draft."""

from __future__ import annotations

from typing import Any

from logitkit.grammar.json_schema.drafts import Draft
from logitkit.grammar.json_schema.keywords_checks import count, wrong
from logitkit.grammar.json_schema.keywords_reader import Reader
from logitkit.grammar.json_schema.references import Place
from logitkit.grammar.json_schema.types import ANYTHING, Array, Contains, Node, Type

ARRAY_KEYWORDS = (
    *("items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems"),
    *("contains", "minContains", "maxContains"),
)


def arrays(reader: Reader, place: Place, schema: dict[str, Any], integer: bool) -> tuple[Type, ...]:
    """The arrays that items, their number and `contains` allow; none where nothing is left."""
    prefix, rest = _items(reader, place, schema)
    least = count(place, "minItems") if reader.has(schema, "minItems") else 0
    most = count(place, "maxItems") if reader.has(schema, "maxItems") else None
    unique = False
    if reader.has(schema, "uniqueItems"):
        unique = schema["uniqueItems"]
        if not isinstance(unique, bool):
            wrong(place, "uniqueItems", "must be a boolean")
    contains = _contains(reader, place, schema)
    if most is not None and most < least:
        return ()
    return (Array(prefix, rest, least, most, contains, unique),)


def _items(reader: Reader, place: Place, schema: dict[str, Any]) -> tuple[tuple[Node, ...], Node]:
    prefix: list[Node] = []
    rest: Node = ANYTHING
    if reader.has(schema, "prefixItems"):
        prefix = reader.list_of_nodes(place, "prefixItems")
    if not reader.has(schema, "items"):
        return tuple(prefix), rest
    if not isinstance(schema["items"], list):
        return tuple(prefix), reader.node(place, "items")
    if reader.draft == Draft.DRAFT_2020:
        wrong(place, "items", "must be a schema in 2020-12 (`prefixItems` takes a list)")
    if prefix:
        wrong(place, "items", "must be a schema beside `prefixItems`")
    if schema["items"]:
        prefix = reader.list_of_nodes(place, "items")
    if reader.has(schema, "additionalItems"):
        rest = reader.node(place, "additionalItems")
    return tuple(prefix), rest


def _contains(reader: Reader, place: Place, schema: dict[str, Any]) -> tuple[Contains, ...]:
    if not reader.has(schema, "contains"):
        return ()
    node = reader.node(place, "contains")
    least = count(place, "minContains") if reader.has(schema, "minContains") else 1
    most = count(place, "maxContains") if reader.has(schema, "maxContains") else None
    if least == 0 and most is None:
        return ()
    rest = None if most is None else reader.nodes.neg(node)
    return (Contains(node, least, most, rest),)
