"""Whether a grammar nests: whether some rule calls itself with text on both sides."""

from __future__ import annotations

from logitkit.grammar.ebnf.components import components
from logitkit.grammar.ebnf.tables import Tables


def is_self_embedding(tables: Tables, root: int) -> bool:
    """True if a rule derives itself between two texts, by rules that `root` reaches.

    Decided by component: one recursive call with text after it and one with text before it are
    enough, for they can follow each other. False means that the language is regular.
    """
    if not any(tables.graph.calls):
        return False
    calls: dict[int, list[tuple[int, bool, bool]]] = {}
    work = [root]
    while work:
        rule = work.pop()
        if rule not in calls:
            calls[rule] = _calls(tables, rule)
            work += [callee for callee, _, _ in calls[rule]]
    count = len(tables.graph.rules)
    component = components(
        [sorted({callee for callee, _, _ in calls.get(rule, ())}) for rule in range(count)]
    )
    before: set[int] = set()
    after: set[int] = set()
    for rule, made in calls.items():
        for callee, text_before, text_after in made:
            if component[callee] == component[rule]:
                if text_before:
                    before.add(component[rule])
                if text_after:
                    after.add(component[rule])
    return bool(before & after)


def _calls(tables: Tables, rule: int) -> list[tuple[int, bool, bool]]:
    """The calls in a rule: (callee, may text come before it, may text come after it)."""
    graph = tables.graph
    start = (graph.rules[rule][0], False)
    seen = {start}
    work = [start]
    found = []
    while work:
        node, read = work.pop()
        following = [(to, read) for to in graph.silent[node]]
        following += [(to, True) for _, _, to in graph.spans[node]]
        following += [(to, True) for _, to in graph.embeds.get(node, ())]
        for callee, to in graph.calls[node]:
            if not (tables.alive[callee] and tables.productive[to]):
                continue
            found.append((callee, read, tables.reads[to]))
            if tables.reads[graph.rules[callee][0]]:
                following.append((to, True))
            if tables.nullable[callee]:
                following.append((to, read))
        for pair in following:
            if tables.productive[pair[0]] and pair not in seen:
                seen.add(pair)
                work.append(pair)
    return found
