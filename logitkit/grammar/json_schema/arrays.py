"""`ArrayPlan`: which items an `Array` may have next and when it may end, for `machine`.

`extra` is what must be remembered of the items so far beside their number: how many fit each
`contains` (as far as it matters), and which literals were used where items are unique.
"""

from __future__ import annotations

from typing import Protocol

from logitkit.errors import GrammarError
from logitkit.grammar.json_schema.types import Array, Contains, Node

Extra = tuple[tuple[int, ...], frozenset[int]]
Option = tuple[Node, Extra]
MOST_WAYS = 20_000  # of going on that are followed to see whether an array can be finished


class Nodes(Protocol):
    """What plans ask about nodes. Nodes below zero are literals."""

    def alive(self, node: Node) -> bool:
        """Whether some value of the node can be spelled."""

    def both(self, first: Node, second: Node) -> Node:
        """The node of the values that fit both."""

    def literals(self, node: Node) -> tuple[Node, ...]:
        """The literals that a node of literals is the union of."""


class ArrayPlan:
    """One `Array`. `last`: the largest number of items; `bounds`: where behaviour changes."""

    def __init__(self, array: Array, nodes: Nodes) -> None:
        self._array = array
        self._nodes = nodes
        self.simple = not array.contains and not array.unique
        kinds = (*array.prefix, array.rest)
        dead = next((i for i, node in enumerate(kinds) if not nodes.alive(node)), None)
        lasts = [last for last in (dead, array.max_items) if last is not None]
        self.last = min(lasts, default=None)
        self.start: Extra = ((0,) * len(array.contains), frozenset())
        self._finish: dict[tuple[int, Extra], bool] = {}
        bounds = {len(array.prefix), array.min_items, self.last or 0}
        self.bounds = tuple(sorted(bound - 1 for bound in bounds if bound))

    @property
    def alive(self) -> bool:
        return self._can_finish(0, self.start)

    def ends(self, count: int, extra: Extra) -> bool:
        """Whether `]` may follow `count` items."""
        array = self._array
        enough = array.min_items <= count and all(
            seen >= want.minimum for seen, want in zip(extra[0], array.contains, strict=True)
        )
        return enough and (self.last is None or count <= self.last)

    def options(self, count: int, extra: Extra) -> list[Option]:
        """The nodes that item number `count` may have, each with the extra after it."""
        if self.last is not None and count >= self.last:
            return []
        if self.simple:
            return [(self._node(count), extra)]
        return [
            option for option in self._all(count, extra) if self._can_finish(count + 1, option[1])
        ]

    def _node(self, count: int) -> Node:
        prefix = self._array.prefix
        return prefix[count] if count < len(prefix) else self._array.rest

    def _all(self, count: int, extra: Extra) -> list[Option]:
        """Like `options`, with dead ends."""
        counts, used = extra
        found: list[tuple[Node, tuple[int, ...]]] = [(self._node(count), ())]
        for want, seen in zip(self._array.contains, counts, strict=True):
            found = [
                (node, (*before, after))
                for base, before in found
                for node, after in self._contained(base, want, seen)
                if self._nodes.alive(node)
            ]
        if not self._array.unique:
            return [(node, (after, used)) for node, after in found]
        return [
            (literal, (after, used | {literal}))
            for node, after in found
            for literal in self._nodes.literals(node)
            if literal not in used
        ]

    def _contained(self, base: Node, want: Contains, seen: int) -> list[tuple[Node, int]]:
        """The ways for an item of `base` to fit `want` or not, and the number of fits after it."""
        both = self._nodes.both
        if want.maximum is None:
            if seen >= want.minimum:
                return [(base, seen)]
            return [(base, seen), (both(base, want.node), seen + 1)]
        assert want.rest is not None
        found = [(both(base, want.rest), seen)]
        if seen < want.maximum:
            found.append((both(base, want.node), seen + 1))
        return found

    def _can_finish(self, count: int, extra: Extra) -> bool:
        """Whether `count` items can be made a whole array."""
        if self.simple:
            return self.last is None or max(count, self._array.min_items) <= self.last
        if self._array.unique:  # literals and nothing else: all that are left may come
            assert not self._array.contains and not self._array.prefix
            most = count + len(self._nodes.literals(self._array.rest)) - len(extra[1])
            most = most if self.last is None else min(most, self.last)
            return max(count, self._array.min_items) <= most
        key = (count, extra)
        if key not in self._finish:
            self._finish[key] = self._search(count, extra)
        return self._finish[key]

    def _search(self, count: int, extra: Extra) -> bool:
        """Follow all ways to go on, breadth first, until it is plain how they end.

        Past the prefix the ways repeat: once a step changes nothing, none ever will, and the
        smallest number of items is as good as reached.
        """
        now = {extra}
        ways = 0
        while now:
            if any(self.ends(count, each) for each in now):
                return True
            if self.last is not None and count >= self.last:
                return False
            if count >= len(self._array.prefix):
                plain = [self._plainly(count, each[0]) for each in now]
                if True in plain or None not in plain:
                    return True in plain
            after = {option[1] for each in now for option in self._all(count, each)}
            if after == now and count >= len(self._array.prefix):
                low = self._array.min_items
                return (self.last is None or low <= self.last) and any(
                    self.ends(max(count, low), each) for each in now
                )
            now, count = after, count + 1
            ways += len(now)
            if ways > MOST_WAYS:
                raise GrammarError(
                    f"`contains`, `minItems` and `maxItems` can be met in more than {MOST_WAYS} "
                    "ways; use fewer `contains` or smaller bounds"
                )
        return False

    def _plainly(self, count: int, fits: tuple[int, ...]) -> bool | None:
        """Whether `count` items, of which so many fit each `contains`, can be made a whole array;
        None if that takes following the ways. All that are to come are of `rest`, which is alive
        where there is room for one."""
        array, alive = self._array, self._nodes.alive
        room = None if self.last is None else self.last - count
        low = max(0, array.min_items - count)
        wants = array.contains
        needs = [max(0, want.minimum - seen) for seen, want in zip(fits, wants, strict=True)]
        fitting = [alive(self._nodes.both(array.rest, want.node)) for want in wants]
        if any(need and not fit for need, fit in zip(needs, fitting, strict=True)):
            return False
        if room is not None and max(low, *needs) > room:
            return False
        if all(want.maximum is None for want in wants):
            return True if room is None or sum(needs) <= room else None
        if len(wants) > 1:
            return None
        want, seen = wants[0], fits[0]
        assert want.maximum is not None and want.rest is not None
        most = want.maximum - seen  # that may still fit
        if needs[0] > most:
            return False
        return low <= (most if fitting[0] else 0) or alive(self._nodes.both(array.rest, want.rest))

    def prune(self, extras: set[Extra]) -> set[Extra]:
        """Without those that another one can only better: where nothing limits the fits, more."""
        if len(extras) < 2 or any(want.maximum is not None for want in self._array.contains):
            return extras
        return {
            extra
            for extra in extras
            if not any(other != extra and _better(other, extra) for other in extras)
        }


def _better(first: Extra, second: Extra) -> bool:
    same = first[1] == second[1]
    return same and all(a >= b for a, b in zip(first[0], second[0], strict=True))
