"""transformers' `GenerationConfig` in the words of `SamplingParams`, read as `generate` reads it.

Beside `spellings`, below `sampling_params`. The object is duck-typed through its `to_dict`: nothing
of transformers is imported.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from logitkit.params.fields import FIELDS
from logitkit.params.spellings import SPELLINGS, UNSUPPORTED

# Our field and transformers' default for each field that only sampling uses ...
_WARPERS: dict[str, Any] = {
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
READ = {*_WARPERS, *_RENAMED, "do_sample", "bad_words_ids", "sequence_bias", "suppress_tokens"}

# What a request cannot say and `generate` can: lengths that count the prompt, time, special
# tokens, caches, outputs, drafting. Whoever calls `from_generation_config` reads these.
LEFT_TO_THE_DOOR = frozenset(
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


def generation_config_fields(generation_config: Any) -> dict[str, Any]:
    """`generation_config` in our names: what `from_generation_config` hands to the constructor.

    Raises ValueError that names every field which is set and cannot be honoured. Attributes that
    transformers does not know are left alone as it does, unless they are sampling fields elsewhere
    (`presence_penalty`): those are named.
    """
    config = _as_mapping(generation_config)
    problems = [
        f"`{name}` = {config[name]!r}" for name in config if _is_refused(name, config[name])
    ]
    fields = {
        field: config[name] for name, field in _RENAMED.items() if config.get(name) is not None
    }
    if config.get("do_sample"):
        for name, default in _WARPERS.items():
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
    problems += [
        f"`sequence_bias` for the {len(ids)} tokens {ids}" for ids in biases if len(ids) != 1
    ]
    bias = {ids[0]: value for ids, value in biases.items() if len(ids) == 1}
    bias.update(dict.fromkeys(_ids(config.get("suppress_tokens")), -math.inf))
    if problems:
        raise ValueError(
            "the generation config asks for what cannot be honoured: "
            + ", ".join(problems)
            + ". Unset these fields, or pass SamplingParams instead of the config."
        )
    return {**fields, "logit_bias": bias}


def _as_mapping(generation_config: Any) -> Mapping[str, Any]:
    if hasattr(generation_config, "to_dict"):
        generation_config = generation_config.to_dict()
    if not isinstance(generation_config, Mapping):
        raise ValueError(
            f"`generation_config` is {generation_config!r}: give a transformers GenerationConfig."
        )
    return generation_config


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
