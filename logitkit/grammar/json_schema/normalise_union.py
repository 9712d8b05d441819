"""Expressions to unions of types: what a node is, one level deep.

`Unions.types(node)` multiplies conjunctions out, pushes `not` into types and resolves `oneOf`; the
nodes inside of arrays and objects stay as they are. The order of work is an explicit stack, so that
long chains of `allOf` or `$ref` need no deep recursion.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import combinations
from typing import NoReturn

from logitkit.errors import GrammarError
from logitkit.grammar import strings
from logitkit.grammar.json_schema import values
from logitkit.grammar.json_schema.merge import intersect
from logitkit.grammar.json_schema.negate import complement
from logitkit.grammar.json_schema.normalise_absorb import absorbed, with_clauses
from logitkit.grammar.json_schema.normalise_expressions import And, Leaf, Not, OneOf, Or
from logitkit.grammar.json_schema.normalise_fits import fits
from logitkit.grammar.json_schema.normalise_nodes import Nodes
from logitkit.grammar.json_schema.types import (
    Array,
    Boolean,
    Literal,
    Node,
    Null,
    Number,
    Object,
    String,
    Type,
)
from logitkit.grammar.machine import check_time

MAX_PRODUCT = 1_000  # alternatives of a conjunction, before redundant ones are dropped
MAX_UNION = 20_000  # alternatives of a union
_PRUNE_FROM = 4  # alternatives from which a product is searched for empty ones


_KINDS: dict[str, type] = {
    '"': String,
    "{": Object,
    "[": Array,
    "t": Boolean,
    "f": Boolean,
    "n": Null,
}


class Unmade(Exception):
    """The union of `node` is needed while it is being made."""

    def __init__(self, node: Node) -> None:
        self.node = node


class Unions:
    """The unions of all nodes. `surely_empty` tells of alternatives that no value can fit."""

    def __init__(self, nodes: Nodes, surely_empty: Callable[[Type], bool]) -> None:
        self.nodes = nodes
        self._surely_empty = surely_empty
        self._types: dict[Node, tuple[Type, ...]] = {}
        self._rewritten: dict[Node, Node] = {}
        self.active: set[Node] = set()  # nodes whose union is being made

    def types(self, node: Node) -> tuple[Type, ...]:
        """The union that `node` is; alternatives may still be empty through their members.

        GrammarError where a node leads back to itself, or the union is too large; Unmade where it
        is asked for while another call makes it.
        """
        node = self.nodes.resolve(node)
        known = self._types.get(node)
        if known is not None:
            return known
        stack = [node]
        begun: set[Node] = set()
        try:
            while stack:
                top = stack[-1]
                if top in self._types:
                    stack.pop()
                    continue
                if top not in begun:
                    if top in self.active:
                        raise Unmade(top)
                    self.active.add(top)
                    begun.add(top)
                needs = [self.nodes.resolve(one) for one in self._needs(top)]
                missing = [one for one in needs if one not in self._types]
                if not missing:
                    self._types[top] = self._make(top, needs)
                    self.active.discard(top)
                    continue
                for one in missing:
                    if one in begun and one in self.active:
                        self.refuse_circle(one)
                stack += reversed(missing)
        finally:
            self.active -= begun
        return self._types[node]

    def refuse_circle(self, node: Node) -> NoReturn:
        place = self.nodes.origin(node)
        raise GrammarError(
            "`$ref` leads back to its own schema with no member or item in between; break the "
            "circle",
            None if place is None else place.pointer,
        )

    def _needs(self, node: Node) -> tuple[Node, ...]:
        """The nodes whose unions make up the one of `node`."""
        expression = self.nodes.expression(node)
        if isinstance(expression, Or):
            return expression.nodes
        if isinstance(expression, And):
            if self._finite(expression) is not None:
                return ()
            for part in expression.nodes:
                if isinstance(self.nodes.expression(part), OneOf):
                    return (self._one_of(node, expression.nodes, part),)
            return expression.nodes
        if isinstance(expression, OneOf):
            return (self._one_of(node, (), node),)
        return ()

    def _make(self, node: Node, needs: list[Node]) -> tuple[Type, ...]:
        expression = self.nodes.expression(node)
        if isinstance(expression, Leaf):
            return expression.types
        if isinstance(expression, Not):
            return self._pruned(complement(self.nodes, self.nodes.negated_leaf(expression)))
        if node in self._rewritten:
            return self._types[needs[0]]
        if isinstance(expression, Or):
            whole = united((item for one in needs for item in self._types[one]), MAX_UNION)
            return absorbed(self.nodes, with_clauses(whole))
        assert isinstance(expression, And)
        finite = self._finite(expression)
        if finite is not None:
            others = [part for part in expression.nodes if part != finite]
            leaf = self.nodes.expression(finite)
            assert isinstance(leaf, Leaf)
            return tuple(item for item in leaf.types if self._fits_all(item, others))
        return self._product(needs)

    def _finite(self, expression: And) -> Node | None:
        """A part that is a list of literals: the others are then asked about each."""
        for part in expression.nodes:
            opened = self.nodes.expression(part)
            if isinstance(opened, Leaf) and opened.finite:
                return part
        return None

    def _fits_all(self, item: Type, others: list[Node]) -> bool:
        assert isinstance(item, Literal)
        value = values.parse(item.text)
        return all(fits(self.nodes, value, part) for part in others)

    def _product(self, needs: list[Node]) -> tuple[Type, ...]:
        union = self._types[needs[0]]
        for one in needs[1:]:
            others = self._types[one]
            union = absorbed(self.nodes, united(self._met(union, others)))
            if len(union) > _PRUNE_FROM:
                union = self._pruned(union)
            check_time()
        return union

    def _met(self, first: tuple[Type, ...], second: tuple[Type, ...]) -> Iterator[Type]:
        """The intersections of all pairs; two literals meet by a look-up, not pair by pair."""
        rivals: dict[object, list[Type]] = {}
        known: set[Hashable] = set()
        for item in second:
            if isinstance(item, Literal):
                known.add(values.identity(item.text))
            rivals.setdefault(_kind(item), []).append(item)
        for item in first:
            literal = isinstance(item, Literal)
            if isinstance(item, Literal) and known and values.identity(item.text) in known:
                yield item
            for other in rivals.get(_kind(item), ()):
                if not (literal and isinstance(other, Literal)):
                    met = intersect(self.nodes, item, other)
                    if met is not None:
                        yield met

    def _pruned(self, union: Iterable[Type]) -> tuple[Type, ...]:
        return tuple(item for item in union if not self._surely_empty(item))

    def _one_of(self, node: Node, parts: tuple[Node, ...], chosen: Node) -> Node:
        """The node of `parts` where exactly one option of the `OneOf` node `chosen` fits: each
        option with the complements of those that it overlaps."""
        known = self._rewritten.get(node)
        if known is not None:
            return known
        one_of = self.nodes.expression(chosen)
        assert isinstance(one_of, OneOf)
        nodes = self.nodes
        options = one_of.nodes
        before = parts.index(chosen) if chosen in parts else 0
        around = [part for part in parts if part != chosen]
        branches = [nodes.conj([*around[:before], option, *around[before:]]) for option in options]
        overlaps: list[list[Node]] = [[] for _ in options]
        pairs = combinations(range(len(options)), 2)
        for first, second in () if self._discriminated(branches) else pairs:
            if self._overlap(branches[first], branches[second], options[second]):
                overlaps[first].append(options[second])
                overlaps[second].append(options[first])
            check_time()
        result = nodes.disj(
            nodes.conj([branch, *map(nodes.neg, others)])
            for branch, others in zip(branches, overlaps, strict=True)
        )
        self._rewritten[node] = result
        return result

    def _discriminated(self, branches: list[Node]) -> bool:
        """Whether a required member has other values in every branch: none overlaps then."""
        common: dict[str, list[frozenset[object]]] | None = None
        for branch in branches:
            types = self.types(branch)
            if len(types) != 1 or not isinstance(types[0], Object):
                return False
            own: dict[str, list[frozenset[object]]] = {}
            for name, node in types[0].properties:
                known = self._values_of(node) if name in types[0].required else None
                if known is not None and (common is None or name in common):
                    own[name] = [*(common[name] if common else ()), known]
            common = own
            if not common:
                return False
        return any(
            sum(map(len, sets)) == len(frozenset().union(*sets)) for sets in (common or {}).values()
        )

    def _overlap(self, first: Node, second: Node, option: Node) -> bool:
        """Whether some value may fit both branches; False only where certainly none does."""
        mine, theirs = self.types(first), self.types(second)
        if all(self._apart(item, other) for item in mine for other in theirs):
            return False
        both = self.types(self.nodes.conj([first, option]))
        return not all(self._surely_empty(item) for item in both)

    def _apart(self, item: Type, other: Type) -> bool:
        """Whether two types are apart at a glance: by type, value, or a member's values."""
        if isinstance(item, Literal) and isinstance(other, Literal):
            return values.identity(item.text) != values.identity(other.text)
        if isinstance(item, Literal) or isinstance(other, Literal):
            return False
        if isinstance(item, Object) and isinstance(other, Object):
            shared = item.required & other.required
            theirs = dict(other.properties)
            for name, node in item.properties:
                if name in shared and name in theirs:
                    left, right = self._values_of(node), self._values_of(theirs[name])
                    if left is not None and right is not None and left.isdisjoint(right):
                        return True
            return False
        return type(item) is not type(other)

    def _values_of(self, node: Node) -> frozenset[object] | None:
        """The values of a node that is a list of literals and nothing else."""
        expression = self.nodes.expression(node)
        if isinstance(expression, Leaf) and expression.finite:
            return frozenset(
                values.identity(item.text) for item in expression.types if isinstance(item, Literal)
            )
        return None


def _kind(item: Type) -> type:
    """The class of the types that can have a value with `item`."""
    return _KINDS.get(item.text[0], Number) if isinstance(item, Literal) else type(item)


def united(items: Iterable[Type], limit: int = MAX_PRODUCT) -> tuple[Type, ...]:
    """The alternatives without repetition, strings in one; GrammarError if there are too many."""
    union: dict[Type, None] = {}
    words: dict[strings.Language, None] = {}
    for item in items:
        if isinstance(item, String):
            words[item.language] = None
        else:
            union[item] = None
            if len(union) > limit:
                break
    if words:  # joined at once, as one by one takes the square of the time
        union[String(strings.disjunction(words))] = None
    if len(union) > limit:
        raise GrammarError(
            f"`allOf`, `anyOf`, `oneOf` and `not` together need more than {limit} "
            "alternatives in one place; simplify the schema"
        )
    return tuple(union)
