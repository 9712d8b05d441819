"""Which schema of the document an error about a node comes from."""

from __future__ import annotations

import re

from logitkit.grammar.json_schema.normalise_expressions import And, Not, OneOf, Or
from logitkit.grammar.json_schema.normalise_nodes import Nodes
from logitkit.grammar.json_schema.references import Place
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
