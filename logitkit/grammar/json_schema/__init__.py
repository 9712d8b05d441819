"""JSON Schema: `build` turns a schema into a byte machine.

`normalise` brings the schema into a normal form (`types`), `machine` runs that form.
"""

from __future__ import annotations

from logitkit.grammar.json_schema.machine import JsonMachine
from logitkit.grammar.json_schema.normalise import normalise
from logitkit.grammar.machine import Context, Machine
from logitkit.grammar.spec import JsonSchema


def build(spec: JsonSchema, context: Context) -> Machine:
    """The machine of the documents that `spec.schema` accepts.

    Raises GrammarError for what cannot be enforced, with the keyword and its JSON pointer.
    """
    return JsonMachine(normalise(spec, context.budget), context)


__all__ = ["build"]
