"""EBNF (GBNF and xgrammar's dialect) as a `Machine`: `build`.

parser      text -> postfix programs, one a rule
build       programs -> graph: nodes that read bytes or call rules
productive  which nodes can be finished, and which by the empty text
tables      the closure of each node, worked out when it is first reached
earley      sets of items as states; `returns` says where the callers of a rule go on
"""

from __future__ import annotations

from logitkit.errors import GrammarError
from logitkit.grammar.ebnf.build import add_grammar
from logitkit.grammar.ebnf.earley import EarleyMachine
from logitkit.grammar.ebnf.graph import Graph
from logitkit.grammar.ebnf.tables import Tables
from logitkit.grammar.machine import Context, Machine
from logitkit.grammar.spec import Ebnf


def build(spec: Ebnf, context: Context) -> Machine:
    """The machine of the texts that `spec.root` derives, at the level of bytes.

    Raises `GrammarError` with line and column where the text is not EBNF or names a rule that it
    does not define, and for a root that derives no text or only the empty one.
    """
    graph = Graph(context.budget)
    root = add_grammar(graph, spec.text, spec.root)
    tables = Tables(graph, context)
    if not tables.alive[root]:
        raise GrammarError(
            f"EBNF: no text can be derived from the root rule {spec.root!r}: every way through it "
            "needs a rule without an end, or a character that no token spells"
        )
    if not tables.reads[graph.rules[root][0]]:
        raise GrammarError(f"EBNF: the root rule {spec.root!r} derives only the empty text")
    return EarleyMachine(tables, root)
