"""The keywords of arrays, in the spelling of every draft."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logitkit.grammar.json_schema.drafts import Draft
from logitkit.grammar.json_schema.keywords_checks import count, wrong
from logitkit.grammar.json_schema.references import Place
from logitkit.grammar.json_schema.types import ANYTHING, Array, Contains, Node, Type

if TYPE_CHECKING:
    from logitkit.grammar.json_schema.keywords import Compiler

ARRAY_KEYWORDS = (
    *("items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems"),
    *("contains", "minContains", "maxContains"),
)


def arrays(
    compiler: Compiler, place: Place, schema: dict[str, Any], integer: bool
) -> tuple[Type, ...]:
    """The arrays that items, their number and `contains` allow; none where nothing is left."""
    prefix, rest = _items(compiler, place, schema)
    least = count(place, "minItems") if compiler.has(schema, "minItems") else 0
    most = count(place, "maxItems") if compiler.has(schema, "maxItems") else None
    unique = False
    if compiler.has(schema, "uniqueItems"):
        unique = schema["uniqueItems"]
        if not isinstance(unique, bool):
            wrong(place, "uniqueItems", "must be a boolean")
    contains = _contains(compiler, place, schema)
    if most is not None and most < least:
        return ()
    return (Array(prefix, rest, least, most, contains, unique),)


def _items(
    compiler: Compiler, place: Place, schema: dict[str, Any]
) -> tuple[tuple[Node, ...], Node]:
    prefix: list[Node] = []
    rest: Node = ANYTHING
    if compiler.has(schema, "prefixItems"):
        prefix = compiler.list_of_nodes(place, "prefixItems")
    if not compiler.has(schema, "items"):
        return tuple(prefix), rest
    if not isinstance(schema["items"], list):
        return tuple(prefix), compiler.node(place, "items")
    if compiler.draft == Draft.DRAFT_2020:
        wrong(place, "items", "must be a schema in 2020-12 (`prefixItems` takes a list)")
    if prefix:
        wrong(place, "items", "must be a schema beside `prefixItems`")
    if schema["items"]:
        prefix = compiler.list_of_nodes(place, "items")
    if compiler.has(schema, "additionalItems"):
        rest = compiler.node(place, "additionalItems")
    return tuple(prefix), rest


def _contains(compiler: Compiler, place: Place, schema: dict[str, Any]) -> tuple[Contains, ...]:
    if not compiler.has(schema, "contains"):
        return ()
    node = compiler.node(place, "contains")
    least = count(place, "minContains") if compiler.has(schema, "minContains") else 1
    most = count(place, "maxContains") if compiler.has(schema, "maxContains") else None
    if least == 0 and most is None:
        return ()
    rest = None if most is None else compiler.nodes.neg(node)
    return (Contains(node, least, most, rest),)
