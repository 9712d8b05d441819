"""`Graph`: the rules of a grammar as one nondeterministic graph, built from fragments.

A node has silent edges, edges that read a byte in a range, edges that call a rule, edges that run
another machine (`embed`) and edges that take a control token whole. A rule is a start node and an
end node. A fragment is a piece of the graph between two nodes; its nodes are consecutive, so a
repeat or an inlined rule is a shifted copy of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from logitkit.grammar.ebnf import utf8
from logitkit.grammar.machine import Budget, Machine, check_time
from logitkit.grammar.strings.charset import CharSet


class Fragment(NamedTuple):
    """Nodes `first` to `stop` - 1; nothing leaves `end` until the fragment is put to use."""

    first: int
    stop: int
    start: int
    end: int


class Graph:
    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.silent: list[tuple[int, ...]] = []
        self.spans: list[tuple[tuple[int, int, int], ...]] = []  # first byte, last byte, target
        self.calls: list[tuple[tuple[int, int], ...]] = []  # rule, target
        self.embeds: dict[int, list[tuple[int, int]]] = {}  # machine, target
        self.controls: dict[int, list[tuple[str, int]]] = {}  # text of the token, target
        self.slices: dict[int, tuple[int, int]] = {}  # start of a class -> its slices, its end
        self.rules: list[tuple[int, int]] = []  # start, end
        self.machines: list[Machine] = []

    def add_node(self) -> int:
        self.silent.append(())
        self.spans.append(())
        self.calls.append(())
        return len(self.silent) - 1

    def link(self, node: int, *targets: int) -> None:
        """Silent edges from a node."""
        self.silent[node] += targets

    def declare_rule(self) -> int:
        """A rule to be defined later; it may already be called."""
        self.rules.append((-1, -1))
        return len(self.rules) - 1

    def define_rule(self, rule: int, body: Fragment) -> None:
        self.rules[rule] = (body.start, body.end)

    # Fragments. Those passed to one call were made in order, with nothing made in between.

    def empty(self) -> Fragment:
        node = self.add_node()
        return Fragment(node, node + 1, node, node)

    def literal(self, data: bytes) -> Fragment:
        self._check_size(len(data))
        start = node = self.add_node()
        for byte in data:
            following = self.add_node()
            self.spans[node] = ((byte, byte, following),)
            node = following
        return Fragment(start, node + 1, start, node)

    def chars(self, points: CharSet) -> Fragment:
        """One character of the set."""
        self._check_size(1)
        start, end = self.add_node(), self.add_node()
        tails: dict[tuple[utf8.ByteRanges, ...], int] = {((),): end}
        pending = [(start, tuple(utf8.byte_sequences(points)))]
        while pending:
            node, sequences = pending.pop()
            heads: dict[tuple[int, int], list[utf8.ByteRanges]] = {}
            for sequence in sequences:
                heads.setdefault(sequence[0], []).append(sequence[1:])
            for (low, high), rest in heads.items():
                tail = tuple(rest)
                if tail not in tails:
                    tails[tail] = self.add_node()
                    pending.append((tails[tail], tail))
                self.spans[node] += ((low, high, tails[tail]),)
        if slices := utf8.slices_in(points):
            self.slices[start] = (slices, end)
        return Fragment(start, len(self.silent), start, end)

    def call(self, rule: int) -> Fragment:
        start, end = self.add_node(), self.add_node()
        self.calls[start] = ((rule, end),)
        return Fragment(start, end + 1, start, end)

    def embed(self, machine: Machine) -> Fragment:
        """The texts of another machine."""
        start, end = self.add_node(), self.add_node()
        self.machines.append(machine)
        self.embeds[start] = [(len(self.machines) - 1, end)]
        return Fragment(start, end + 1, start, end)

    def join(self, parts: Sequence[Fragment]) -> Fragment:
        """The parts one after the other."""
        if not parts:
            return self.empty()
        for left, right in pairwise(parts):
            self.link(left.end, right.start)
        return Fragment(parts[0].first, parts[-1].stop, parts[0].start, parts[-1].end)

    def either(self, parts: Sequence[Fragment]) -> Fragment:
        """One of the parts."""
        if len(parts) == 1:
            return parts[0]
        start, end = self.add_node(), self.add_node()
        self.link(start, *(part.start for part in parts))
        for part in parts:
            self.link(part.end, end)
        return Fragment(parts[0].first if parts else start, end + 1, start, end)

    def repeat(self, body: Fragment, least: int, most: int | None) -> Fragment:
        """The body `least` to `most` times (None: without end)."""
        if most == 0:
            node = self.add_node()
            return Fragment(body.first, node + 1, node, node)
        if least == 0 and most is None:
            start, end = self.add_node(), self.add_node()
            self.link(start, body.start, end)
            self.link(body.end, start)  # so every turn of the loop ends where it began
            return Fragment(body.first, end + 1, start, end)
        bodies = [body]
        count = max(least, 1) if most is None else most
        for _ in range(count - 1):
            bodies.append(self.copy(body))
        start, end = (self.add_node() if least == 0 else body.start), self.add_node()
        if least == 0:
            self.link(start, body.start, end)
        for done, part in enumerate(bodies, 1):
            if done < count:
                self.link(part.end, bodies[done].start)
            elif most is None:
                self.link(part.end, part.start)
            if done >= least:
                self.link(part.end, end)
        return Fragment(body.first, end + 1, start, end)

    def copy(self, body: Fragment) -> Fragment:
        self._check_size(body.stop - body.first)
        shift = len(self.silent) - body.first
        part = slice(body.first, body.stop)
        self.silent += [tuple([to + shift for to in edges]) for edges in self.silent[part]]
        self.spans += [
            tuple([(low, high, to + shift) for low, high, to in edges])
            for edges in self.spans[part]
        ]
        self.calls += [
            tuple([(rule, to + shift) for rule, to in edges]) for edges in self.calls[part]
        ]
        for node in range(body.first, body.stop):
            if node in self.slices:
                slices, end = self.slices[node]
                self.slices[node + shift] = (slices, end + shift)
            if node in self.embeds:
                self.embeds[node + shift] = [(m, to + shift) for m, to in self.embeds[node]]
            if node in self.controls:
                self.controls[node + shift] = [(c, to + shift) for c, to in self.controls[node]]
        return Fragment(*(place + shift for place in body))

    def _check_size(self, more: int) -> None:
        if len(self.silent) + more > self.budget.states:
            self.budget.exceeded("states", self.budget.states)
        check_time()
