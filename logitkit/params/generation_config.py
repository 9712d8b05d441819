"""transformers' `GenerationConfig` in the words of `SamplingParams`, read as `generate` reads it.

Beside `spellings`, below `sampling_params`. The object is duck-typed through its `to_dict`: nothing
of transformers is imported.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from typing import Any

from logitkit.params.checks import kind, shown
from logitkit.params.fields import FIELDS
from logitkit.params.names import SPELLINGS, UNSUPPORTED

# Our field and transformers' default for each field that only sampling uses ...
WARPERS: dict[str, Any] = {
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
    "min_p": 0.0,
    "top_h": 0.0,
    "typical_p": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
}
# ... our name for each that is used as it is ...
_RENAMED = {
    "repetition_penalty": "repetition_penalty",
    "no_repeat_ngram_size": "no_repeat_ngram_size",
    "min_new_tokens": "min_new_tokens",
    "max_new_tokens": "max_new_tokens",
    "stop_strings": "stop",
    "num_return_sequences": "n",
}
# ... and all that is read here.
READ = {*WARPERS, *_RENAMED, "do_sample", "bad_words_ids", "sequence_bias", "suppress_tokens"}

# What says how to sample, with transformers' default (None also stands for an empty list).
SAMPLING: dict[str, Any] = {
    **WARPERS,
    "repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "min_new_tokens": 0,
    "min_length": 0,
    "bad_words_ids": None,
    "sequence_bias": None,
    "suppress_tokens": None,
}

# Speculation, which changes nothing but the time: a model file's value has no effect either.
SPECULATION = frozenset(
    {
        "is_assistant",
        "num_assistant_tokens",
        "num_assistant_tokens_schedule",
        "assistant_confidence_threshold",
        "prompt_lookup_num_tokens",
        "max_matching_ngram_size",
        "assistant_early_exit",
        "assistant_lookbehind",
        "target_lookbehind",
        "assistant_ensemble_weight",
        "speculation_type",
        "use_mtp",
    }
)

# What a request cannot say and `generate` can: lengths that count the prompt, time, special
# tokens, caches, outputs, drafting. Whoever calls `generation_config_fields` reads these.
LEFT_TO_THE_DOOR = (
    frozenset(
        {
            "max_length",
            "min_length",
            "max_time",
            "pad_token_id",
            "bos_token_id",
            "eos_token_id",
            "decoder_start_token_id",
            "use_cache",
            "cache_implementation",
            "cache_config",
            "max_cache_len",
            "prefill_chunk_size",
            "compile_config",
            "disable_compile",
            "continuous_batching_config",
            "output_attentions",
            "output_hidden_states",
            "output_scores",
            "output_logits",
            "return_dict_in_generate",
        }
    )
    | SPECULATION
)

# Of these, what would change the text and is lost in `SamplingParams` alone, with the values that
# ask for nothing and the field that makes it idle.
_LENGTHS: dict[str, tuple[tuple[Any, ...], str | None]] = {
    "max_length": ((20,), "max_new_tokens"),
    "min_length": ((0,), "min_new_tokens"),
    "max_time": ((), None),
}
# ... and what asks for speculation, which `generate` takes as `draft=`.
_SPECULATION = frozenset(
    {
        "prompt_lookup_num_tokens",
        "assistant_early_exit",
        "is_assistant",
        "speculation_type",
        "use_mtp",
    }
)

# Without effect on what is drawn here: bookkeeping, beams' own knobs (num_beams is refused),
# contrastive search's memory, and a shift that no stage can see.
INERT = frozenset(
    {"transformers_version", "early_stopping", "length_penalty", "low_memory", "renormalize_logits"}
)

# Cannot be honoured, with the values that ask for nothing (None always does).
REFUSED: dict[str, tuple[Any, ...]] = {
    "num_beams": (1,),
    "num_beam_groups": (1,),
    "diversity_penalty": (0.0,),
    "constraints": ([],),
    "force_words_ids": ([],),
    "penalty_alpha": (0.0,),
    "dola_layers": (),
    "guidance_scale": (1.0,),
    "watermarking_config": (),
    "encoder_repetition_penalty": (1.0,),
    "encoder_no_repeat_ngram_size": (0,),
    "forced_bos_token_id": (),
    "forced_eos_token_id": (),
    "begin_suppress_tokens": ([],),
    "exponential_decay_length_penalty": (),
    "remove_invalid_values": (False,),
    "token_healing": (False,),
}


def request_fields(generation_config: Any) -> dict[str, Any]:
    """`generation_config_fields` for a caller that keeps nothing else of the config.

    Raises ValueError also for the fields that would be lost, and for unknown keys of a mapping.
    """
    config = as_mapping(generation_config)
    wanted = {name: value for name, value in config.items() if value is not None}
    problems = []
    if isinstance(generation_config, Mapping):
        problems += _unknown_keys(wanted)
    lost = [
        name
        for name, (idle, other) in _LENGTHS.items()
        if name in wanted and wanted[name] not in idle and wanted.get(other or "") is None
    ]
    if lost:
        problems.append(
            f"{_listed(lost, wanted)} cannot be kept in SamplingParams: set `max_new_tokens` or "
            "`min_new_tokens`, or pass the config as lk.generate(generation_config=...), which "
            "takes such fields."
        )
    refused = [name for name in wanted if _is_refused(name, wanted[name])]
    refused += [name for name in wanted if name in _SPECULATION and wanted[name]]
    problems += _refusals(refused, wanted, {})
    try:
        fields = generation_config_fields({k: v for k, v in wanted.items() if k not in refused})
    except ValueError as error:
        problems.append(str(error))
    if problems:
        raise ValueError(" ".join(problems))
    return fields


def generation_config_fields(
    generation_config: Any, sources: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """`generation_config` in our names, for the constructor; `LEFT_TO_THE_DOOR` is not looked at.

    `sources` says for a field where it was set, as a key of `SOURCES` (else in the config). Raises
    ValueError that names every field which is set and cannot be honoured. Attributes that
    transformers does not know are left alone as it does, unless they are sampling fields elsewhere
    (`presence_penalty`): those are named.
    """
    config = as_mapping(generation_config)
    fields = {
        field: config[name] for name, field in _RENAMED.items() if config.get(name) is not None
    }
    if config.get("do_sample"):
        for name, default in WARPERS.items():
            value = config.get(name)
            fields[name] = default if value is None else value
    else:
        fields["temperature"] = 0.0
    if config.get("bad_words_ids") is not None:
        eos = _ids(config.get("eos_token_id"))
        fields["bad_words_ids"] = [
            ids for ids in config["bad_words_ids"] if not (len(ids) == 1 and ids[0] in eos)
        ]
    biases = _biases(config.get("sequence_bias"))
    bias = {ids[0]: value for ids, value in biases.items() if len(ids) == 1}
    bias.update(dict.fromkeys(_ids(config.get("suppress_tokens")), -math.inf))
    refused = [name for name in config if _is_refused(name, config[name])]
    several = {ids: value for ids, value in biases.items() if len(ids) != 1}
    if several:
        refused.append("sequence_bias")
    values = {**config, "sequence_bias": several}
    if problems := _refusals(refused, values, sources or {}):
        raise ValueError(" ".join(problems))
    return {**fields, "logit_bias": bias}


# Where a field was set: what to call it there, and what to do.
SOURCES = {
    "config": ("of the generation config", "unset it there"),
    "keyword": ("as a keyword", "leave it out"),
    "call": ("as a keyword or in the generation config", "leave it out"),
    "model": ("of the model's generation config", "unset it there, or sample with SamplingParams"),
}


def _refusals(
    names: Iterable[str], values: Mapping[str, Any], sources: Mapping[str, str]
) -> list[str]:
    """One sentence per source for the fields that cannot be honoured."""
    sentences = []
    for source, (place, remedy) in SOURCES.items():
        mine = [name for name in names if sources.get(name, "config") == source]
        if mine:
            remedy = remedy if len(mine) == 1 else remedy.replace(" it", " them")
            sentences.append(f"{_listed(mine, values)} {place} cannot be honoured: {remedy}.")
    return sentences


def _listed(names: Iterable[str], values: Mapping[str, Any]) -> str:
    return ", ".join(f"`{name}` = {values[name]!r}" for name in names)


def _unknown_keys(names: Iterable[str]) -> list[str]:
    """One sentence per key that no `GenerationConfig` has; private ones come from `to_dict`."""
    known = {*READ, *LEFT_TO_THE_DOOR, *INERT, *REFUSED}
    elsewhere = {*FIELDS, *SPELLINGS, *UNSUPPORTED}
    sentences = []
    for name in names:
        if name in known or name in elsewhere or str(name).startswith("_"):
            continue
        near = difflib.get_close_matches(str(name), sorted(known), n=1)
        hint = f"did you mean `{near[0]}`?" if near else "take it out."
        sentences.append(f"`{name}` is no field of a GenerationConfig; {hint}")
    return sentences


def as_mapping(generation_config: Any) -> Mapping[str, Any]:
    """The fields of a `GenerationConfig` or of a mapping; raises ValueError for anything else."""
    if isinstance(generation_config, Mapping):
        return generation_config
    # other objects with a `to_dict` (a model's config, SamplingParams) say something else with it
    if not hasattr(generation_config, "to_dict") or not hasattr(generation_config, "do_sample"):
        is_config = hasattr(generation_config, "to_dict")
        given = kind(generation_config) if is_config else shown(generation_config)
        raise ValueError(
            f"`generation_config` is {given}: give a transformers "
            "GenerationConfig (such as model.generation_config), or a mapping of its fields."
        )
    values: Mapping[str, Any] = generation_config.to_dict()
    return values


def _is_refused(name: str, value: Any) -> bool:
    if value is None or name in READ or name in LEFT_TO_THE_DOOR or name in INERT:
        return False
    if name in REFUSED:
        return value not in REFUSED[name]
    elsewhere = name in FIELDS or name in SPELLINGS or name in UNSUPPORTED
    return elsewhere and bool(value)


def _ids(value: Any) -> list[Any]:
    """A token id, several or none as a list."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def _biases(value: Any) -> dict[tuple[int, ...], float]:
    """`sequence_bias` in its mapping form; in its list form a later entry wins, as there."""
    if value is None:
        return {}
    pairs = value.items() if isinstance(value, Mapping) else value
    return {tuple(ids): bias for ids, bias in pairs}
