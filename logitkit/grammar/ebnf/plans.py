"""`Plans`: what a set of nodes leads to, whatever their returns; worked out once for each set."""

from __future__ import annotations

from typing import NamedTuple

from logitkit.grammar.ebnf.tables import OWN, Tables
from logitkit.grammar.machine import check_time

# (source, node): the item that goes on at `node` with the return of `source`, which is the place of
# an item in the state or, after those, the place of an entered rule.
Target = tuple[int, int]


class Entered(NamedTuple):
    """A rule that the state enters."""

    rule: int
    waits: tuple[Target, ...]  # where its callers go on
    origins: tuple[int, ...]  # the items of the state that led to it


class Plan(NamedTuple):
    entered: tuple[Entered, ...]  # callers before callees, but within a left recursion
    groups: tuple[tuple[Target, ...], ...]  # what one byte leads to
    cells: tuple[tuple[int, int, int], ...]  # (first byte, last byte, group)
    controls: tuple[tuple[str, int], ...]
    slices: int


class Plans:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._plans: dict[tuple[int, ...], Plan] = {}

    def of(self, nodes: tuple[int, ...]) -> Plan:
        plan = self._plans.get(nodes)
        if plan is None:
            plan = self._plans[nodes] = self._make(nodes)
        return plan

    def _make(self, nodes: tuple[int, ...]) -> Plan:
        closures = [self._tables.closure(node) for node in nodes]
        component = self._tables.component
        rules = sorted(
            {rule for closure in closures for rule in closure.waits},
            key=lambda rule: (-component[rule], rule),
        )
        place = {rule: len(nodes) + number for number, rule in enumerate(rules)}

        def source(index: int, owner: int) -> int:
            return index if owner == OWN else place[owner]

        entered = []
        for rule in rules:
            check_time()
            waits = [
                (source(index, owner), node)
                for index, closure in enumerate(closures)
                for node, owner in closure.waits.get(rule, ())
            ]
            origins = [i for i, closure in enumerate(closures) if rule in closure.waits]
            entered.append(Entered(rule, tuple(dict.fromkeys(waits)), tuple(origins)))
        groups: dict[tuple[Target, ...], int] = {}
        spans = [
            (low, high, (source(index, owner), node))
            for index, closure in enumerate(closures)
            for low, high, node, owner in closure.spans
        ]
        cells = _cells(spans, groups)
        by_text: dict[str, set[Target]] = {}
        slices = 0
        for index, closure in enumerate(closures):
            slices |= closure.slices
            for text, node, owner in closure.controls:
                by_text.setdefault(text, set()).add((source(index, owner), node))
        controls = [
            (text, groups.setdefault(tuple(sorted(targets)), len(groups)))
            for text, targets in sorted(by_text.items())
        ]
        return Plan(tuple(entered), tuple(groups), tuple(cells), tuple(controls), slices)


def _cells(
    spans: list[tuple[int, int, Target]], groups: dict[tuple[Target, ...], int]
) -> list[tuple[int, int, int]]:
    """Overlapping byte ranges as disjoint ones, each with the group of all its targets."""
    opens: dict[int, list[Target]] = {}
    closes: dict[int, list[Target]] = {}
    for low, high, target in spans:
        opens.setdefault(low, []).append(target)
        closes.setdefault(high + 1, []).append(target)
    cells: list[tuple[int, int, int]] = []
    active: dict[Target, int] = {}
    previous = 0
    for edge in sorted({*opens, *closes}):
        check_time()
        if active:
            group = groups.setdefault(tuple(sorted(active)), len(groups))
            if cells and cells[-1][1] == previous - 1 and cells[-1][2] == group:
                cells[-1] = (cells[-1][0], edge - 1, group)
            else:
                cells.append((previous, edge - 1, group))
        for target in closes.get(edge, ()):
            active[target] -= 1
            if not active[target]:
                del active[target]
        for target in opens.get(edge, ()):
            active[target] = active.get(target, 0) + 1
        previous = edge
    return cells
