"""Intersections of types: what `allOf` and keywords beside each other come to.

Nodes inside of arrays and objects are joined with `Nodes.conj`, unopened. An intersection may turn
out empty only later, through its nodes; None means that it is certainly empty.
"""

from __future__ import annotations

from logitkit.grammar import strings
from logitkit.grammar.json_schema import values
from logitkit.grammar.json_schema.merge_object import merge_objects
from logitkit.grammar.json_schema.merge_scalar import merge_numbers
from logitkit.grammar.json_schema.normalise_fits import fits_type
from logitkit.grammar.json_schema.normalise_nodes import Nodes
from logitkit.grammar.json_schema.types import (
    NEVER,
    Array,
    Boolean,
    Contains,
    Literal,
    Number,
    Object,
    String,
    Type,
)

_PLAIN_ARRAY = Array()
_PLAIN_OBJECT = Object()


def intersect(nodes: Nodes, first: Type, second: Type) -> Type | None:
    """The values of both types, members in the order of `first`; None where there are none."""
    if isinstance(first, Literal) or isinstance(second, Literal):
        literal, other = (first, second) if isinstance(first, Literal) else (second, first)
        assert isinstance(literal, Literal)
        return literal if fits_type(nodes, values.parse(literal.text), other) else None
    if type(first) is not type(second):
        return None
    if isinstance(first, Number) and isinstance(second, Number):
        return merge_numbers(first, second)
    if isinstance(first, String) and isinstance(second, String):
        return _merge_strings(first, second)
    if isinstance(first, Object) and isinstance(second, Object):
        if second == _PLAIN_OBJECT:
            return first
        return second if first == _PLAIN_OBJECT else merge_objects(nodes, first, second)
    if isinstance(first, Array) and isinstance(second, Array):
        if second == _PLAIN_ARRAY:
            return first
        return second if first == _PLAIN_ARRAY else _merge_arrays(nodes, first, second)
    if isinstance(first, Boolean) and isinstance(second, Boolean):
        both = first.values & second.values
        return Boolean(both) if both else None
    return first


def _merge_strings(first: String, second: String) -> String | None:
    if first.language == strings.ANY:
        return second
    if second.language in (strings.ANY, first.language):
        return first
    return String(first.language & second.language)


def _merge_arrays(nodes: Nodes, first: Array, second: Array) -> Array | None:
    longer = max(len(first.prefix), len(second.prefix))
    prefix = tuple(
        nodes.conj(
            array.prefix[position] if position < len(array.prefix) else array.rest
            for array in (first, second)
        )
        for position in range(longer)
    )
    rest = nodes.conj((first.rest, second.rest))
    least = max(first.min_items, second.min_items)
    limits = [array.max_items for array in (first, second) if array.max_items is not None]
    most = min(limits) if limits else None
    merged = shorten(
        Array(
            prefix,
            rest,
            least,
            most,
            _merge_contains(first.contains + second.contains),
            first.unique or second.unique,
        )
    )
    if merged.max_items is not None and merged.max_items < merged.min_items:
        return None
    return merged


def shorten(array: Array) -> Array:
    """`array` without items behind a position where nothing fits, or behind `max_items`."""
    most = array.max_items
    for position, node in enumerate((*array.prefix, array.rest)):
        if node == NEVER and (most is None or position < most):
            most = position
            break
    if most == array.max_items and (most is None or most >= len(array.prefix)):
        return array
    assert most is not None
    return Array(
        array.prefix[:most],
        array.rest if most > len(array.prefix) else NEVER,
        array.min_items,
        most,
        array.contains,
        array.unique,
    )


def _merge_contains(contains: tuple[Contains, ...]) -> tuple[Contains, ...]:
    """One requirement for each node."""
    merged: dict[int, Contains] = {}
    for item in contains:
        known = merged.get(item.node)
        if known is not None:
            limits = [one.maximum for one in (known, item) if one.maximum is not None]
            item = Contains(
                item.node,
                max(known.minimum, item.minimum),
                min(limits) if limits else None,
                item.rest if known.rest is None else known.rest,
            )
        merged[item.node] = item
    return tuple(merged.values())
