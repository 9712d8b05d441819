"""`Tables`: what each node of a `Graph` leads to, worked out at its first visit.

The closure of a node follows silent edges, enters the rules that it calls and steps over the rules
that may be empty, so that only edges that read something are left. Each is marked with its *owner*:
OWN if it belongs to the node's own rule, else the rule that was entered on the way.

A configuration of an embedded machine (key, counter, and the stack that the engine would keep) is a
node too, made when it is first reached.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from logitkit.grammar.ebnf.components import components
from logitkit.grammar.ebnf.graph import Graph
from logitkit.grammar.ebnf.productive import finishing, reading
from logitkit.grammar.machine import Call, Context, Expansion, Key, Move, Step, check_time

OWN = -1


class Embedded(NamedTuple):
    """A configuration of `machines[machine]`; `stack` holds (site, counter), innermost last."""

    machine: int
    key: Key
    counter: int
    stack: tuple[tuple[Key, int], ...]
    after: int  # the node where the grammar goes on once the machine's text may end


@dataclass
class Closure:
    """`spans`: (first byte, last byte, target, owner of the target). `waits`: for each rule entered
    here, where its callers go on: (target, owner)."""

    spans: list[tuple[int, int, int, int]] = field(default_factory=list)
    controls: list[tuple[str, int, int]] = field(default_factory=list)
    waits: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    slices: int = 0


class Tables:
    def __init__(self, graph: Graph, context: Context) -> None:
        self.graph = graph
        self.alphabet = context.alphabet
        self.productive = finishing(graph, context.alphabet)
        # Of nodes: whether the rule may end here, and whether something may be read before it does.
        check_time()
        self.final = finishing(graph, None)
        self.reads = reading(graph, self.productive)
        check_time()
        self.nullable = [self.final[start] for start, _ in graph.rules]
        self.alive = [self.productive[start] for start, _ in graph.rules]
        self.ends = {end for _, end in graph.rules}
        self.embedded: dict[int, Embedded] = {}
        self._numbers: dict[Embedded, int] = {}
        self._expansions: dict[tuple[int, Key], Expansion] = {}
        self._closures: dict[int, Closure] = {}
        self._static = len(graph.silent)
        self._holes = [byte for byte in range(256) if not context.alphabet[byte]]
        self._rank_rules()

    def _rank_rules(self) -> None:
        """Components of "rule X is entered at the very start of rule Y", Y before X in rank."""
        entered = []
        for start, _ in self.graph.rules:
            entered.append([] if start < 0 else sorted(set(self._entered(start))))
        self.component = components(entered)
        members: dict[int, int] = {}
        for number in self.component:
            members[number] = members.get(number, 0) + 1
        self.left_recursive = [
            members[self.component[rule]] > 1 or rule in entered[rule]
            for rule in range(len(entered))
        ]

    def _entered(self, node: int) -> Iterator[int]:
        """The rules called from a node before anything is read, not those called from them."""
        for at in self.reach(node):
            for rule, target in self.graph.calls[at]:
                if self.alive[rule] and self.productive[target]:
                    yield rule

    def reach(self, node: int) -> set[int]:
        """The nodes of the same rule that are reached from a node without reading a byte."""
        seen = {node}
        work = [node]
        while work:
            at = work.pop()
            following = list(self.graph.silent[at])
            following += [to for rule, to in self.graph.calls[at] if self.nullable[rule]]
            for machine, target in self.graph.embeds.get(at, ()):
                start = self.graph.machines[machine].start
                if self._expand(machine, start).final:
                    following.append(target)
            work += [to for to in following if to not in seen]
            seen.update(following)
        return seen

    def closure(self, node: int) -> Closure:
        found = self._closures.get(node)
        if found is None:
            found = self._closures[node] = self._close(node)
        return found

    def _close(self, node: int) -> Closure:
        closure = Closure()
        seen = {(node, OWN)}
        work = [(node, OWN)]
        while work:
            check_time()
            at, owner = work.pop()
            following = self._visit(closure, at, owner)
            for pair in following:
                if pair not in seen:
                    seen.add(pair)
                    work.append(pair)
        return closure

    def _visit(self, closure: Closure, at: int, owner: int) -> list[tuple[int, int]]:
        """Add what one node offers to the closure; the nodes to visit after it."""
        if at >= self._static:
            return self._visit_embedded(closure, at, owner)
        graph = self.graph
        following = [(to, owner) for to in graph.silent[at] if self.productive[to]]
        for low, high, to in graph.spans[at]:
            if self.productive[to]:
                target = self.resolve(to)
                for a, b in self._spelled(low, high):
                    closure.spans.append((a, b, target, owner))
        for text, to in graph.controls.get(at, ()):
            if self.productive[to]:
                closure.controls.append((text, self.resolve(to), owner))
        for rule, to in graph.calls[at]:
            if self.alive[rule] and self.productive[to]:
                waits = closure.waits.setdefault(rule, [])
                if (self.resolve(to), owner) not in waits:
                    waits.append((self.resolve(to), owner))
                following.append((graph.rules[rule][0], rule))
                if self.nullable[rule]:
                    following.append((to, owner))
        for machine, to in graph.embeds.get(at, ()):
            if self.productive[to]:
                start = Embedded(machine, graph.machines[machine].start, 0, (), self.resolve(to))
                following.append((self._node_of(start), owner))
        if at in graph.slices:
            slices, end = graph.slices[at]
            if at in self.reach(end):
                closure.slices |= slices
        return following

    def resolve(self, node: int) -> int:
        """The node that stands for this one: chains of single silent edges are cut short."""
        graph = self.graph
        seen = {node}
        while len(graph.silent[node]) == 1 and node not in self.ends:
            following = graph.silent[node][0]
            plain = not (graph.spans[node] or graph.calls[node])
            if not plain or node in graph.embeds or node in graph.controls or following in seen:
                break
            node = following
            seen.add(node)
        return node

    def _spelled(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """The parts of a byte range that some token can spell."""
        for hole in self._holes:
            if low <= hole <= high:
                if low < hole:
                    yield low, hole - 1
                low = hole + 1
        if low <= high:
            yield low, high

    # Embedded machines.

    def _expand(self, machine: int, key: Key) -> Expansion:
        found = self._expansions.get((machine, key))
        if found is None:
            found = self.graph.machines[machine].expand(key)
            self._expansions[machine, key] = found
        return found

    def _node_of(self, at: Embedded) -> int:
        """The node of a configuration, made if it is new. Far states are left at their limit."""
        limit = self._expand(at.machine, at.key).limit
        if limit is not None and at.counter >= limit:
            key, counter = self.graph.machines[at.machine].land(at.key, at.counter)
            at = at._replace(key=key, counter=counter)
        node = self._numbers.get(at)
        if node is None:
            node = self._static + len(self._numbers)
            expansion = self._expand(at.machine, at.key)
            ends = expansion.final and not at.stack
            # Numbered last, as whatever is raised on the way may leave an entry without a number.
            self.final[node:] = [ends and self.final[at.after]]
            self.reads[node:] = [bool(expansion.moves) or (ends and self.reads[at.after])]
            self.embedded[node] = at
            self._numbers[at] = node
        return node

    def _visit_embedded(self, closure: Closure, node: int, owner: int) -> list[tuple[int, int]]:
        at = self.embedded[node]
        expansion = self._expand(at.machine, at.key)
        for low, high, move in expansion.moves:
            target = self._after(at, move)
            if target is not None:
                closure.spans.append((low, high, target, owner))
        for text, move in expansion.controls:
            target = self._after(at, move)
            if target is not None:
                closure.controls.append((text, target, owner))
        if expansion.room is None:
            closure.slices |= expansion.slices
        return [(at.after, owner)] if expansion.final and not at.stack else []

    def _after(self, at: Embedded, move: Move) -> int | None:
        if isinstance(move, Step):
            counter = at.counter + move.add if move.put is None else move.put
            return self._node_of(at._replace(key=move.key, counter=counter))
        if isinstance(move, Call):
            stack = (*at.stack, (move.site, at.counter))
            return self._node_of(at._replace(key=move.key, counter=0, stack=stack))
        return self.resumed(at, move.tag)

    def resumed(self, at: Embedded, tag: Key) -> int | None:
        """The node of the caller after the innermost call of a configuration returned `tag`."""
        if not at.stack:
            return None
        site, counter = at.stack[-1]
        key = self.graph.machines[at.machine].resume(site, tag)
        if key is None:
            return None
        return self._node_of(at._replace(key=key, counter=counter, stack=at.stack[:-1]))
