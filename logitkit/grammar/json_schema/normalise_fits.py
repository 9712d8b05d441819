"""Whether a value fits a node, and which strings fit one, asked of the expressions themselves.

Nothing is merged here, so both are exact for everything that a leaf can say.
"""

from __future__ import annotations

from typing import Any

from logitkit.grammar import strings
from logitkit.grammar.json_schema import values
from logitkit.grammar.json_schema.merge_scalar import holds_plain
from logitkit.grammar.json_schema.normalise_expressions import EVERYTHING, And, Leaf, Not, OneOf, Or
from logitkit.grammar.json_schema.normalise_nodes import Nodes
from logitkit.grammar.json_schema.types import (
    ANYTHING,
    NEVER,
    Array,
    Literal,
    Node,
    Object,
    String,
    Type,
)


def fits(nodes: Nodes, value: Any, node: Node) -> bool:
    """Whether `value` (its numbers are Decimal) is one of the values of `node`."""
    if node in (NEVER, ANYTHING):
        return node == ANYTHING
    expression = nodes.expression(node)
    if isinstance(expression, Leaf):
        return any(fits_type(nodes, value, item) for item in expression.types)
    if isinstance(expression, And):
        return all(fits(nodes, value, part) for part in expression.nodes)
    if isinstance(expression, Or):
        return any(fits(nodes, value, part) for part in expression.nodes)
    if isinstance(expression, OneOf):
        return sum(fits(nodes, value, part) for part in expression.nodes) == 1
    assert isinstance(expression, Not)
    leaf = nodes.negated_leaf(expression)
    if leaf.doubt is not None and isinstance(value, str) and strings.matches(leaf.doubt, value):
        return False
    return not any(fits_type(nodes, value, item) for item in leaf.types)


def fits_type(nodes: Nodes, value: Any, item: Type) -> bool:
    """Whether `value` is one of the values of a type."""
    if isinstance(item, Literal):
        return values.identity(item.text) == values.key(value)
    if isinstance(value, list):
        return isinstance(item, Array) and _fits_array(nodes, value, item)
    if isinstance(value, dict):
        return isinstance(item, Object) and _fits_object(nodes, value, item)
    return holds_plain(item, value)


def _fits_array(nodes: Nodes, value: list[Any], array: Array) -> bool:
    size, prefix = len(value), array.prefix
    if size < array.min_items or (array.max_items is not None and size > array.max_items):
        return False
    if array.unique and len({values.key(item) for item in value}) < size:
        return False
    for position, item in enumerate(value):
        if not fits(nodes, item, prefix[position] if position < len(prefix) else array.rest):
            return False
    for contains in array.contains:
        found = sum(fits(nodes, item, contains.node) for item in value)
        if found < contains.minimum:
            return False
        if contains.maximum is not None and found > contains.maximum:
            return False
    return True


def _fits_object(nodes: Nodes, value: dict[str, Any], obj: Object) -> bool:
    if not obj.required <= value.keys() or len(value) < obj.min_properties:
        return False
    if obj.max_properties is not None and len(value) > obj.max_properties:
        return False
    for clause in obj.clauses:
        if not any((name in value) == present for name, present in clause):
            return False
    properties = dict(obj.properties)
    for name, item in value.items():
        if obj.names is not None and not strings.matches(obj.names, name):
            return False
        if name in properties:
            members = [properties[name]]
        else:
            members = [node for words, node in obj.patterns if strings.matches(words, name)]
        if not all(fits(nodes, item, node) for node in members or [obj.additional]):
            return False
    return all(
        any(
            strings.matches(words, name) and fits(nodes, item, node) for name, item in value.items()
        )
        for words, node in obj.some
    )


def key_language(nodes: Nodes, node: Node) -> strings.Language:
    """The strings among the values of `node`."""
    if node in (NEVER, ANYTHING):
        return strings.ANY if node == ANYTHING else strings.NONE
    expression = nodes.expression(node)
    if isinstance(expression, Leaf):
        return _strings_of(expression)
    if isinstance(expression, And):
        language = strings.ANY
        for part in expression.nodes:
            language = language & key_language(nodes, part)
        return language
    if isinstance(expression, Or):
        language = strings.NONE
        for part in expression.nodes:
            language = language | key_language(nodes, part)
        return language
    if isinstance(expression, OneOf):
        once, more = strings.NONE, strings.NONE
        for part in expression.nodes:
            other = key_language(nodes, part)
            more = more | (once & other)
            once = once | other
        return once - more
    leaf = nodes.negated_leaf(expression)
    words = _strings_of(leaf)
    return ~(words if leaf.doubt is None else words | leaf.doubt)


def doubt_about(nodes: Nodes, node: Node) -> strings.Language | None:
    """The strings that `key_language` and its complement leave out alike; None for none."""
    if node in (NEVER, ANYTHING):
        return None
    expression = nodes.expression(node)
    if isinstance(expression, Leaf):
        return expression.doubt
    if isinstance(expression, Not):
        return nodes.negated_leaf(expression).doubt
    doubt: strings.Language | None = None
    for part in expression.nodes:
        other = doubt_about(nodes, part)
        if other is not None:
            doubt = other if doubt is None else doubt | other
    return doubt


def _strings_of(leaf: Leaf) -> strings.Language:
    if leaf.types is EVERYTHING:
        return strings.ANY
    texts = [item.text for item in leaf.types if isinstance(item, Literal)]
    words = [word for word in map(values.parse, texts) if isinstance(word, str)]
    language = strings.literals(words) if words else strings.NONE
    for item in leaf.types:
        if isinstance(item, String):
            language = item.language if language == strings.NONE else language | item.language
    return language
