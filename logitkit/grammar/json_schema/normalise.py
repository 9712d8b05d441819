"""`normalise`: a JSON Schema to the normal form of `types`, or an error that says what is wrong.

    schema document -> `keywords` (one schema: an expression over nodes) -> `normalise_union`
    (unions of types) -> `normalise_empty` (what has no value) -> here (visited, checked, kept)

A keyword is enforced exactly or refused by name, with its JSON pointer. Whatever can be reached
from the root is visited before `normalise` returns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from logitkit.errors import GrammarError
from logitkit.grammar.json_schema import values
from logitkit.grammar.json_schema.drafts import draft_of
from logitkit.grammar.json_schema.keywords import KEYWORDS, Compiler
from logitkit.grammar.json_schema.merge_scalar import few_numbers
from logitkit.grammar.json_schema.normalise_array import refuse_contains
from logitkit.grammar.json_schema.normalise_blame import blame, no_value
from logitkit.grammar.json_schema.normalise_empty import Emptiness
from logitkit.grammar.json_schema.normalise_expressions import Leaf
from logitkit.grammar.json_schema.normalise_object import (
    has_others,
    least_declared,
    other_node,
    regions,
)
from logitkit.grammar.json_schema.normalise_union import Unmade
from logitkit.grammar.json_schema.ranges import refuse_not_multiples
from logitkit.grammar.json_schema.references import Document
from logitkit.grammar.json_schema.types import (
    NEVER,
    Array,
    Boolean,
    Literal,
    Node,
    Null,
    Number,
    Object,
    Type,
)
from logitkit.grammar.machine import Budget, check_time
from logitkit.grammar.spec import JsonSchema

_MAX_UNIQUE = 256  # each set of used items is a state


def normalise(spec: JsonSchema, budget: Budget) -> NormalForm:
    """The normal form of `spec.schema`.

    GrammarError for a keyword with a wrong value or one that cannot be enforced, for a schema that
    no value fits, and where the budget does not suffice.
    """
    unknown = sorted(set(spec.lenient) - KEYWORDS - {"$schema"})
    if unknown:
        raise GrammarError(
            f"`lenient` names {unknown[0]!r}, which is no keyword that is enforced or refused; "
            "remove it"
        )
    form = NormalForm(spec, budget)
    try:
        form.visit()
    except RecursionError:
        raise GrammarError(
            "the schema combines keywords (`not`, `allOf`, `oneOf`, ...) nested too deeply; "
            "flatten it"
        ) from None
    except Unmade as error:
        form.refuse_circle(error.node)
    return form


class NormalForm:
    """A normalised schema: what `types.Schema` promises."""

    def __init__(self, spec: JsonSchema, budget: Budget) -> None:
        self.options = spec
        schema: Any = spec.schema
        lenient = frozenset(spec.lenient)
        draft = draft_of(schema if isinstance(schema, dict) else {}, "#", lenient)
        document = Document(schema, draft)
        compiler = Compiler(document, lenient, spec.strict_formats, budget)
        self._document = document
        self._nodes = compiler.nodes
        self._emptiness = Emptiness(self._nodes)
        self._alternatives: dict[Node, tuple[Type, ...]] = {}
        self.root = self._nodes.raw(document.root)

    def alternatives(self, node: Node) -> tuple[Type, ...]:
        """The union that a node is; () only for an empty node."""
        node = self._nodes.resolve(node)
        known = self._alternatives.get(node)
        if known is None:
            try:
                known = self._alternatives[node] = tuple(dict.fromkeys(self._final(node)))
            except GrammarError as error:
                raise self._placed(error, node) from None
        return known

    def is_empty(self, node: Node) -> bool:
        """Whether no (finite) value is valid; recursion without an end counts as empty."""
        return self._emptiness.is_empty(node)

    def other(self, obj: Object, matched: frozenset[int]) -> Node:
        """The node for the value of an undeclared key that matches exactly these `patterns`."""
        return self._living(other_node(self._nodes, obj, matched))

    def both(self, first: Node, second: Node) -> Node:
        """The node of the values that fit both, NEVER where there are none."""
        return self._living(self._nodes.conj((first, second)))

    def _living(self, node: Node) -> Node:
        return NEVER if self.is_empty(node) else node

    def visit(self) -> None:
        """Look at every node that can be reached; GrammarError where one cannot be enforced."""
        seen: set[Node] = set()
        pending = [self.root]
        while pending:
            node = self._nodes.resolve(pending.pop())
            if node in seen:
                continue
            seen.add(node)
            check_time()
            for item in self.alternatives(node):
                try:
                    pending += self._inside(item)
                except GrammarError as error:
                    raise self._placed(error, node) from None
        if self.is_empty(self.root):
            lenient = frozenset(self.options.lenient)
            raise no_value(self._document, lenient, self._nodes, self.is_empty)

    def refuse_circle(self, node: Node) -> None:
        """Raise GrammarError: `node` is made of itself."""
        self._emptiness.unions.refuse_circle(node)

    def _inside(self, item: Type) -> Iterator[Node]:
        """The nodes that a machine may ask for after it has seen `item`."""
        if isinstance(item, Object):
            yield from (node for _, node in item.properties)
            yield from (node for _, node in item.some)
            if item.additional != NEVER or item.patterns:
                for matched, _ in regions(self._nodes, item):
                    yield self.other(item, matched)
        elif isinstance(item, Array):
            places = dict.fromkeys((*item.prefix, item.rest))
            yield from places
            for contains in item.contains:
                for node in (contains.node, contains.rest):
                    if node is not None:
                        yield node
                        yield from (self.both(place, node) for place in places)
            if len(item.contains) > 1:
                together = [contains.node for contains in item.contains]
                yield from (self._living(self._nodes.conj((p, *together))) for p in places)

    def _final(self, node: Node) -> Iterator[Type]:
        """The alternatives that have a value, without what is dead in them."""
        for item in self._emptiness.finished(node):
            settled = self._emptiness.settle(item, self.is_empty)
            if isinstance(settled, Object):
                self._check_count(settled)
            elif isinstance(settled, Array):
                refuse_contains(settled)
                if settled.unique:
                    settled = self._unique(settled)
            elif isinstance(settled, Number):
                refuse_not_multiples(settled)
            if settled is not None:
                yield settled

    def _check_count(self, obj: Object) -> None:
        """Refuse `obj` where two or more undeclared keys may have to be told apart."""
        declared = least_declared(obj)
        free = obj.min_properties - declared
        if obj.max_properties is not None and obj.max_properties - declared <= 1:
            return
        if free > 1 and has_others(self._nodes, obj, self.is_empty):
            raise GrammarError(
                f"`minProperties` {obj.min_properties} (or `not` of `maxProperties`) may need two "
                "or more members that are not declared, and duplicates among those cannot be "
                'excluded: declare or require more members, or pass lenient={"minProperties"}'
            )

    def _unique(self, array: Array) -> Array | None:
        """`array` with its items spelled out as literals, which `uniqueItems` needs."""
        if array.max_items is not None and array.max_items <= 1:
            return replace(array, unique=False)
        items = None if array.prefix or array.contains else self._literals(array.rest)
        if items is None:
            raise GrammarError(
                f"`uniqueItems` can be enforced on items out of at most {_MAX_UNIQUE} values, "
                "without `prefixItems` and `contains`: bound the items with `enum`, set "
                '`maxItems` to 1, or pass lenient={"uniqueItems"}'
            )
        if array.min_items > len(items):
            return None
        most = len(items) if array.max_items is None else min(len(items), array.max_items)
        rest = self._nodes.add(Leaf(tuple(items)))
        return replace(array, rest=rest, max_items=most)

    def _literals(self, node: Node) -> list[Literal] | None:
        """The values of `node`, if they are few; None otherwise."""
        found: dict[object, Literal] = {}
        for item in self._emptiness.finished(node):
            texts = _texts(item)
            if texts is None:
                return None
            for text in texts:
                found.setdefault(values.identity(text), Literal(text))
        return list(found.values()) if len(found) <= _MAX_UNIQUE else None

    def _placed(self, error: GrammarError, node: Node) -> GrammarError:
        """`error` with the place of the schema that it comes from, if it has none."""
        if error.where is not None:
            return error
        return GrammarError(str(error), blame(self._nodes, node, str(error)))


def _texts(item: Type) -> list[str] | None:
    """The spellings of a type that has few values; None of one that may have many."""
    if isinstance(item, Literal):
        return [item.text]
    if isinstance(item, Null):
        return ["null"]
    if isinstance(item, Boolean):
        return [values.text(value) for value in sorted(item.values)]
    if isinstance(item, Number):
        return few_numbers(item, _MAX_UNIQUE)
    return None
