"""Alternatives that others already contain, found by their form alone.

Complements and `oneOf` multiply into unions most of which is redundant; without absorption they
grow past every bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from math import prod

from logitkit.grammar.json_schema.normalise_expressions import And
from logitkit.grammar.json_schema.normalise_nodes import Nodes
from logitkit.grammar.json_schema.types import ANYTHING, NEVER, Node, Object, Type
from logitkit.grammar.machine import check_time

_WORTHWHILE = range(4, 400)  # numbers of objects among which redundant ones are looked for

_MAX_CLAUSES = 16


def absorbed(nodes: Nodes, union: Iterable[Type]) -> tuple[Type, ...]:
    """The union without objects that another of its objects contains."""
    types = tuple(union)
    objects = [item for item in types if isinstance(item, Object)]
    if len(objects) not in _WORTHWHILE:
        return types
    check_time()
    members = {item: dict(item.properties) for item in objects}
    objects.sort(key=lambda item: (len(item.required), len(item.properties), len(item.some)))
    kept: list[Object] = []
    for item in objects:
        if not any(_covers(nodes, other, item, members) for other in kept):
            kept.append(item)
    if len(kept) == len(objects):
        return types
    chosen = set(kept)
    return tuple(item for item in types if not isinstance(item, Object) or item in chosen)


def with_clauses(union: Iterable[Type]) -> tuple[Type, ...]:
    """The union with objects that differ in `required` alone made one, by clauses.

    a and b, or else c: that is (a or c) and (b or c).
    """
    groups: dict[Type, list[frozenset[str]]] = {}
    for item in union:
        if isinstance(item, Object):
            groups.setdefault(replace(item, required=frozenset()), []).append(item.required)
        else:
            groups[item] = []
    types: list[Type] = []
    for item, variants in groups.items():
        if not isinstance(item, Object):
            types.append(item)
            continue
        always = frozenset.intersection(*variants)
        extras = [variant - always for variant in variants]
        if prod(map(len, extras)) > _MAX_CLAUSES:
            types += [replace(item, required=variant) for variant in variants]
            continue
        chosen = product(*map(sorted, extras)) if len(extras) > 1 else ()
        clauses = {frozenset((name, True) for name in names): None for names in chosen}
        types.append(replace(item, required=always, clauses=(*item.clauses, *clauses)))
    return tuple(types)


def _covers(
    nodes: Nodes, wide: Object, narrow: Object, members: dict[Object, dict[str, Node]]
) -> bool:
    """Whether `wide` surely contains `narrow`; False where the form does not show it."""
    if not wide.required <= narrow.required or wide.min_properties > narrow.min_properties:
        return False
    if wide.max_properties is not None and (
        narrow.max_properties is None or narrow.max_properties > wide.max_properties
    ):
        return False
    if wide.patterns != narrow.patterns or wide.names not in (None, narrow.names):
        return False
    if not _within(nodes, narrow.additional, wide.additional):
        return False
    if not set(wide.clauses) <= set(narrow.clauses) or not set(wide.some) <= set(narrow.some):
        return False
    own, others = members[narrow], members[wide]
    if own.keys() != others.keys():
        # A name that only one of them declares follows the patterns of the other.
        plain = not wide.patterns and wide.names is None and wide.additional == ANYTHING
        if not (plain and others.keys() <= own.keys()):
            return False
    return all(_within(nodes, own[name], node) for name, node in others.items())


def _within(nodes: Nodes, narrow: Node, wide: Node) -> bool:
    """Whether every value of `narrow` surely is one of `wide`."""
    if narrow in (wide, NEVER) or wide == ANYTHING:
        return True
    return _parts(nodes, wide) <= _parts(nodes, narrow)


def _parts(nodes: Nodes, node: Node) -> frozenset[Node]:
    expression = nodes.peek(node)
    return frozenset(expression.nodes) if isinstance(expression, And) else frozenset({node})
