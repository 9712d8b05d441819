"""Complements of types: `not`, pushed inwards to members and items.

A complement is a union: an object is not valid because one member is missing, or one is wrong, or
there are too many. Nodes inside are negated with `Nodes.neg`, unopened.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from logitkit.errors import GrammarError
from logitkit.grammar import strings
from logitkit.grammar.json_schema import values
from logitkit.grammar.json_schema.merge import intersect, shorten
from logitkit.grammar.json_schema.normalise_expressions import EVERYTHING, Leaf
from logitkit.grammar.json_schema.normalise_nodes import Nodes
from logitkit.grammar.json_schema.types import (
    ANYTHING,
    NEVER,
    Array,
    Boolean,
    Contains,
    Literal,
    Node,
    Null,
    Number,
    Object,
    String,
    Type,
)

_MAX_UNION = 1_000  # alternatives of one complement


def complement(nodes: Nodes, leaf: Leaf) -> list[Type]:
    """The values that fit none of the types of `leaf`, as a union."""
    result: list[Type] = []
    kinds: dict[type, list[Type]] = {type(full): [] for full in EVERYTHING}
    words: list[str] = []
    numbers: set[Decimal] = set()
    for item in leaf.types:
        if isinstance(item, Literal):
            value = values.parse(item.text)
            if isinstance(value, str):
                words.append(value)
                continue
            if isinstance(value, Decimal):
                numbers.add(value)
                continue
            item = _spelled_out(nodes, value)
        kinds[type(item)].append(item)
    for full in EVERYTHING:
        if isinstance(full, String) and words:
            full = String(~strings.literals(words))
        if isinstance(full, String) and leaf.doubt is not None:
            full = String(full.language - leaf.doubt)
        if isinstance(full, Number) and numbers:
            full = replace(full, excluded=frozenset(numbers))
        union: list[Type] = [full]
        for item in kinds[type(full)]:
            others = _complement(nodes, item, leaf.doubt)
            met = [intersect(nodes, one, other) for one in union for other in others]
            union = list(dict.fromkeys(one for one in met if one is not None))
            if len(union) > _MAX_UNION:
                raise GrammarError(
                    f"`not` (or `oneOf`, `if`) needs more than {_MAX_UNION} alternatives; "
                    "simplify the schema"
                )
        result += union
    return result


def _spelled_out(nodes: Nodes, value: object) -> Type:
    """The type whose only value is `value`, which is no string or number."""
    if value is None:
        return Null()
    if isinstance(value, bool):
        return Boolean(frozenset({value}))
    if isinstance(value, list):
        items = tuple(_literal_node(nodes, item) for item in value)
        return Array(items, NEVER, len(items), len(items))
    assert isinstance(value, dict)
    members = tuple((name, _literal_node(nodes, item)) for name, item in value.items())
    return Object(members, frozenset(value), additional=NEVER)


def _literal_node(nodes: Nodes, value: object) -> Node:
    return nodes.add(Leaf((Literal(values.text(value)),)))


def _complement(nodes: Nodes, item: Type, doubt: strings.Language | None) -> list[Type]:
    """The values of the same JSON type that are not in `item`; no keys of `doubt` make them so."""
    if isinstance(item, Boolean):
        left = frozenset({True, False}) - item.values
        return [Boolean(left)] if left else []
    if isinstance(item, String):
        return [] if item.language == strings.ANY else [String(~item.language)]
    if isinstance(item, Number):
        return _not_number(item)
    if isinstance(item, Array):
        return _not_array(nodes, item)
    if isinstance(item, Object):
        return _not_object(nodes, item, doubt)
    assert isinstance(item, Null)
    return []


def _not_number(item: Number) -> list[Type]:
    result: list[Type] = []
    if item.minimum is not None:
        strict = not item.exclusive_minimum
        result.append(Number(False, maximum=item.minimum, exclusive_maximum=strict))
    if item.maximum is not None:
        strict = not item.exclusive_maximum
        result.append(Number(False, minimum=item.maximum, exclusive_minimum=strict))
    if item.integer:
        result.append(Number(False, not_multiples=frozenset({Decimal(1)})))
    if item.multiple_of is not None:
        result.append(Number(False, not_multiples=frozenset({item.multiple_of})))
    result += [Literal(values.number_text(value)) for value in sorted(item.excluded)]
    result += [Number(False, multiple_of=step) for step in sorted(item.not_multiples)]
    return result


def _not_array(nodes: Nodes, item: Array) -> list[Type]:
    if item.unique and (item.max_items is None or item.max_items > 1):
        raise GrammarError(
            "`not` (or `oneOf`, `if`) of `uniqueItems` cannot be enforced; leave it out there, or "
            'pass lenient={"uniqueItems"}'
        )
    result: list[Type] = []
    if item.min_items:
        result.append(Array(max_items=item.min_items - 1))
    if item.max_items is not None:
        result.append(Array(min_items=item.max_items + 1))
    for position, node in enumerate(item.prefix):
        if node != ANYTHING:
            before = (ANYTHING,) * position
            result.append(Array((*before, nodes.neg(node)), min_items=position + 1))
    if item.rest == NEVER:
        result.append(Array(min_items=len(item.prefix) + 1))
    elif item.rest != ANYTHING:
        wrong = nodes.neg(item.rest)
        if item.prefix:
            result += _some_item_after(len(item.prefix), wrong)
        else:
            result.append(Array(contains=(Contains(wrong, 1),)))
    for contains in item.contains:
        if contains.minimum:
            limit = contains.minimum - 1
            rest = nodes.neg(contains.node)
            if limit == 0:
                result.append(Array(rest=rest))
            else:
                result.append(Array(contains=(Contains(contains.node, 0, limit, rest),)))
        if contains.maximum is not None:
            result.append(Array(contains=(Contains(contains.node, contains.maximum + 1),)))
    return [shorten(one) if isinstance(one, Array) else one for one in result]


def _some_item_after(count: int, wrong: Node) -> list[Type]:
    raise GrammarError(
        f"`not` (or `oneOf`, `if`) of `items` behind {count} `prefixItems` cannot be enforced; "
        "bound the array with `maxItems`, or simplify the schema"
    )


def _not_object(nodes: Nodes, item: Object, doubt: strings.Language | None) -> list[Type]:
    assert not item.some  # only complements have it, and complements are never negated again
    result: list[Type] = []
    if item.required:
        result.append(Object(clauses=(frozenset((name, False) for name in item.required),)))
    for name, node in item.properties:
        if node != ANYTHING:
            result.append(Object(((name, nodes.neg(node)),), frozenset({name})))
    declared = [name for name, _ in item.properties]
    others = ~strings.literals(declared) if declared else strings.ANY
    unmatched = others
    for language, node in item.patterns:
        if node != ANYTHING:
            result.append(Object(some=((_both(language, others), nodes.neg(node)),)))
        unmatched = _both(unmatched, ~language)
    if item.additional != ANYTHING:
        result.append(Object(some=((unmatched, nodes.neg(item.additional)),)))
    if item.names is not None:
        named = item.names if doubt is None else item.names | doubt
        result.append(Object(some=((_both(others, ~named), ANYTHING),)))
    if item.min_properties:
        result.append(Object(max_properties=item.min_properties - 1))
    if item.max_properties is not None:
        result.append(Object(min_properties=item.max_properties + 1))
    for clause in item.clauses:
        present = frozenset(name for name, there in clause if not there)
        absent = tuple((name, NEVER) for name, there in sorted(clause) if there)
        if not any(name in present for name, _ in absent):
            result.append(Object(absent, present))
    return result


def _both(first: strings.Language, second: strings.Language) -> strings.Language:
    if first == strings.ANY:
        return second
    return first if second == strings.ANY else first & second
