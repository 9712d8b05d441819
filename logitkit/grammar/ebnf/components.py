"""Strongly connected components: which rules are recursive, and an order for the rest."""

from __future__ import annotations

from collections.abc import Sequence


def components(successors: Sequence[Sequence[int]]) -> list[int]:
    """The component of each node; a component's number is above those it leads to.

    Tarjan's algorithm with its stack spelled out, so that a chain of rules may be long.
    """
    count = len(successors)
    order = [-1] * count  # when a node was first seen
    low = [0] * count
    component = [-1] * count
    seen = found = 0
    path: list[int] = []
    for root in range(count):
        if order[root] >= 0:
            continue
        work = [(root, 0)]
        while work:
            node, turn = work.pop()
            if turn == 0:
                order[node] = low[node] = seen
                seen += 1
                path.append(node)
            else:
                low[node] = min(low[node], low[successors[node][turn - 1]])
            for number in range(turn, len(successors[node])):
                following = successors[node][number]
                if order[following] < 0:
                    work += [(node, number + 1), (following, 0)]
                    break
                if component[following] < 0:
                    low[node] = min(low[node], order[following])
            else:
                if low[node] == order[node]:
                    while component[node] < 0:
                        component[path.pop()] = found
                    found += 1
    return component


def recursive(successors: Sequence[Sequence[int]], component: Sequence[int]) -> list[bool]:
    """Whether each node lies on a cycle."""
    size = [0] * (max(component, default=-1) + 1)
    for number in component:
        size[number] += 1
    return [size[component[n]] > 1 or n in successors[n] for n in range(len(successors))]
