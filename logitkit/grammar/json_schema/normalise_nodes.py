"""The nodes of a schema being normalised: expressions, made once each and opened on demand.

A node is an expression over other nodes. `Raw` is a schema of the document that nobody has looked
into yet; opening it compiles its keywords (`keywords`), so only what is reached costs anything.
`conj`, `disj` and `neg` build expressions with the obvious simplifications; `normalise_union` turns
opened expressions into unions of types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from logitkit.errors import GrammarError
from logitkit.grammar.json_schema.merge_scalar import holds_literal, is_word_of
from logitkit.grammar.json_schema.normalise_expressions import (
    EVERYTHING,
    Alias,
    And,
    Expression,
    Leaf,
    Not,
    OneOf,
    Opened,
    Or,
    Raw,
)
from logitkit.grammar.json_schema.references import Place
from logitkit.grammar.json_schema.types import ANYTHING, NEVER, Array, Literal, Node, Object
from logitkit.grammar.machine import Budget, check_time
from logitkit.grammar.strings import Language


class Nodes:
    """The table of nodes. `compiler` opens a `Raw` node."""

    def __init__(self, compiler: Callable[[Place], Expression], budget: Budget) -> None:
        self._compiler = compiler
        self.budget = budget
        self._expressions: list[Expression] = [Leaf(()), Leaf(EVERYTHING)]
        self._origins: dict[Node, Place] = {}
        self._known: dict[object, Node] = {Leaf(()): NEVER, Leaf(EVERYTHING): ANYTHING}
        self._opening: set[Node] = set()
        self._opposites: dict[Node, Node] = {}
        self._ranks: dict[str, int] = {}
        self.never_empty: set[Language] = set()  # lengths and formats: some are slow to decide

    def __len__(self) -> int:
        return len(self._expressions)

    def add(self, expression: Expression, identity: object = None) -> Node:
        """The node of `expression`; equal ones (or equal identities) share a node."""
        key = expression if identity is None else identity
        node = self._known.get(key)
        if node is None:
            node = len(self._expressions)
            self._expressions.append(expression)
            self._known[key] = node
            if node % 64 == 0:
                check_time()
            if node > self.budget.states:
                self.budget.exceeded("states", self.budget.states)
        return node

    def raw(self, place: Place) -> Node:
        """The node of the schema at `place`, which is opened when somebody asks for it."""
        value = place.value
        if isinstance(value, bool):
            return ANYTHING if value else NEVER
        if isinstance(value, dict) and not value:
            return ANYTHING
        return self.add(Raw(place), (id(value), place.resource.uri))

    def conj(self, nodes: Iterable[Node]) -> Node:
        """The node of the values that fit all of `nodes`."""
        parts = self._flattened(nodes, And, ANYTHING)
        if len(parts) > 1 and not self._opening:
            parts = self._flattened(map(self.resolve, parts), And, ANYTHING)
        if NEVER in parts:
            return NEVER
        if len(parts) < 2:
            return next(iter(parts), ANYTHING)
        if any(self._opposite(part) in parts for part in parts):
            return NEVER
        literals = None if self._opening else self._literals_of(parts)
        return self.add(And(tuple(parts)) if literals is None else literals)

    def _literals_of(self, parts: Iterable[Node]) -> Leaf | None:
        """The intersection of leaves one of which lists plain values; None for anything else."""
        chosen: Leaf | None = None
        others: list[tuple[Leaf, bool]] = []
        for part in parts:
            expression = self.expression(part)
            wanted = type(expression) is not Not
            leaf = self.negated_leaf(expression) if type(expression) is Not else expression
            if type(leaf) is not Leaf:
                return None
            if chosen is None and wanted and leaf.plain:
                chosen = leaf
            else:
                others.append((leaf, wanted))
        if chosen is None:
            return None
        left = [item for item in chosen.types if isinstance(item, Literal)]
        for leaf, wanted in others:
            left = [item for item in left if holds_literal(leaf.types, item) == wanted]
            if not wanted and leaf.doubt is not None:
                left = [item for item in left if not is_word_of(leaf.doubt, item)]
        return Leaf(tuple(left))

    def disj(self, nodes: Iterable[Node]) -> Node:
        """The node of the values that fit one of `nodes`."""
        parts = self._flattened(nodes, Or, NEVER)
        if ANYTHING in parts:
            return ANYTHING
        if len(parts) < 2:
            return next(iter(parts), NEVER)
        return self.add(Or(tuple(parts)))

    def _flattened(
        self, nodes: Iterable[Node], kind: type[And] | type[Or], neutral: Node
    ) -> dict[Node, None]:
        """`nodes` in order, each once, with those of the same kind opened out."""
        parts: dict[Node, None] = {}
        for node in nodes:
            expression = self._expressions[node]
            inner = expression.nodes if isinstance(expression, kind) else (node,)
            parts.update((part, None) for part in inner if part != neutral)
        return parts

    def _opposite(self, node: Node) -> Node | None:
        """The node that is known to be the complement of `node`."""
        opposite = self._opposites.get(node)
        if opposite is None or self._opening:
            return opposite
        return self.resolve(opposite)

    def neg(self, node: Node) -> Node:
        """The node of the values that do not fit `node`."""
        if not self._opening:
            node = self.resolve(node)
        if node in (NEVER, ANYTHING):
            return ANYTHING if node == NEVER else NEVER
        expression = self._expressions[node]
        if type(expression) is Not:
            return expression.node
        if type(expression) is And:
            return self.disj(map(self.neg, expression.nodes))
        if type(expression) is Or:
            return self.conj(map(self.neg, expression.nodes))
        opposite = self.add(Not(node))
        self._opposites.setdefault(node, opposite)
        self._opposites[opposite] = node
        return opposite

    def expression(self, node: Node) -> Opened:
        """The opened expression of `node`: neither `Raw` nor `Alias`; `Not` only of a leaf."""
        node = self.resolve(node)
        expression = self._expressions[node]
        assert not isinstance(expression, Raw | Alias)
        return self._open_not(node, expression) if isinstance(expression, Not) else expression

    def resolve(self, node: Node) -> Node:
        """The node at the end of a chain of aliases; NEVER where they go round in a circle."""
        seen: set[Node] = set()
        while True:
            expression = self._expressions[node]
            if type(expression) is Raw:
                expression = self._open(node, expression.place)
            if type(expression) is not Alias:
                return node
            if node in seen:
                return NEVER
            seen.add(node)
            node = expression.node

    def _open(self, node: Node, place: Place) -> Expression:
        if node in self._opening:
            raise GrammarError(
                "`propertyNames` leads back to the schema that it belongs to; write it out",
                place.pointer,
            )
        self._opening.add(node)
        expression = self._compiler(place)
        self._opening.discard(node)
        self.mark(node, place)
        if type(expression) is Leaf:
            same = self._known.setdefault(expression, node)
            if same != node:  # schemas that say the same become one
                expression = Alias(same)
        if type(expression) is Alias:
            self.mark(expression.node, place)
        self._expressions[node] = expression
        return expression

    def _open_not(self, node: Node, negation: Not) -> Opened:
        """Push the negation inwards until it stands before a leaf."""
        inner = self.expression(negation.node)
        result: Node
        if type(inner) is Leaf:
            if not inner.types or inner.types == EVERYTHING:
                return Leaf(()) if inner.types else Leaf(EVERYTHING)
            return Not(self.resolve(negation.node))
        if type(inner) is And:
            result = self.disj([self.neg(part) for part in inner.nodes])
        elif type(inner) is Or:
            result = self.conj([self.neg(part) for part in inner.nodes])
        elif type(inner) is OneOf:
            none = self.conj([self.neg(part) for part in inner.nodes])
            pairs = [
                self.conj([first, second])
                for position, first in enumerate(inner.nodes)
                for second in inner.nodes[:position]
            ]
            result = self.disj([none, *pairs])
        else:
            assert type(inner) is Not
            result = inner.node
        self._expressions[node] = Alias(result)
        self._opposites.setdefault(result, self.resolve(negation.node))
        return self.expression(result)

    def is_flat(self, node: Node) -> bool:
        """Whether `node` is made of leaves without arrays and objects; False also if unopened."""
        pending = [node]
        while pending:
            expression = self._expressions[pending.pop()]
            if isinstance(expression, And | Or):
                pending += expression.nodes
            elif isinstance(expression, Alias | Not):
                pending.append(expression.node)
            elif not isinstance(expression, Leaf) or any(
                isinstance(item, Array | Object) for item in expression.types
            ):
                return False
        return True

    def negated_leaf(self, negation: Not) -> Leaf:
        """The leaf under an opened `Not`."""
        leaf = self.expression(negation.node)
        assert type(leaf) is Leaf
        return leaf

    def peek(self, node: Node) -> Expression:
        """The expression of `node` as it is, opened or not."""
        return self._expressions[node]

    def mention(self, names: Iterable[str]) -> None:
        """Remember the order in which `required` names the members first."""
        for name in names:
            self._ranks.setdefault(name, len(self._ranks))

    def rank(self, name: str) -> tuple[int, str]:
        """The place of a required name that is not declared among the others."""
        return (self._ranks.get(name, len(self._ranks)), name)

    def mark(self, node: Node, place: Place) -> None:
        """Remember that the schema at `place` became `node`."""
        if node not in (NEVER, ANYTHING):
            self._origins.setdefault(node, place)

    def origin(self, node: Node) -> Place | None:
        """The place of the schema that became `node`, if one did."""
        return self._origins.get(node)
