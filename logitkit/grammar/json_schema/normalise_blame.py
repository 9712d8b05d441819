"""Which schema of the document an error about a node comes from, and why it has no value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from logitkit.errors import GrammarError
from logitkit.grammar.json_schema.drafts import Draft
from logitkit.grammar.json_schema.normalise_expressions import And, Not, OneOf, Or
from logitkit.grammar.json_schema.normalise_nodes import Nodes
from logitkit.grammar.json_schema.normalise_union import Unmade
from logitkit.grammar.json_schema.references import Document, Place
from logitkit.grammar.json_schema.types import Node


def blame(nodes: Nodes, node: Node, message: str) -> str | None:
    """The pointer of a keyword that `message` names, in a schema that `node` is made of; the
    pointer of the first such schema where none has the keyword, None where there is none."""
    names = re.findall(r"`(\w+)`", message)
    places = _places(nodes, node)
    for name in names:
        for place in places:
            if name in place.value:
                return place.at(name)
    return places[0].pointer if places else None


def _places(nodes: Nodes, node: Node) -> list[Place]:
    found: dict[Place, None] = {}
    seen: set[Node] = set()
    pending = [node]
    while pending and len(seen) < 1_000:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        place = nodes.origin(node)
        if place is not None:
            found[place] = None
        expression = nodes.expression(node)
        if isinstance(expression, And | Or | OneOf):
            pending += reversed(expression.nodes)
        elif isinstance(expression, Not):
            pending.append(expression.node)
    return list(found)


def no_value(
    document: Document,
    lenient: frozenset[str],
    nodes: Nodes,
    is_empty: Callable[[Node], bool],
) -> GrammarError:
    """The error for a document that no value fits: the deepest schema that is why, and its cause.

    From the root it goes to what every value needs and what has no value of its own; keywords in
    `lenient` do not count.
    """

    def dead(place: Place) -> bool:
        try:
            return isinstance(place.value, dict | bool) and is_empty(nodes.raw(place))
        except (GrammarError, Unmade):  # a schema that nobody has asked for so far
            return False

    place, seen = document.root, set[int]()
    while id(place.value) not in seen:
        seen.add(id(place.value))
        if place.value is False:
            return _no_value("the schema there is false", place.pointer)
        schema = {name: v for name, v in place.value.items() if name not in lenient}
        if "$ref" in schema and document.draft <= Draft.DRAFT_7:
            schema = {"$ref": schema["$ref"]}
        if schema.get("enum") == []:
            return _no_value("`enum` is empty", place.at("enum"))
        needed = next(filter(dead, _needed(document, place, schema)), None)
        if needed is None:
            return _no_value("its keywords contradict each other", place.pointer)
        place = needed
    return _no_value(
        "it refers only to itself, so that a value would have no end; add a way out, such as a "
        "member that is not required or an `anyOf` with another schema",
        place.pointer,
    )


def _no_value(reason: str, where: str) -> GrammarError:
    return GrammarError(f"no value fits the schema: {reason}", where)


def _needed(document: Document, place: Place, schema: dict[str, Any]) -> Iterator[Place]:
    """The schemas without whose values the one at `place`, which is `schema`, has none."""
    if isinstance(schema.get("$ref"), str):
        yield document.resolve(place, schema["$ref"], place.at("$ref"))
    for name in ("allOf", "anyOf", "oneOf"):
        options = schema.get(name)
        if isinstance(options, list) and (name == "allOf" or len(options) == 1):
            inner = document.child(place, name, options)
            yield from (document.child(inner, i, option) for i, option in enumerate(options))
    if schema.get("type", "object") == "object" and isinstance(schema.get("properties"), dict):
        members = document.child(place, "properties", schema["properties"])
        for name in schema.get("required", ()):
            if name in members.value:
                yield document.child(members, name, members.value[name])
    if schema.get("type") == "array" and schema.get("minItems"):
        items = schema.get("items")
        if isinstance(items, dict | bool) and "prefixItems" not in schema:
            yield document.child(place, "items", items)
        if isinstance(schema.get("prefixItems"), list):
            first = document.child(place, "prefixItems", schema["prefixItems"])
            for i, item in enumerate(first.value[: int(schema["minItems"])]):
                yield document.child(first, i, item)
