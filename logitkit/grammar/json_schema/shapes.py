"""`Shapes`: the alternatives of a node sorted by how their values begin, for `machine`.

Strings, objects and arrays become bodies that the machine calls; numbers, booleans and null are
scalars inside a state. Alternatives without a value that can be spelled are left out. Literal
values are nodes of their own here, numbered below zero; literal objects and arrays become ordinary
ones of literals.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from logitkit.grammar import strings
from logitkit.grammar.json_schema.arrays import ArrayPlan
from logitkit.grammar.json_schema.bodies import Bodies
from logitkit.grammar.json_schema.objects import ObjectPlan
from logitkit.grammar.json_schema.scalars import Scalars
from logitkit.grammar.json_schema.spelling import (
    children,
    literal_array,
    literal_object,
    parse,
)
from logitkit.grammar.json_schema.types import (
    Array,
    Boolean,
    Literal,
    Node,
    Null,
    Number,
    Object,
    Schema,
    String,
    Type,
)
from logitkit.grammar.json_schema.undeclared import Undeclared
from logitkit.grammar.strings import Language


class Shape(NamedTuple):
    """What a node's values are: string languages, literal strings, numbers of plans, scalars."""

    languages: tuple[Language, ...]
    texts: tuple[str, ...]
    objects: tuple[int, ...]
    arrays: tuple[int, ...]
    scalars: tuple[int, ...]


class _Parts:
    """A shape in the making."""

    def __init__(self) -> None:
        self.languages: dict[Language, None] = {}
        self.texts: dict[str, None] = {}
        self.objects: dict[int, None] = {}
        self.arrays: dict[int, None] = {}
        self.scalars: dict[int, None] = {}

    def shape(self) -> Shape:
        free = strings.ANY in self.languages  # and then no other string matters
        return Shape(
            (strings.ANY,) if free else tuple(self.languages),
            () if free else tuple(self.texts),
            tuple(self.objects),
            tuple(self.arrays),
            tuple(self.scalars),
        )


class Shapes:
    """Shapes of nodes and plans of objects and arrays, made when first asked for."""

    def __init__(self, schema: Schema, bodies: Bodies) -> None:
        self._schema = schema
        self._bodies = bodies
        self._shapes: dict[Node, Shape] = {}
        self._literals: list[Literal] = []
        self._literal_nodes: dict[Literal, Node] = {}
        self._object_ids: dict[Object, int] = {}
        self._array_ids: dict[Array, int] = {}
        self.objects: list[ObjectPlan] = []
        self.arrays: list[ArrayPlan] = []
        self.scalars = Scalars()

    # What plans ask -----------------------------------------------------------------------------

    def alive(self, node: Node) -> bool:
        return node < 0 or not self._schema.is_empty(node)

    def both(self, first: Node, second: Node) -> Node:
        assert first >= 0 and second >= 0
        return self._schema.both(first, second)

    def literals(self, node: Node) -> tuple[Node, ...]:
        alternatives = self._alternatives(node)
        return tuple(self._literal(each) for each in alternatives if isinstance(each, Literal))

    def undeclared(self, obj: Object) -> Undeclared:
        return Undeclared(obj, lambda matched: self._schema.other(obj, matched), self.alive)

    def has_keys(self, keys: Undeclared, only_some: bool) -> bool:
        return self._bodies.has_keys(keys, only_some)

    def allows_name(self, obj: Object, name: str) -> bool:
        return obj.names is None or strings.matches(obj.names, name)

    # Shapes -------------------------------------------------------------------------------------

    def shape(self, node: Node) -> Shape:
        found = self._shapes.get(node)
        if found is None:
            alternatives = self._alternatives(node) if self.alive(node) else ()
            parts = _Parts()
            for each in alternatives:
                self._add(parts, each, len(alternatives) == 1)
            found = self._shapes[node] = parts.shape()
        return found

    def _alternatives(self, node: Node) -> tuple[Type, ...]:
        return (self._literals[-1 - node],) if node < 0 else self._schema.alternatives(node)

    def _literal(self, literal: Literal) -> Node:
        node = self._literal_nodes.get(literal)
        if node is None:
            self._literals.append(literal)
            node = self._literal_nodes[literal] = -len(self._literals)
        return node

    def _add(self, parts: _Parts, each: Type, alone: bool) -> None:
        """Add one alternative if it has a value; the only one of a living node does."""
        match each:
            case Literal(text):
                self._add_literal(parts, text)
            case String(language):
                if alone or not strings.is_empty(language):
                    parts.languages[language] = None
            case Object():
                index = self._object(each)
                if self.objects[index].alive:
                    parts.objects[index] = None
            case Array():
                index = self._array(each)
                if self.arrays[index].alive:
                    parts.arrays[index] = None
            case Number():
                scalar = self.scalars.number(each)
                if scalar is not None:
                    parts.scalars[scalar] = None
            case Null():
                parts.scalars[self.scalars.literal("null")] = None
            case Boolean(values):
                for value in values:
                    parts.scalars[self.scalars.literal("true" if value else "false")] = None

    def _add_literal(self, parts: _Parts, text: str) -> None:
        if text[0] not in '"[{':
            parts.scalars[self.scalars.literal(text)] = None
            return
        value: Any = parse(text)
        if isinstance(value, str):
            parts.texts[value] = None
            return
        nodes = [self._literal(child) for child in children(value)]
        if isinstance(value, dict):
            members = list(zip(value, nodes, strict=True))
            parts.objects[self._object(literal_object(members))] = None
        else:
            parts.arrays[self._array(literal_array(nodes))] = None

    def _object(self, obj: Object) -> int:
        index = self._object_ids.get(obj)
        if index is None:
            index = len(self.objects)
            self.objects.append(ObjectPlan(obj, index, self))
            self._object_ids[obj] = index
        return index

    def _array(self, array: Array) -> int:
        index = self._array_ids.get(array)
        if index is None:
            index = len(self.arrays)
            self.arrays.append(ArrayPlan(array, self))
            self._array_ids[array] = index
        return index
