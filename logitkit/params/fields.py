"""The fields of `SamplingParams`: what each one does, what it may hold, whose rule it is.

`FIELDS` is the one table behind the checks, the class documentation and the README. It sits
between `checks` and `sampling_params` and knows nothing of the rest of the package.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from logitkit.errors import GrammarError
from logitkit.params.checks import (
    DIVISOR_MIN,
    Check,
    FrozenDict,
    above,
    anything,
    breaker,
    entries,
    finite,
    flag,
    frozen,
    id_sequence,
    integer,
    kind,
    logit_bias,
    number,
    one_of,
    optional,
    shown,
    text,
    token_id,
)
from logitkit.params.structured import KINDS, in_field, spec


def _extra(value: Any) -> FrozenDict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{kind(value)} is not a mapping")
    for key in value:
        if not isinstance(key, str):
            raise ValueError(f"key {key!r} is not a string")
        if key in FIELDS:
            raise ValueError(f"`{key}` is a field of its own: SamplingParams({key}=...)")
    result: FrozenDict[str, Any] = frozen(value)
    return result


@dataclass(frozen=True)
class Field:
    """One line of the table: check, allowed range in words, effect, the rule's source."""

    check: Check
    allowed: str
    effect: str
    source: str


# The ends of the columns that hold the values: float32 and int32.
_FLOAT = "3.4e38 (float32)"
_INT = "2**31 - 1"
_IDS = f"token ids from 0 to {_INT}"
_ONE = "one structured field at most"

FIELDS: dict[str, Field] = {
    "temperature": Field(
        number(DIVISOR_MIN, zero=True),
        f"0 (greedy), or 1e-30 to {_FLOAT}",
        "logits / temperature; 0 takes the most probable token after edits and masks",
        "Ackley et al. 1985",
    ),
    "top_k": Field(
        integer(0, off=-1),
        f"0 or -1 (off), or an integer from 1 to {_INT}",
        "keeps the k most probable tokens and every tie with the last",
        "Fan et al. 2018",
    ),
    "top_p": Field(
        number(above(0.0), 1.0),
        "0 < p <= 1",
        "keeps the smallest set of most probable tokens whose mass reaches p, plus ties",
        "Holtzman et al. 2020",
    ),
    "min_p": Field(
        number(0.0, 1.0),
        "0 <= p <= 1",
        "keeps tokens with at least min_p times the largest probability",
        "Nguyen et al. 2024",
    ),
    "repetition_penalty": Field(
        number(DIVISOR_MIN),
        f"1e-30 to {_FLOAT}",
        "divides positive and multiplies negative logits of tokens in prompt or output",
        "Keskar et al. 2019 (CTRL), as transformers and vLLM",
    ),
    "presence_penalty": Field(
        finite,
        f"-3.4e38 to {_FLOAT}, usually -2 to 2",
        "subtracted once from the logit of every token in the output",
        "OpenAI API, as vLLM",
    ),
    "frequency_penalty": Field(
        finite,
        f"-3.4e38 to {_FLOAT}, usually -2 to 2",
        "subtracted from a token's logit as often as the output holds it",
        "OpenAI API, as vLLM",
    ),
    "logit_bias": Field(
        logit_bias,
        f"{_IDS} (int or digits), each once, to -inf or -3.4e38 to {_FLOAT}",
        "added to the logits of these tokens; -inf bans a token",
        "OpenAI API",
    ),
    "allowed_token_ids": Field(
        optional(entries(token_id, least=1, sort=True)),
        f"None or a non-empty sequence of {_IDS}",
        "only these tokens may be drawn",
        "vLLM",
    ),
    "bad_words": Field(
        entries(text, lone=str),
        "non-empty strings",
        "these words, with or without a leading space, are never completed",
        "vLLM",
    ),
    "bad_words_ids": Field(
        entries(id_sequence),
        f"non-empty sequences of {_IDS}",
        "the last token of each sequence is banned where the ones before it were just written",
        "transformers",
    ),
    "min_new_tokens": Field(
        integer(0),
        f"an integer from 0 to max_new_tokens or {_INT}",
        "until so many tokens are written, eos and stop tokens are masked and no stop ends it",
        "transformers",
    ),
    "max_new_tokens": Field(
        optional(integer(1)),
        f"None (up to the caller) or an integer from 1 to {_INT}",
        "the request ends after so many tokens",
        "transformers",
    ),
    "stop": Field(
        entries(text, lone=str),
        "a non-empty string or several",
        "the request ends when its text holds one of these",
        "OpenAI API",
    ),
    "stop_token_ids": Field(
        entries(token_id),
        f"a sequence of {_IDS}",
        "the request ends with one of these tokens",
        "vLLM",
    ),
    "stop_regex": Field(
        entries(text, lone=str),
        "a non-empty pattern or several",
        "the request ends when its text matches one of these",
        "SGLang",
    ),
    "ignore_eos": Field(flag, "True or False", "an end-of-text token ends nothing", "vLLM"),
    "n": Field(
        integer(1),
        f"an integer from 1 to {_INT}",
        "samples per prompt, each with its seed",
        "OpenAI",
    ),
    "sampling_seed": Field(
        optional(integer(0, 2**64 - 1)),
        "None or an integer, 0 <= seed < 2**64",
        "makes the request repeatable on its own; None draws a seed when generation starts",
        "Salmon et al. 2011 (Philox)",
    ),
    "logprobs": Field(
        optional(integer(0)),
        f"None (off) or an integer from 0 to {_INT}",
        "log-probabilities of the chosen token and of so many of the best",
        "vLLM",
    ),
    "logprob_mode": Field(
        one_of("raw", "processed", "filtered"),
        "'raw', 'processed' or 'filtered'",
        "logprobs before any stage, after edits, masks and temperature, or after everything",
        "vLLM",
    ),
    "typical_p": Field(
        number(above(0.0), 1.0),
        "0 < p <= 1",
        "keeps the tokens nearest to the row's entropy until their mass reaches p, plus ties",
        "Meister et al. 2023, as transformers",
    ),
    "epsilon_cutoff": Field(
        number(0.0, math.nextafter(1.0, 0.0)),
        "0 <= epsilon < 1",
        "keeps tokens with at least this probability",
        "Hewitt et al. 2022, as transformers",
    ),
    "eta_cutoff": Field(
        number(0.0, math.nextafter(1.0, 0.0)),
        "0 <= eta < 1",
        "keeps tokens above min(eta, sqrt(eta) * exp(-entropy))",
        "Hewitt et al. 2022, as transformers",
    ),
    "top_n_sigma": Field(
        number(0.0, off=-1),
        f"0 or -1 (off), or up to {_FLOAT}",
        "keeps logits within n population deviations of the largest",
        "Tang et al. 2024, as llama.cpp",
    ),
    "top_h": Field(
        number(0.0, 1.0),
        "0 (off) or 0 < h <= 1",
        "keeps the most probable tokens while their entropy is within h times the row's",
        "Potraghloo et al. 2025, as transformers",
    ),
    "no_repeat_ngram_size": Field(
        integer(0),
        f"0 (off) or an integer from 1 to {_INT}",
        "no n-gram of this size is written twice, the prompt included",
        "Paulus et al. 2017, as transformers",
    ),
    "dry_multiplier": Field(
        number(0.0),
        f"0 (off) or up to {_FLOAT}",
        "strength of DRY: multiplier * base ** (length - allowed) off the logit that would "
        "continue a repeat",
        "p-e-w 2024, as llama.cpp",
    ),
    "dry_base": Field(
        number(1.0),
        f"1 to {_FLOAT}",
        "growth of DRY with the repeat's length",
        "llama.cpp",
    ),
    "dry_allowed_length": Field(
        integer(1),
        f"an integer from 1 to {_INT}",
        "repeats shorter than this are free in DRY",
        "llama.cpp",
    ),
    "dry_range": Field(
        integer(-1),
        f"-1 (the whole context), 0 (off) or an integer from 1 to {_INT}",
        "DRY looks at so many of the last tokens",
        "llama.cpp (dry_penalty_last_n)",
    ),
    "dry_sequence_breakers": Field(
        entries(breaker, lone=str),
        f"non-empty strings or non-empty sequences of {_IDS}",
        "repeats in DRY do not reach across these",
        "llama.cpp",
    ),
    "xtc_probability": Field(
        number(0.0, 1.0),
        "0 <= probability <= 1",
        "how often XTC removes all but the least probable of the tokens above xtc_threshold",
        "p-e-w 2024, as llama.cpp",
    ),
    "xtc_threshold": Field(
        number(0.0, 1.0),
        "0 <= threshold <= 1 (above 0.5 it removes nothing)",
        "the probability from which XTC counts a token as a top choice",
        "p-e-w 2024, as llama.cpp",
    ),
    "dynatemp_range": Field(
        number(0.0),
        f"0 to {_FLOAT}",
        "temperature moves with the entropy within max(0, T - range) to T + range",
        "Zhu et al. 2023, as llama.cpp",
    ),
    "dynatemp_exponent": Field(
        number(above(0.0)),
        f"> 0, up to {_FLOAT}",
        "bends the way from entropy to temperature",
        "llama.cpp",
    ),
    "json_schema": Field(
        spec("json_schema"),
        f"a schema (dict, bool, JSON text), a pydantic model or type, or lk.JsonSchema; {_ONE}",
        "the text is JSON that the schema accepts",
        "SGLang",
    ),
    "regex": Field(
        spec("regex"),
        f"a pattern or lk.Regex; {_ONE}",
        "the pattern matches the whole text",
        "SGLang",
    ),
    "ebnf": Field(
        spec("ebnf"),
        f"a grammar with the rule root, or lk.Ebnf; {_ONE}",
        "the grammar derives the text",
        "SGLang",
    ),
    "choice": Field(
        spec("choice"),
        f"a non-empty sequence of strings or lk.Choice; {_ONE}",
        "the text is one of these",
        "vLLM",
    ),
    "structural_tag": Field(
        spec("structural_tag"),
        f"a structure (dict or JSON text) or lk.StructuralTag; {_ONE}",
        "the tagged parts of the text follow their schemas",
        "SGLang",
    ),
    "extra": Field(
        _extra,
        "names that are no field of SamplingParams, to values of any type",
        "parameters of the user's own stages",
        "logitkit",
    ),
}
STRUCTURED_FIELDS = tuple(KINDS)

# What `resolve` adds to them.
_RESOLVED = {
    "eos_token_ids": Field(entries(token_id, lone=int), _IDS, "end-of-text tokens", "transformers"),
    "grammar": Field(anything, "a compiled grammar", "what the text must follow", "logitkit"),
}


def checked(name: str, value: Any, neutral: Any) -> Any:
    """`value` as the field `name` keeps it: plain, immutable, in range.

    Raises ValueError with the field, the value, the reason, the allowed range and the remedy.
    """
    field = _RESOLVED[name] if name in _RESOLVED else FIELDS[name]
    try:
        return field.check(value)
    except GrammarError as error:
        raise in_field(name, error) from None
    except ValueError as error:
        raise ValueError(
            f"`{name}` is {shown(value)}: {error}. Allowed: {field.allowed}. "
            f"Give such a value, or leave the field out (the default, {neutral!r}, is neutral)."
        ) from None
