"""Programs of rules to a `Graph`; small rules that are not recursive go into their callers."""

from __future__ import annotations

from logitkit.errors import GrammarError
from logitkit.grammar.ebnf.components import components, recursive
from logitkit.grammar.ebnf.graph import Fragment, Graph
from logitkit.grammar.ebnf.parser import Chars, Combine, Name, Parser, Repeat, Rule, Text, place

# Rules up to this many nodes are copied: fewer calls to follow at every byte.
_INLINE = 256


def add_grammar(graph: Graph, text: str, root: str) -> int:
    """Add every rule of an EBNF text to the graph; the number of the rule `root`.

    Raises `GrammarError` with line and column for what is not EBNF, an unknown rule, or a `root`
    that the text does not define.
    """
    rules = Parser(text, graph.budget).parse()
    if root not in rules:
        known = ", ".join(list(rules)[:8])
        raise GrammarError(f"EBNF: the root rule {root!r} is not defined; the text defines {known}")
    names = {name: number for number, name in enumerate(rules)}
    for rule in rules.values():
        for operation in rule.program:
            if isinstance(operation, Name) and operation.rule not in names:
                raise GrammarError(
                    f"EBNF: rule {operation.rule!r} is not defined", place(text, operation.at)
                )
    return _Builder(graph, list(rules.values()), names).build()[names[root]]


class _Builder:
    def __init__(self, graph: Graph, rules: list[Rule], names: dict[str, int]) -> None:
        self.graph = graph
        self.rules = rules
        self.names = names
        self.numbers = [graph.declare_rule() for _ in rules]
        self.inlined: dict[str, Fragment] = {}

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
            if not loops[index] and body.stop - body.first <= _INLINE:
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

    def _call(self, name: str) -> Fragment:
        if name in self.inlined:
            return self.graph.copy(self.inlined[name])
        return self.graph.call(self.numbers[self.names[name]])
