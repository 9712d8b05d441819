"""Structural tags (SGLang's and xgrammar's JSON form) as a `Machine`: `build`.

    fields     reading the members of an object, with errors that say where
    formats    each format as a fragment of a graph; `tags` those with a beginning and an end
    free_text  text until a trigger

The graph is the one of `ebnf`, run by its machine; JSON Schemas and regexes are machines embedded
in it.
"""

from __future__ import annotations

from logitkit.errors import GrammarError
from logitkit.grammar.ebnf.earley import EarleyMachine
from logitkit.grammar.ebnf.graph import Fragment
from logitkit.grammar.ebnf.tables import Tables
from logitkit.grammar.machine import Context, Machine
from logitkit.grammar.spec import StructuralTag
from logitkit.grammar.structural_tag.fields import Fields
from logitkit.grammar.structural_tag.formats import Formats


def build(spec: StructuralTag, context: Context) -> Machine:
    """The machine of `spec.structure`, a format or the legacy list of structures and triggers.

    Text never matches a control token, but a `begin`, `end` or trigger that is one, or that holds
    one of the usual shape, matches it too. Raises `GrammarError` with a JSON pointer.
    """
    formats = Formats(context)
    fields = Fields(spec.structure, "")
    root = formats.graph.declare_rule()
    formats.graph.define_rule(root, _fragment(formats, fields))
    fields.done()
    tables = Tables(formats.graph, context)
    for rule, where in formats.rules:
        if not tables.alive[rule]:
            raise GrammarError("structural tag: the grammar's root derives no text", where)
    assert tables.alive[root]
    if not tables.reads[formats.graph.rules[root][0]]:
        raise GrammarError("structural tag: the structure allows only the empty text")
    return EarleyMachine(tables, root)


def _fragment(formats: Formats, fields: Fields) -> Fragment:
    if "type" in fields and fields.text("type") != "structural_tag":
        raise fields.fail("`type` must be 'structural_tag'", "type")
    if "structures" in fields:
        return formats.tags.legacy(fields)
    return formats.build(fields.get("format"), "/format")
