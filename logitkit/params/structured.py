"""The structured fields: each value as a spec of `logitkit.grammar`, and a request's grammar.

Beside `words`: what `SamplingParams` checks at the door and `resolve` readies for one vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from logitkit.errors import GrammarError
from logitkit.grammar import (
    Choice,
    CompiledGrammar,
    Ebnf,
    JsonSchema,
    Regex,
    StructuralTag,
    Vocabulary,
    compile_grammar,
)
from logitkit.grammar.compile import check_schema
from logitkit.grammar.spec import Spec
from logitkit.params.checks import Check

KINDS: dict[str, type[Spec]] = {
    "json_schema": JsonSchema,
    "regex": Regex,
    "ebnf": Ebnf,
    "choice": Choice,
    "structural_tag": StructuralTag,
}
_CONTENT = {
    "json_schema": "schema",
    "regex": "pattern",
    "ebnf": "text",
    "choice": "options",
    "structural_tag": "structure",
}


def spec(name: str) -> Check:
    """A check for the field `name`: None, its spec, or what its spec is made from.

    What is wrong with a value whatever the vocabulary is an error here, except for formats of a
    structural tag and for schemas that take long to read: those are told by `compiled`.
    """
    kind: Any = KINDS[name]

    def check(value: Any) -> Spec | None:
        if value is None:
            return None
        if isinstance(value, Spec) and not isinstance(value, kind):
            other = next(field for field, owner in KINDS.items() if isinstance(value, owner))
            raise ValueError(f"a {type(value).__name__} belongs into the field `{other}`")
        made: Spec = value if isinstance(value, Spec) else kind(value)
        if isinstance(made, JsonSchema):
            check_schema(made)
        return made

    return check


def named(names: Sequence[str]) -> str:
    """What to say to several structured fields, asked for under these names."""
    quoted = " and ".join(f"`{name}`" for name in names)
    return f"{quoted} are given: at most one of them may be. Keep one."


def asked(params: Any) -> tuple[str, Spec] | None:
    """The structured field of a request and its spec; None if it has none."""
    found = ((name, getattr(params, name)) for name in KINDS)
    return next(((name, value) for name, value in found if value is not None), None)


def plain(name: str, value: Spec) -> Any:
    """The value of the field `name` in JSON, from which the same spec is made.

    Raises ValueError where the spec has options, for which JSON has no place.
    """
    content = getattr(value, _CONTENT[name])
    content = list(content) if isinstance(content, tuple) else content
    kind: Any = KINDS[name]
    if kind(content) != value:
        raise ValueError(
            f"`{name}` is {value!r}, whose options JSON has no place for: keep the object, or "
            f"give `{name}` without options before to_dict."
        )
    return content


def compiled(
    params: Any,
    tokenizer: Any,
    eos_token_ids: Sequence[int],
    vocab_size: int | None,
    vocabulary: Vocabulary | None,
) -> CompiledGrammar | None:
    """The request's grammar over `vocabulary`, by default the tokenizer's; None if it has none.

    Without `vocab_size` (the width of the logits is not known yet) only the request is checked.
    Raises ValueError naming the field if there is no tokenizer, GrammarError if it does not
    compile.
    """
    found = asked(params)
    if found is None:
        return None
    name, wanted = found
    if vocabulary is None:
        if tokenizer is None:
            raise ValueError(
                f"`{name}` needs to know what tokens spell: pass tokenizer=, or take the field out."
            )
        if vocab_size is None:
            return None
        eos = tuple(eos_token_ids) or None  # the tokenizer's own
        vocabulary = Vocabulary.from_tokenizer(tokenizer, size=vocab_size, eos_token_id=eos)
    try:
        return compile_grammar(wanted, vocabulary)
    except GrammarError as error:
        raise in_field(name, error) from None


def in_field(name: str, error: GrammarError) -> GrammarError:
    """The error with the name of the field before it."""
    told = GrammarError(f"`{name}`: {error}")
    told.where = error.where
    return told
