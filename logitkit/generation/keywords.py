"""The keywords of `generate`: resolved as transformers resolves them, or refused by name.

Below `generation`. Three layers are merged: the call (keywords over a passed `generation_config`),
the model file, transformers' defaults.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from logitkit.params import SamplingParams
from logitkit.params.checks import kind, shown
from logitkit.params.fields import checked
from logitkit.params.generation_config import (
    LEFT_TO_THE_DOOR,
    READ,
    SAMPLING,
    SPECULATION,
    generation_config_fields,
)

# Read here.
LENGTHS = frozenset({"max_length", "min_length"})
TOKENS = frozenset({"pad_token_id", "eos_token_id"})
OUTPUTS = frozenset({"return_dict_in_generate", "output_scores", "output_logits"})
HONOURED = LENGTHS | TOKENS | OUTPUTS | {"max_time"}
# Nothing to do for a decoder-only model with a prompt.
IDLE = frozenset({"bos_token_id", "decoder_start_token_id", "disable_compile"})
# How the forward runs, never what it computes: a model file's value has no effect here, and a call
# may not ask for another one than these.
MACHINERY: dict[str, tuple[Any, ...]] = {
    "use_cache": (True,),
    "cache_implementation": ("dynamic", "dynamic_full", "hybrid"),
    "cache_config": ({},),
    "max_cache_len": (),
    "prefill_chunk_size": (),
    "compile_config": (),
    "continuous_batching_config": (),
}
SPECULATION_ARGUMENTS = frozenset({"assistant_model", "assistant_tokenizer"})
NOT_OURS = {
    "custom_generate": "a strategy is passed to model.generate(custom_generate=...)",
    "synced_gpus": "this loop does not wait for other ranks",
    "negative_prompt_ids": "guidance is not available",
    "negative_prompt_attention_mask": "guidance is not available",
    "trust_remote_code": "no code is loaded here",
}
SHOWN = ("output_attentions", "output_hidden_states")
ASKS_FOR_SAMPLING = ("temperature", "top_p", "top_k", "min_p")
# An explicit None in a call takes the model file's value away; for these it means "not given".
_NOT_GIVEN = frozenset({"max_new_tokens", "max_length", "do_sample", "pad_token_id"})
_NEUTRAL = {f.name: f.default for f in dataclasses.fields(SamplingParams)}


@dataclasses.dataclass(frozen=True)
class Keywords:
    """The generation config of one call: `call` is what it says itself, `merged` what holds.

    `sources` says where each field of `merged` was set, as a key of `generation_config.SOURCES`.
    """

    call: Mapping[str, Any]
    merged: Mapping[str, Any]
    sources: Mapping[str, str]

    def sampling_params(self, width: int) -> SamplingParams:
        """What the config asks of every prompt, lengths aside; prompts are `width` wide."""
        fields = dict(self.merged)
        asks = any(self.call.get(name) is not None for name in ASKS_FOR_SAMPLING)
        if asks and self.call.get("do_sample") is None:
            fields["do_sample"] = True
        if fields.get("min_new_tokens") is None and fields.get("min_length"):
            fields["min_new_tokens"] = max(0, fields["min_length"] - width)
        fields["max_new_tokens"] = None
        return SamplingParams(**generation_config_fields(fields, self.sources))

    def max_new_tokens(self, width: int) -> int | None:
        """The limit for requests without one: the call's, else the model file's, else None."""
        for source in (self.call, self.merged):
            most = source.get("max_new_tokens")
            if most is not None:
                return int(checked("max_new_tokens", most, None))
            longest = source.get("max_length")
            if longest is None:
                continue
            if isinstance(longest, bool) or not isinstance(longest, int) or longest <= width:
                raise ValueError(
                    f"`max_length`={longest!r} leaves no room: it counts the prompt, which is "
                    f"{width} wide with padding. Give a larger integer, or max_new_tokens="
                )
            return longest - width
        return None

    def shows(self, output: str) -> bool:
        """Whether the result is to hold `output`; without a dictionary it can hold nothing."""
        return all(self.merged.get(name) for name in ("return_dict_in_generate", output))

    def refuse_sampling(self) -> None:
        """Refuse keywords beside `params` that say again what params say."""
        own = {*SAMPLING, "do_sample", "stop_strings"}
        clash = sorted(name for name in own if self.call.get(name) is not None)
        if clash:
            names = ", ".join(f"`{name}`" for name in clash)
            raise ValueError(
                f"{names} beside `params`: one of the two must say how to sample. "
                f"Set the fields of SamplingParams, or leave `params` out"
            )
        rest = {name: value for name, value in self.call.items() if name not in READ}
        generation_config_fields(rest, self.sources)  # names what cannot be honoured


def read_keywords(
    keywords: dict[str, Any], passed: Any, model_config: Any, known_inputs: Iterable[str]
) -> tuple[Keywords, dict[str, Any]]:
    """Split `keywords` into the generation config's and the model's inputs, and merge the configs.

    Raises ValueError that names a keyword which cannot be honoured or is unknown.
    """
    names = set(_values(model_config)) | READ | LEFT_TO_THE_DOOR
    file = {name: value for name, value in _values(model_config).items() if value is not None}
    given = {name: value for name, value in _values(passed).items() if value is not None}
    given = {name: value for name, value in given.items() if file.get(name) != value}
    spoken = {name: value for name, value in keywords.items() if name in names}
    inputs = {name: value for name, value in keywords.items() if name not in names}
    inputs = {name: value for name, value in inputs.items() if value is not None}
    _refuse_unknown(inputs, names, known_inputs)
    call = {**given, **{name: value for name, value in spoken.items() if value is not None}}
    unset = {
        name: _NEUTRAL.get(name)
        for name, value in spoken.items()
        if value is None and name not in _NOT_GIVEN
    }
    merged = {**file, **call, **unset}
    _refuse(call, merged)
    sources = {name: "keyword" if name in spoken else "config" for name in [*call, *unset]}
    return Keywords(call, merged, {**dict.fromkeys(file, "model"), **sources}), inputs


def _values(config: Any) -> dict[str, Any]:
    if config is None:
        return {}
    if not hasattr(config, "to_dict") or not hasattr(config, "do_sample"):
        given = kind(config) if hasattr(config, "to_dict") else shown(config)
        raise ValueError(
            f"`generation_config` is {given}: give a transformers GenerationConfig, "
            "or SamplingParams as params="
        )
    values: dict[str, Any] = config.to_dict()
    return values


def _refuse(call: Mapping[str, Any], merged: Mapping[str, Any]) -> None:
    for name, value in call.items():
        if name in SPECULATION and value:
            raise ValueError(_no_speculation(name))
        if name in MACHINERY and value not in MACHINERY[name]:
            raise ValueError(
                f"`{name}`={value!r} is not available in this loop, which keeps a growing "
                "cache of its own; leave it out"
            )
    for name in SHOWN:
        if merged.get(name):
            raise ValueError(f"`{name}` is not available in this loop; leave it out")


def _refuse_unknown(
    inputs: Mapping[str, Any], names: Iterable[str], known_inputs: Iterable[str]
) -> None:
    known_inputs = set(known_inputs)
    for name, value in inputs.items():
        if name in SPECULATION_ARGUMENTS:
            raise ValueError(_no_speculation(name))
        if name in NOT_OURS:
            if value:
                raise ValueError(f"`{name}` is not available: {NOT_OURS[name]}; leave it out")
        elif name in _NEUTRAL:
            raise ValueError(
                f"`{name}` is a field of SamplingParams and no keyword of transformers: "
                f"pass params=SamplingParams({name}=...)"
            )
        elif name not in known_inputs:
            # Without a near name it may still be an input of a wrapped model: `CausalLM` will say.
            near = difflib.get_close_matches(name, {*names, *_NEUTRAL}, n=1, cutoff=0.75)
            if near:
                raise ValueError(f"`{name}` is no keyword of generate; did you mean `{near[0]}`?")


def _no_speculation(name: str) -> str:
    return (
        f"`{name}` is transformers' way to speculate; here pass draft= (a model, a source, 'ngram' "
        "for prompt lookup, or 'auto') and num_draft_tokens="
    )
