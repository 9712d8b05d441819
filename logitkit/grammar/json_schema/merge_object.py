"""Intersections of objects.

Before the last step (`normalise_object.finish`), `required` and `clauses` may name members that
`properties` does not have, and each entry of `some` is a requirement of its own over all keys.
"""

from __future__ import annotations

from dataclasses import replace

from logitkit.grammar import strings
from logitkit.grammar.json_schema.normalise_nodes import Nodes
from logitkit.grammar.json_schema.types import ANYTHING, NEVER, Node, Object


def member(nodes: Nodes, obj: Object, name: str) -> Node:
    """The node of the member `name` of `obj`, declared or not."""
    for declared, node in obj.properties:
        if declared == name:
            return node
    return undeclared(nodes, obj, name)


def undeclared(nodes: Nodes, obj: Object, name: str) -> Node:
    """The node of a member that `obj` does not declare."""
    if obj.names is not None and not strings.matches(obj.names, name):
        return NEVER
    if obj.patterns:
        matching = [node for language, node in obj.patterns if strings.matches(language, name)]
        if matching:
            return nodes.conj(matching)
    return obj.additional


def merge_objects(nodes: Nodes, first: Object, second: Object) -> Object | None:
    """The objects that are in both; None where there are certainly none."""
    own, others = dict(first.properties), dict(second.properties)
    properties = {
        name: nodes.conj(
            (node, others[name] if name in others else undeclared(nodes, second, name))
        )
        for name, node in own.items()
    }
    for name, node in others.items():
        if name not in own:
            properties[name] = nodes.conj((undeclared(nodes, first, name), node))
    required = first.required | second.required
    if any(properties.get(name) == NEVER for name in required):
        return None
    limits = [obj.max_properties for obj in (first, second) if obj.max_properties is not None]
    most = min(limits) if limits else None
    least = max(first.min_properties, second.min_properties)
    if most is not None and most < max(least, len(required)):
        return None
    patterns, additional = _merge_patterns(nodes, first, second)
    return Object(
        tuple(properties.items()),
        required,
        patterns,
        additional,
        _merge_names(first.names, second.names),
        least,
        most,
        tuple(dict.fromkeys(first.clauses + second.clauses)),
        tuple(dict.fromkeys(first.some + second.some)),
    )


def _merge_names(
    first: strings.Language | None, second: strings.Language | None
) -> strings.Language | None:
    if first is None or second is None or first == second:
        return second if first is None else first
    return first & second


def _merge_patterns(
    nodes: Nodes, first: Object, second: Object
) -> tuple[tuple[tuple[strings.Language, Node], ...], Node]:
    """The patterns and the node of other keys of both objects together."""
    if not first.patterns and not second.patterns:
        return (), nodes.conj((first.additional, second.additional))
    if first.additional == NEVER and not first.patterns:
        return (), NEVER
    if second.additional == NEVER and not second.patterns:
        return (), NEVER
    if first.patterns and second.patterns:
        if first.patterns == second.patterns:
            merged = tuple(
                (language, nodes.conj((node, other)))
                for (language, node), (_, other) in zip(
                    first.patterns, second.patterns, strict=True
                )
            )
            return merged, nodes.conj((first.additional, second.additional))
        first, second = _open(first), _open(second)
        return _joined(nodes, first.patterns + second.patterns), ANYTHING
    owner, plain = (first, second) if first.patterns else (second, first)
    patterns = tuple(
        (language, nodes.conj((node, plain.additional))) for language, node in owner.patterns
    )
    return patterns, nodes.conj((owner.additional, plain.additional))


def _open(obj: Object) -> Object:
    """`obj` with its `additional` as one more pattern, where it constrains anything."""
    if obj.additional == ANYTHING:
        return obj
    rest = ~_union([language for language, _ in obj.patterns])
    return replace(obj, patterns=(*obj.patterns, (rest, obj.additional)), additional=ANYTHING)


def _union(languages: list[strings.Language]) -> strings.Language:
    union = languages[0]
    for language in languages[1:]:
        union = union | language
    return union


def _joined(
    nodes: Nodes, patterns: tuple[tuple[strings.Language, Node], ...]
) -> tuple[tuple[strings.Language, Node], ...]:
    """The patterns with equal languages joined."""
    joined: dict[strings.Language, Node] = {}
    for language, node in patterns:
        joined[language] = nodes.conj((joined.get(language, ANYTHING), node))
    return tuple(joined.items())
