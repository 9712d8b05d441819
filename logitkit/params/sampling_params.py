"""`SamplingParams`, what one request wants, and `resolve`, which readies it for one vocabulary.

The first module in line: everything else reads it, and it reads only its own parts,
`fields` (the checks), `names`, `spellings` and `generation_config` (other systems' spellings),
`words` (words as ids) and `structured` (the grammars).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self

from logitkit.grammar import CompiledGrammar, Vocabulary
from logitkit.params.checks import FrozenDict
from logitkit.params.fields import FIELDS, STRUCTURED_FIELDS, checked
from logitkit.params.generation_config import request_fields
from logitkit.params.names import unknown_fields
from logitkit.params.spellings import plain_fields, spelled_fields
from logitkit.params.structured import compiled, named
from logitkit.params.words import bad_word_sequences, breaker_sequences, check_tokenizer


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """What one request wants. Every default is neutral: it changes nothing.

    Values are checked when the object is made: a wrong value or an unknown name raises ValueError
    with the field, the value, the allowed range and the remedy. The object is immutable; it can be
    compared, hashed and pickled if the values in `extra` can. `dataclasses.replace` makes changed
    copies.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = FrozenDict()
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[str, ...] = ()
    bad_words_ids: tuple[tuple[int, ...], ...] = ()
    min_new_tokens: int = 0
    max_new_tokens: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    stop_regex: tuple[str, ...] = ()
    ignore_eos: bool = False
    n: int = 1
    sampling_seed: int | None = None
    logprobs: int | None = None
    logprob_mode: str = "raw"
    typical_p: float = 1.0
    epsilon_cutoff: float = 0.0
    eta_cutoff: float = 0.0
    top_n_sigma: float = 0.0
    top_h: float = 0.0
    no_repeat_ngram_size: int = 0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_range: int = -1
    dry_sequence_breakers: tuple[str | tuple[int, ...], ...] = ("\n", ":", '"', "*")
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    json_schema: Any = None
    regex: Any = None
    ebnf: Any = None
    choice: Any = None
    structural_tag: Any = None
    extra: Mapping[str, Any] = FrozenDict()

    if not TYPE_CHECKING:  # the generated __init__ would answer an unknown name with a TypeError

        def __new__(cls, *args, **kwargs):
            problems = unknown_fields(kwargs, [field.name for field in fields(cls)])
            if problems:
                raise ValueError(" ".join(problems))
            return super().__new__(cls)

    def __post_init__(self) -> None:
        for field in fields(self):
            value = checked(field.name, getattr(self, field.name), field.default)
            object.__setattr__(self, field.name, value)
        self._check_together()

    def _check_together(self) -> None:
        """Refuses values that are fine one by one and impossible together."""
        if self.max_new_tokens is not None and self.min_new_tokens > self.max_new_tokens:
            raise ValueError(
                f"`min_new_tokens` is {self.min_new_tokens} and `max_new_tokens` is "
                f"{self.max_new_tokens}: the least may not exceed the most. Lower the one or "
                "raise the other."
            )
        banned = {token for token, bias in self.logit_bias.items() if bias == -math.inf}
        banned |= {ids[0] for ids in self.bad_words_ids if len(ids) == 1}
        if self.allowed_token_ids is not None and banned.issuperset(self.allowed_token_ids):
            raise ValueError(
                f"`allowed_token_ids` is {self.allowed_token_ids}, and `logit_bias` or "
                "`bad_words_ids` bans every one of them: nothing is left to draw. Allow another "
                "token or lift a ban."
            )
        structured = [name for name in STRUCTURED_FIELDS if getattr(self, name) is not None]
        if len(structured) > 1:
            raise ValueError(named(structured))

    def _set_fields(self) -> dict[str, Any]:
        """The fields that differ from their defaults."""
        values = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        return {name: value for name, (value, default) in values.items() if value != default}

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self._set_fields().items())
        return f"{type(self).__name__}({values})"

    def to_dict(self) -> dict[str, Any]:
        """The fields that differ from their defaults, in values that strict JSON has.

        `from_dict` gives the same object back. A ban in `logit_bias` is the string "-inf". Raises
        ValueError naming a value in `extra` that JSON does not have, and a structured field with
        options of its own (`lk.JsonSchema(schema, whitespace=...)`).
        """
        return plain_fields(self._set_fields())

    @classmethod
    def from_dict(cls, mapping: Mapping[str, Any]) -> Self:
        """Made from our names or the spellings of OpenAI, vLLM, SGLang and llama.cpp.

        None stands for the default. Raises ValueError that names every field that cannot be
        honoured (unless it is neutral, such as `best_of=1`), an unknown name with the nearest
        known one, and two spellings of one field with different values.
        """
        return cls(**spelled_fields(mapping, [field.name for field in fields(cls)]))

    @classmethod
    def from_generation_config(cls, generation_config: Any) -> Self:
        """Made from a transformers `GenerationConfig`, read as `model.generate` reads it.

        Unset fields take transformers' defaults (top_k is 50 when sampling). `do_sample` false
        gives temperature 0 and no filters. Single-token `sequence_bias` and `suppress_tokens`
        become `logit_bias`; an entry of `bad_words_ids` that is the end-of-text token is dropped,
        as there. Ids of special tokens, caches and outputs are no part of a request and are left
        aside. A mapping with the same field names is taken as well.

        Raises ValueError that names every field which is set and cannot be honoured, every one that
        only `lk.generate(generation_config=...)` takes (lengths that count the prompt, time), and
        the unknown keys of a mapping.
        """
        return cls(**request_fields(generation_config))


SamplingParams.__doc__ = f"{SamplingParams.__doc__}\n" + "\n".join(
    f"    {field.name} = {field.default!r}\n"
    f"        {FIELDS[field.name].effect}\n"
    f"        ({FIELDS[field.name].allowed}; {FIELDS[field.name].source})"
    for field in fields(SamplingParams)
)


@dataclass(frozen=True, kw_only=True, repr=False)
class ResolvedParams(SamplingParams):
    """`SamplingParams` after the door: words are token ids, ids lie inside the vocabulary.

    The library makes these with `resolve`; users make `SamplingParams`. `bad_words` is empty (its
    sequences are in `bad_words_ids`), `dry_sequence_breakers` holds only ids and is empty where
    DRY is off, `eos_token_ids` are the model's (with a grammar its vocabulary's), `grammar` is the
    structured field compiled.
    """

    eos_token_ids: tuple[int, ...] = ()
    grammar: CompiledGrammar | None = None

    @property
    def ending_eos_ids(self) -> tuple[int, ...]:
        """The eos ids that end the request: behind the end of a grammar nothing may follow."""
        return () if self.ignore_eos and self.grammar is None else self.eos_token_ids


def resolve(
    params: SamplingParams,
    *,
    tokenizer: Any = None,
    eos_token_ids: int | Iterable[int] = (),
    vocab_size: int | None = None,
    vocabulary: Vocabulary | None = None,
) -> ResolvedParams:
    """`params` for one vocabulary: words as token ids, every id below `vocab_size` (if given).

    A structured field is compiled once `vocab_size` is known, over `vocabulary` or else over the
    tokenizer's with these eos ids.

    Raises ValueError naming the field if a tokenizer is needed and absent, if a bad word has no
    tokens, if `vocab_size` is not positive, or if an id lies outside the vocabulary; GrammarError
    if a structured field cannot be enforced.
    """
    values = {field.name: getattr(params, field.name) for field in fields(SamplingParams)}
    values["eos_token_ids"] = eos = checked("eos_token_ids", eos_token_ids, ())
    if vocab_size is not None and vocab_size < 1:
        raise ValueError(f"`vocab_size` is {vocab_size}: give the model's, an integer >= 1.")
    if params.bad_words:
        _need(tokenizer, "bad_words", "encode")
        added = bad_word_sequences(params.bad_words, tokenizer, eos)
        values.update(bad_words=(), bad_words_ids=params.bad_words_ids + added)
    breakers = params.dry_sequence_breakers if params.dry_multiplier and params.dry_range else ()
    if any(isinstance(breaker, str) for breaker in breakers):
        _need(tokenizer, "dry_sequence_breakers", "encode", "decode", "get_vocab")
        given = {breaker for breaker in breakers if not isinstance(breaker, str)}
        spelled = breaker_sequences(breakers, tokenizer)
        # the tokenizer may know tokens that the model has not: they cannot occur in a history
        breakers = tuple(
            ids
            for ids in spelled
            if ids in given or vocab_size is None or all(token < vocab_size for token in ids)
        )
    values["dry_sequence_breakers"] = breakers
    grammar = compiled(params, tokenizer, eos, vocab_size, vocabulary)
    if grammar is not None:
        values.update(grammar=grammar, eos_token_ids=grammar.vocabulary.eos_token_ids)
    resolved = ResolvedParams(**values)
    if vocab_size is not None:
        _check_ids(resolved, vocab_size)
    return resolved


def _need(tokenizer: Any, name: str, *methods: str) -> None:
    """Raises ValueError unless the tokenizer that the field `name` needs has these methods."""
    if tokenizer is not None:
        check_tokenizer(tokenizer, *methods)
    else:
        raise ValueError(
            f"`{name}` holds text, which needs a tokenizer: pass tokenizer=, or give token ids"
            + (" in `bad_words_ids`." if name == "bad_words" else " instead of strings.")
        )


def _check_ids(params: ResolvedParams, vocab_size: int) -> None:
    """Raises ValueError for the first id outside [0, vocab_size)."""
    ids: dict[str, Iterable[Any]] = {
        "logit_bias": params.logit_bias,
        "allowed_token_ids": params.allowed_token_ids or (),
        "stop_token_ids": params.stop_token_ids,
        "eos_token_ids": params.eos_token_ids,
        "bad_words_ids": (token for ids in params.bad_words_ids for token in ids),
        "dry_sequence_breakers": (token for ids in params.dry_sequence_breakers for token in ids),
    }
    for name, tokens in ids.items():
        for token in tokens:
            if token >= vocab_size:
                raise ValueError(
                    f"`{name}` holds token {token}, outside the vocabulary of {vocab_size} tokens "
                    f"(0 to {vocab_size - 1}). Use this model's ids."
                )
