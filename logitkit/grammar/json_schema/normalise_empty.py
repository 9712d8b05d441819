"""Which nodes have no value: a least fixpoint over what members and items require.

A node has a value if one of its alternatives has, and that needs only required members and items,
so recursion without an end (a list that must contain itself) is empty.
"""

from __future__ import annotations

from dataclasses import replace

from logitkit.grammar.json_schema.merge_scalar import is_empty_number
from logitkit.grammar.json_schema.normalise_array import array_needs, settle_array
from logitkit.grammar.json_schema.normalise_nodes import Nodes
from logitkit.grammar.json_schema.normalise_object import (
    Dead,
    declare,
    finish,
    object_needs,
    settle_object,
)
from logitkit.grammar.json_schema.normalise_union import Unions, Unmade
from logitkit.grammar.json_schema.types import (
    ANYTHING,
    NEVER,
    Array,
    Node,
    Number,
    Object,
    String,
    Type,
)
from logitkit.grammar.machine import check_time
from logitkit.grammar.strings import ANY, is_empty

_MAX_QUESTIONS = 4  # emptiness asked while unions are being made, within each other


class Emptiness:
    """Answers for the nodes of one schema; what is certain is kept."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.unions = Unions(nodes, self.surely_empty)
        self._empty: dict[Node, bool] = {NEVER: True, ANYTHING: False}
        self._finished: dict[Node, tuple[Type, ...]] = {}
        self._strings: dict[String, bool] = {}
        self._questions = 0

    def finished(self, node: Node) -> tuple[Type, ...]:
        """The alternatives of `node` with their objects finished; some may be empty."""
        node = self.nodes.resolve(node)
        known = self._finished.get(node)
        if known is None:
            types: dict[Type, None] = {}
            for item in self.unions.types(node):
                if isinstance(item, Object):
                    types.update(dict.fromkeys(finish(self.nodes, item)))
                else:
                    types[item] = None
            known = self._finished[node] = tuple(types)
        return known

    def is_empty(self, node: Node) -> bool:
        """Whether no finite value fits `node`; GrammarError where its union leads to itself."""
        node = self.nodes.resolve(node)
        while node not in self._empty:
            for one in self._explore([node]):  # unknown as long as some union cannot be made
                try:
                    self.finished(one)
                except Unmade as error:
                    self.unions.refuse_circle(error.node)
        return self._empty[node]

    def surely_empty(self, item: Type) -> bool:
        """Whether `item` is empty whatever the unions turn out to be that are being made."""
        if isinstance(item, String):
            return False
        if isinstance(item, Object):
            item = replace(declare(self.nodes, item), some=())  # as if they could always be met
            if self._lacks_member(item):
                return True
        needs = self._needs(item)
        if needs and self._questions >= _MAX_QUESTIONS:
            return False
        self._questions += 1
        try:
            unknown = self._explore(needs)
        finally:
            self._questions -= 1
        return self.settle(item, lambda node: self._is_dead(node, unknown)) is None

    def _lacks_member(self, obj: Object) -> bool:
        """Whether a required member without arrays and objects has no value: the cheap question,
        which tells most options of a `oneOf` apart."""
        for name, node in obj.properties:
            if name in obj.required and self.nodes.is_flat(node):
                types = self.unions.types(node)
                if all(self._is_void(item) for item in types):
                    return True
        return False

    def _is_void(self, item: Type) -> bool:
        return isinstance(item, String) and self._is_empty_string(item)

    def settle(self, item: Type, dead: Dead) -> Type | None:
        """`item` without what is dead; None if nothing is left."""
        if isinstance(item, Object):
            return settle_object(self.nodes, item, dead)
        if isinstance(item, Array):
            return settle_array(self.nodes, item, dead)
        if isinstance(item, String) and self._is_empty_string(item):
            return None
        if isinstance(item, Number) and is_empty_number(item):
            return None
        return item

    def _is_dead(self, node: Node, unknown: set[Node]) -> bool:
        node = self.nodes.resolve(node)
        return node not in unknown and self._empty.get(node, False)

    def _is_empty_string(self, item: String) -> bool:
        if item.language == ANY or item.language in self.nodes.never_empty:
            return False
        known = self._strings.get(item)
        if known is None:
            known = self._strings[item] = is_empty(item.language)
        return known

    def _needs(self, item: Type) -> list[Node]:
        if isinstance(item, Object):
            return object_needs(self.nodes, item)
        return array_needs(self.nodes, item) if isinstance(item, Array) else []

    def _explore(self, roots: list[Node]) -> set[Node]:
        """Decide `roots` and all that they need. Returns the nodes that stay unknown, because
        unions that are being made stand behind them; they count as not empty for now."""
        order: dict[Node, list[Type]] = {}
        alive: set[Node] = set()
        unmade: set[Node] = set()
        pending = [self.nodes.resolve(node) for node in roots]
        while pending:
            node = pending.pop()
            if node in order or node in self._empty or node in unmade:
                continue
            try:
                types = self.finished(node)
            except Unmade:
                unmade.add(node)
                continue
            if any(self._has_value_alone(item) for item in types):
                self._empty[node] = False
                continue
            order[node] = list(types)
            for item in types:
                pending += [self.nodes.resolve(need) for need in self._needs(item)]
            check_time()
        self._grow(order, alive, unmade)
        sure = alive
        if unmade:
            sure = set()
            self._grow(order, sure, set())
        for node in order:
            if node not in alive or node in sure:
                self._empty[node] = node not in alive
        return (alive - sure) | unmade

    def _has_value_alone(self, item: Type) -> bool:
        """Whether `item` has a value that needs no other node; False also where it is costly."""
        if isinstance(item, String):
            return item.language == ANY or item.language in self.nodes.never_empty
        if isinstance(item, Object | Array):
            return not self._needs(item) and self.settle(item, self._known_dead) is not None
        return True

    def _known_dead(self, node: Node) -> bool:
        return self._empty.get(self.nodes.resolve(node), False)

    def _grow(self, order: dict[Node, list[Type]], alive: set[Node], unmade: set[Node]) -> None:
        """Add to `alive` every node of `order` that has a value, given `alive` and `unmade`."""

        def dead(node: Node) -> bool:
            node = self.nodes.resolve(node)
            if node in alive or node in unmade:
                return False
            return True if node in order else self._empty.get(node, False)

        grown = True
        while grown:
            grown = False
            for node in reversed(order):
                if node in alive:
                    continue
                if any(self.settle(item, dead) is not None for item in order[node]):
                    alive.add(node)
                    grown = True
            check_time()
