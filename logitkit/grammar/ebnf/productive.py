"""Which nodes of a graph can be finished, and which can be finished without reading a byte."""

from __future__ import annotations

from collections.abc import Sequence

from logitkit.grammar.ebnf.graph import Graph


def finishing(graph: Graph, alphabet: Sequence[bool] | None) -> list[bool]:
    """Whether each node reaches the end of its rule.

    By bytes of `alphabet`; with None, by reading nothing at all. Control tokens do not count: a
    vocabulary may lack them.
    """
    count = len(graph.silent)
    before: list[list[tuple[int, int]]] = [[] for _ in range(count)]  # (node, rule to pass or -1)
    for node in range(count):
        for target in graph.silent[node]:
            before[target].append((node, -1))
        for rule, target in graph.calls[node]:
            before[target].append((node, rule))
        for machine, target in graph.embeds.get(node, ()):
            start = graph.machines[machine]
            if alphabet is not None or start.expand(start.start).final:
                before[target].append((node, -1))
        if alphabet is not None:
            for low, high, target in graph.spans[node]:
                if any(alphabet[low : high + 1]):
                    before[target].append((node, -1))
    starts: dict[int, list[int]] = {}
    for rule, (start_node, _) in enumerate(graph.rules):
        starts.setdefault(start_node, []).append(rule)
    passed = [False] * len(graph.rules)
    waiting: list[list[int]] = [[] for _ in graph.rules]
    found = [False] * count
    work = [end for _, end in graph.rules]
    while work:
        node = work.pop()
        if found[node]:
            continue
        found[node] = True
        for rule in starts.get(node, ()):
            passed[rule] = True
            work += waiting[rule]
        for caller, rule in before[node]:
            if rule < 0 or passed[rule]:
                work.append(caller)
            else:
                waiting[rule].append(caller)
    return found


def reading(graph: Graph, productive: Sequence[bool]) -> list[bool]:
    """Whether something may be read between each node and the end of its rule."""
    count = len(graph.silent)
    before: list[list[int]] = [[] for _ in range(count)]
    work = []
    for node in range(count):
        if not productive[node]:
            continue
        targets = [to for _, _, to in graph.spans[node]]
        targets += [to for _, to in graph.embeds.get(node, ())]
        if any(productive[to] for to in targets):
            work.append(node)
        for to in graph.silent[node]:
            before[to].append(node)
        for rule, to in graph.calls[node]:
            start = graph.rules[rule][0]
            if productive[start] and productive[to]:
                before[to].append(node)
                before[start].append(node)
    found = [False] * count
    while work:
        node = work.pop()
        if not found[node]:
            found[node] = True
            work += before[node]
    return found
