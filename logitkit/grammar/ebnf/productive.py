"""Which nodes of a graph can be finished, and which can be finished without reading a byte."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from logitkit.grammar.ebnf.graph import Graph


class _Backward:
    """The edges of a graph by target, as chains in flat lists: a graph may have many nodes."""

    def __init__(self, count: int) -> None:
        self._last = [-1] * count
        self._source: list[int] = []
        self._rule: list[int] = []
        self._previous: list[int] = []

    def add(self, source: int, target: int, rule: int = -1) -> None:
        """An edge, which may be walked once `rule` (if any) can be passed."""
        self._source.append(source)
        self._rule.append(rule)
        self._previous.append(self._last[target])
        self._last[target] = len(self._source) - 1

    def into(self, target: int) -> Iterator[tuple[int, int]]:
        """(source, rule) of each edge."""
        edge = self._last[target]
        while edge >= 0:
            yield self._source[edge], self._rule[edge]
            edge = self._previous[edge]


def finishing(graph: Graph, alphabet: Sequence[bool] | None) -> list[bool]:
    """Whether each node reaches the end of its rule.

    By bytes of `alphabet`; with None, by reading nothing at all. Control tokens do not count: a
    vocabulary may lack them.
    """
    edges = _edges(graph, alphabet)
    starts: dict[int, list[int]] = {}
    for rule, (start_node, _) in enumerate(graph.rules):
        starts.setdefault(start_node, []).append(rule)
    passed = [False] * len(graph.rules)
    waiting: list[list[int]] = [[] for _ in graph.rules]
    found = [False] * len(graph.silent)
    work = [end for _, end in graph.rules]
    while work:
        node = work.pop()
        if found[node]:
            continue
        found[node] = True
        for rule in starts.get(node, ()):
            passed[rule] = True
            work += waiting[rule]
        for caller, rule in edges.into(node):
            if rule < 0 or passed[rule]:
                work.append(caller)
            else:
                waiting[rule].append(caller)
    return found


def _edges(graph: Graph, alphabet: Sequence[bool] | None) -> _Backward:
    edges = _Backward(len(graph.silent))
    for node, targets in enumerate(graph.silent):
        for target in targets:
            edges.add(node, target)
        for rule, target in graph.calls[node]:
            edges.add(node, target, rule)
        if alphabet is not None:
            for low, high, target in graph.spans[node]:
                if True in alphabet[low : high + 1]:
                    edges.add(node, target)
    for node, embeds in graph.embeds.items():
        for machine, target in embeds:
            embedded = graph.machines[machine]
            if alphabet is not None or embedded.expand(embedded.start).final:
                edges.add(node, target)
    return edges


def reading(graph: Graph, productive: Sequence[bool]) -> list[bool]:
    """Whether something may be read between each node and the end of its rule."""
    edges = _Backward(len(graph.silent))
    work = []
    for node, targets in enumerate(graph.silent):
        if not productive[node]:
            continue
        if any(productive[to] for _, _, to in graph.spans[node]):
            work.append(node)
        for to in targets:
            edges.add(node, to)
        for rule, to in graph.calls[node]:
            start = graph.rules[rule][0]
            if productive[start] and productive[to]:
                edges.add(node, to)
                edges.add(node, start)
    work += [n for n, embeds in graph.embeds.items() if any(productive[to] for _, to in embeds)]
    found = [False] * len(graph.silent)
    while work:
        node = work.pop()
        if not found[node]:
            found[node] = True
            work += [source for source, _ in edges.into(node)]
    return found
