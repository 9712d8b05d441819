"""What transformers hands to a `custom_generate=` callable, and which of it is the caller's own.

`model.generate` prepares one list of processors and one of criteria from its generation config and
the caller's objects. Ours are made from `SamplingParams`, so what the config alone asks for is
taken out again; everything else stays. Knows transformers' classes by name only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence, Sized
from typing import Any

import torch
from torch import Tensor

from logitkit.generation.progress import Criteria
from logitkit.generation.settings import Settings
from logitkit.params import SamplingParams
from logitkit.params.generation_config import READ, SAMPLING, generation_config_fields

# Prepared for transformers' own loop; `CausalLM` makes its own.
_CACHES = ("cache", "past_key_values", "cache_params")
_LOOP_KWARGS = (*_CACHES, "logits_to_keep", "use_cache")

# Class: (field of the config, attribute that holds its value), first those that come before the
# caller's processors and then those that come behind them.
_EDITS = {
    "SequenceBiasLogitsProcessor": ("sequence_bias", "sequence_bias"),
    "RepetitionPenaltyLogitsProcessor": ("repetition_penalty", "penalty"),
    "NoRepeatNGramLogitsProcessor": ("no_repeat_ngram_size", "ngram_size"),
    "NoBadWordsLogitsProcessor": ("bad_words_ids", "bad_word_ids"),
    "MinLengthLogitsProcessor": ("min_length", "min_length"),
    "MinNewTokensLengthLogitsProcessor": ("min_new_tokens", "min_new_tokens"),
    "SuppressTokensLogitsProcessor": ("suppress_tokens", "suppress_tokens"),
}
_WARPERS = {
    "TemperatureLogitsWarper": ("temperature", "temperature"),
    "TopHLogitsWarper": ("top_h", "top_h"),
    "TopKLogitsWarper": ("top_k", "top_k"),
    "TopPLogitsWarper": ("top_p", "top_p"),
    "MinPLogitsWarper": ("min_p", "min_p"),
    "TypicalLogitsWarper": ("typical_p", "mass"),
    "EpsilonLogitsWarper": ("epsilon_cutoff", "epsilon"),
    "EtaLogitsWarper": ("eta_cutoff", "epsilon"),
    "LogitNormalization": ("renormalize_logits", ""),
}
_CRITERIA = {
    "MaxLengthCriteria": ("max_length", "max_length"),
    "EosTokenCriteria": ("eos_token_id", "eos_token_id"),
}


def settings(
    input_ids: Tensor,
    params: Sequence[SamplingParams] | None,
    processors: Sequence[Any],
    criteria: Sequence[Any],
    config: Any,
    model_config: Any,
    model_kwargs: dict[str, Any],
) -> Settings:
    """The call's settings; without `params` they are read from `config`.

    `config` holds what the call and the model's own `model_config` say. Raises ValueError that
    names what it asks for and cannot be honoured, beside `params` what the call says of sampling,
    and a cache that holds tokens already.
    """
    asked = config.to_dict()
    file = {} if model_config is None else model_config.to_dict()
    if params is not None:
        _refuse_sampling(asked, file, params)
        # What cannot be honoured must not be dropped with the sampling fields.
        asked = {name: value for name, value in asked.items() if name not in READ}
    sources = {
        name: "model" if _equal(value, file.get(name)) else "call" for name, value in asked.items()
    }
    from_config = SamplingParams(**generation_config_fields(asked, sources))
    _check_cache(model_kwargs)
    for name in ("output_attentions", "output_hidden_states"):
        if getattr(config, name, None):
            raise ValueError(f"`{name}` is not available in this loop; leave it out")
    eos = _ids(getattr(config, "eos_token_id", None))
    pad = _ids(getattr(config, "pad_token_id", None))
    max_length = getattr(config, "max_length", None)
    min_new = max(0, (getattr(config, "min_length", None) or 0) - input_ids.shape[1])
    if params is None:
        from_config = dataclasses.replace(
            from_config,
            max_new_tokens=None,
            min_new_tokens=max(min_new, from_config.min_new_tokens),
        )
    return_dict = bool(getattr(config, "return_dict_in_generate", False))
    own = _without(list(criteria), _CRITERIA, config)
    return Settings(
        params=(from_config,) if params is None else params,
        eos_token_ids=eos,
        pad_token_id=pad[0] if pad else None,
        max_new_tokens=None if max_length is None else max_length - input_ids.shape[1],
        processors=callers_processors(processors, config),
        criteria=_any_of(own) if own else None,
        return_dict=return_dict,
        output_scores=return_dict and bool(getattr(config, "output_scores", False)),
        output_logits=return_dict and bool(getattr(config, "output_logits", False)),
        model_inputs={k: v for k, v in model_kwargs.items() if k not in _LOOP_KWARGS},
    )


def _refuse_sampling(
    asked: Mapping[str, Any], file: Mapping[str, Any], params: Sequence[SamplingParams]
) -> None:
    """Refuse what the call says of sampling beside `params`: what the model's `file` does not."""
    clash = []
    for name, default in SAMPLING.items():
        value = asked.get(name)
        own = file.get(name)
        if name == "min_length" and asked.get("min_new_tokens") is not None:
            continue  # transformers has made it from that
        if not _equal(value, None) and not _equal(value, default if own is None else own):
            clash.append(f"`{name}` = {value!r}")
    if clash:
        raise ValueError(
            f"{', '.join(clash)} beside the strategy's `params`: one of the two must say how to "
            "sample. Set the fields of SamplingParams, or give the strategy no params"
        )
    samples = asked.get("num_return_sequences") or 1
    wrong = [p.n for p in params if p.n != samples]
    if wrong:
        raise ValueError(
            f"`n`={wrong[0]} of `params`, but transformers makes {samples} rows per prompt: "
            f"pass num_return_sequences={wrong[0]} (and do_sample=True), or set `n` to {samples}"
        )


def _equal(value: Any, other: Any) -> bool:
    """Whether two values of a config's field ask the same; an empty list asks nothing."""
    plain = [v.tolist() if hasattr(v, "tolist") else v for v in (value, other)]
    left, right = (None if isinstance(v, Sized) and not len(v) else v for v in plain)
    return bool(left == right)


def _any_of(criteria: Sequence[Criteria]) -> Criteria:
    """One criterion that holds for a row when any of `criteria` does."""

    def over(input_ids: Tensor, scores: Any) -> Tensor:
        rows = torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)
        for criterion in criteria:
            rows = rows | torch.as_tensor(criterion(input_ids, scores)).to(rows.device)
        return rows

    return over


def callers_processors(processors: Sequence[Any], config: Any) -> list[Any]:
    """The processors that `config` alone would not have built.

    transformers puts a caller's processor in the place of the config's one of the same class. Such
    a one is told apart by its value: with the config's own value it counts as the config's.
    """
    own = _without(list(processors), _EDITS, config)
    behind = _WARPERS if getattr(config, "do_sample", False) else {}
    return _without(own[::-1], behind, config)[::-1]


def _without(objects: list[Any], built: Mapping[str, tuple[str, str]], config: Any) -> list[Any]:
    """`objects` less the first of each class in `built` that holds the config's value."""
    left, seen = [], set()
    for item in objects:
        name = type(item).__name__
        if name in built and name not in seen and type(item).__module__.startswith("transformers."):
            field, attribute = built[name]
            if _holds(getattr(item, attribute, None), getattr(config, field, None)):
                seen.add(name)
                continue
        left.append(item)
    return left


def _holds(kept: Any, asked: Any) -> bool:
    """Whether a processor's value is what the config's field `asked` for."""
    if asked is None:
        return False
    if isinstance(kept, torch.Tensor):
        return (
            kept.flatten().tolist() == torch.as_tensor(asked, dtype=kept.dtype).flatten().tolist()
        )
    if isinstance(kept, Mapping) and not isinstance(asked, Mapping):
        asked = {tuple(ids): bias for ids, bias in asked}
    return kept is None or bool(kept == asked)


def _check_cache(model_kwargs: Mapping[str, Any]) -> None:
    for name in _CACHES:
        length = getattr(model_kwargs.get(name), "get_seq_length", int)()
        if int(length):
            raise ValueError(
                f"`{name}` holds {int(length)} tokens already, which this loop cannot go on from: "
                "pass all ids and no cache"
            )


def _ids(value: Any) -> tuple[int, ...]:
    """A token id, several or none as a tuple."""
    if value is None:
        return ()
    return tuple(int(token) for token in torch.as_tensor(value).flatten().tolist())
