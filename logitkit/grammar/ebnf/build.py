"""Programs of rules to a `Graph`; small rules that are not recursive go into their callers."""

from __future__ import annotations

from logitkit.errors import GrammarError
from logitkit.grammar.ebnf.components import components, recursive
from logitkit.grammar.ebnf.graph import Fragment, Graph
from logitkit.grammar.ebnf.parser import Chars, Combine, Name, Parser, Repeat, Rule, Text, place
from logitkit.grammar.machine import Budget

# Rules up to this many nodes are copied: fewer calls to follow at every byte. But where copies that
# may be empty stand in a row, a state holds all of them.
_INLINE, _INLINE_EMPTY = 256, 32


def add_grammar(graph: Graph, text: str, root: str) -> int:
    """Add every rule of an EBNF text to the graph; the number of the rule `root`.

    Raises `GrammarError` as `read_rules` does.
    """
    rules = read_rules(text, root, graph.budget)
    names = {name: number for number, name in enumerate(rules)}
    return _Builder(graph, list(rules.values()), names).build()[names[root]]


def read_rules(text: str, root: str, budget: Budget) -> dict[str, Rule]:
    """The rules of an EBNF text by their names.

    Raises `GrammarError` with line and column for what is not EBNF, an unknown rule, or a `root`
    that the text does not define.
    """
    rules = Parser(text, budget).parse()
    if root not in rules:
        known = ", ".join(list(rules)[:8])
        raise GrammarError(f"EBNF: the root rule {root!r} is not defined; the text defines {known}")
    for rule in rules.values():
        for operation in rule.program:
            if isinstance(operation, Name) and operation.rule not in rules:
                raise GrammarError(
                    f"EBNF: rule {operation.rule!r} is not defined", place(text, operation.at)
                )
    return rules


class _Builder:
    def __init__(self, graph: Graph, rules: list[Rule], names: dict[str, int]) -> None:
        self.graph = graph
        self.rules = rules
        self.names = names
        self.numbers = [graph.declare_rule() for _ in rules]
        self.inlined: dict[str, Fragment] = {}
        self.nullable: set[int] = set()  # rules that may be empty, of those that are defined

    def build(self) -> list[int]:
        """The number in the graph of each rule, in the order of the text."""
        callees = [
            sorted({self.names[op.rule] for op in rule.program if isinstance(op, Name)})
            for rule in self.rules
        ]
        component = components(callees)
        loops = recursive(callees, component)
        for index in sorted(range(len(self.rules)), key=component.__getitem__):
            rule = self.rules[index]
            body = self._run(rule)
            self.graph.define_rule(self.numbers[index], body)
            nullable = self._may_be_empty(body)
            if nullable:
                self.nullable.add(self.numbers[index])
            most = _INLINE_EMPTY if nullable else _INLINE
            if not loops[index] and body.stop - body.first <= most:
                self.inlined[rule.name] = body
        return self.numbers

    def _run(self, rule: Rule) -> Fragment:
        """Build a rule's body, innermost operations first."""
        graph = self.graph
        stack: list[Fragment] = []
        for operation in rule.program:
            if isinstance(operation, Text):
                stack.append(graph.literal(operation.data))
            elif isinstance(operation, Chars):
                stack.append(graph.chars(operation.points))
            elif isinstance(operation, Name):
                stack.append(self._call(operation.rule))
            elif isinstance(operation, Repeat):
                stack.append(graph.repeat(stack.pop(), operation.least, operation.most))
            else:
                assert isinstance(operation, Combine)
                cut = len(stack) - operation.size
                parts, stack[cut:] = stack[cut:], []
                combine = graph.join if operation.how == "join" else graph.either
                stack.append(combine(parts))
        (body,) = stack
        return body

    def _may_be_empty(self, body: Fragment) -> bool:
        """Whether the end of a body is reached without a byte, by what is known of its callees."""
        graph = self.graph
        seen = {body.start}
        work = [body.start]
        while work:
            node = work.pop()
            following = [*graph.silent[node]]
            following += [to for rule, to in graph.calls[node] if rule in self.nullable]
            work += [to for to in following if to not in seen]
            seen.update(following)
        return body.end in seen

    def _call(self, name: str) -> Fragment:
        if name in self.inlined:
            return self.graph.copy(self.inlined[name])
        return self.graph.call(self.numbers[self.names[name]])
