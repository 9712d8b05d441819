"""Other systems' requests in the words of `SamplingParams`, and ours in words that JSON has.

Pure functions from mappings to mappings, between `fields` and `sampling_params`: the spellings of
OpenAI, vLLM, SGLang and llama.cpp, and transformers' `GenerationConfig` (duck-typed). What cannot
be honoured is an error that names it, never dropped.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from logitkit.params.checks import FrozenDict
from logitkit.params.fields import STRUCTURED_FIELDS, structured_problem

SPELLINGS = {
    "seed": "sampling_seed",
    "min_tokens": "min_new_tokens",
    "max_tokens": "max_new_tokens",
    "max_completion_tokens": "max_new_tokens",
    "n_predict": "max_new_tokens",
    "typ_p": "typical_p",
    "repeat_penalty": "repetition_penalty",
    "dry_penalty_last_n": "dry_range",
    "n_probs": "logprobs",
    "guided_json": "json_schema",
    "guided_regex": "regex",
    "guided_grammar": "ebnf",
    "grammar": "ebnf",
    "guided_choice": "choice",
    "extra_args": "extra",
    "custom_params": "extra",
}

# names that say how to constrain, inside vLLM's `structured_outputs` and OpenAI's `response_format`
_STRUCTURED = {
    "json": "json_schema",
    "regex": "regex",
    "choice": "choice",
    "grammar": "ebnf",
    "structural_tag": "structural_tag",
}
# Fields that are taken apart before their names are looked up.
_OPENED = ("response_format", "structured_outputs", "guided_decoding", "top_logprobs")
_ANY_OBJECT = {"type": "object"}

# Fields of other systems that have no counterpart here, with the values that ask for nothing
# (None always does).
UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "use_beam_search": (False,),
    "length_penalty": (1.0,),
    "early_stopping": (False,),
    "prompt_logprobs": (False,),
    "prompt_logprob_token_ids": (),
    "prompt_logprob_start": (),
    "logprob_token_ids": (),
    "flat_logprobs": (False,),
    "detokenize": (True,),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "include_stop_str_in_output": (False,),
    "no_stop_trim": (False,),
    "truncate_prompt_tokens": (),
    "thinking_token_budget": (-1,),
    "repetition_detection": (),
    "watermark": (False,),
    "custom_logit_processor": (),
    "logits_processors": ((), []),
    "guided_whitespace_pattern": (),
    "guided_decoding_backend": (),
    "guided_json_object": (False,),
    "echo": (False,),
    "suffix": ("",),
    "mirostat": (0,),
    "mirostat_tau": (5.0,),
    "mirostat_eta": (0.1,),
    "tfs_z": (1.0,),
    "top_a": (0.0,),
    "smoothing_factor": (0.0,),
    "min_keep": (0, 1),
    "repeat_last_n": (-1,),
    "penalty_last_n": (-1,),
    "penalize_nl": (True,),
    "samplers": (),
    "adaptive_target": (-1.0,),
}

# What a request to a server holds besides its sampling parameters.
TRANSPORT = frozenset(
    {
        "add_generation_prompt",
        "audio",
        "cache_prompt",
        "cache_salt",
        "chat_template",
        "chat_template_kwargs",
        "continue_final_message",
        "documents",
        "extra_headers",
        "extra_query",
        "function_call",
        "functions",
        "id_slot",
        "input",
        "input_ids",
        "instructions",
        "messages",
        "metadata",
        "modalities",
        "model",
        "parallel_tool_calls",
        "prediction",
        "priority",
        "prompt",
        "prompt_cache_key",
        "prompt_cache_retention",
        "reasoning",
        "reasoning_effort",
        "request_id",
        "rid",
        "safety_identifier",
        "service_tier",
        "store",
        "stream",
        "stream_options",
        "text",
        "timeout",
        "tool_choice",
        "tools",
        "user",
        "verbosity",
        "web_search_options",
    }
)

# Names that are near one of ours in meaning, but not a spelling that is taken.
_MEANT = {
    "do_sample": "temperature",
    "eos_token_id": "stop_token_ids",
    "max_length": "max_new_tokens",
    "min_length": "min_new_tokens",
    "num_return_sequences": "n",
    "penalty_freq": "frequency_penalty",
    "penalty_present": "presence_penalty",
    "penalty_repeat": "repetition_penalty",
    "random_seed": "sampling_seed",
    "rep_pen": "repetition_penalty",
    "sequence_bias": "logit_bias",
    "stop_sequences": "stop",
    "stop_strings": "stop",
    "suppress_tokens": "logit_bias",
    "temp": "temperature",
    "typical": "typical_p",
}


def unknown_fields(names: Iterable[Any], known: Iterable[str]) -> list[str]:
    """What to say to names that are not in `known`, each with the name that was probably meant."""
    known = list(known)
    unknown = [name for name in names if name not in known]
    transport = [name for name in unknown if name in TRANSPORT]
    sentences = []
    if transport:
        quoted = ", ".join(f"`{name}`" for name in transport)
        sentences.append(
            f"{quoted}: no sampling parameters but parts of a request to a server; take them out."
        )
    if "extra_body" in unknown:
        sentences.append("`extra_body` is opened by clients only: merge its entries.")
    for name in unknown:
        if name in TRANSPORT or name == "extra_body":
            continue
        meant = SPELLINGS.get(name) or _MEANT.get(name)
        near = [meant] if meant else difflib.get_close_matches(str(name), known, n=1)
        sentences.append(
            f"unknown field `{name}`; did you mean `{near[0]}`?"
            if near
            else f"unknown field `{name}`; a parameter of your own stage goes into `extra`."
        )
    return sentences


def spelled_fields(mapping: Mapping[str, Any], own: Iterable[str]) -> dict[str, Any]:
    """`mapping` in our names: what `from_dict` hands to the constructor; `own` are those names.

    Raises ValueError that names every unknown field, every one that cannot be honoured and every
    pair of spellings that disagree, as they are spelled in `mapping`.
    """
    if not isinstance(mapping, Mapping):
        raise ValueError(f"from_dict takes a mapping of field names to values, not {mapping!r}.")
    own = list(own)
    given: dict[str, dict[str, Any]] = {}
    unknown: list[str] = []
    problems: list[str] = []
    for name, inner, value in _opened(mapping, problems):
        field = SPELLINGS.get(inner, inner)
        if field in own:
            value = _read(name, value)
            if value is not None:
                given.setdefault(field, {})[name] = value
        elif name in TRANSPORT and value is None:
            continue
        elif name not in UNSUPPORTED:
            unknown.append(name)
        elif value is not None and value not in UNSUPPORTED[name]:
            problems.append(f"`{name}` is {value!r}, which cannot be honoured: leave it out.")
    for field, spelled in given.items():
        if any(value != next(iter(spelled.values())) for value in spelled.values()):
            pairs = " and ".join(f"`{name}` = {value!r}" for name, value in spelled.items())
            problems.append(f"{pairs} are both `{field}` and disagree: keep one.")
    structured = [name for name in STRUCTURED_FIELDS if name in given]
    if structured:
        problems.append(structured_problem([next(iter(given[name])) for name in structured]))
    problems = unknown_fields(unknown, [*own, *SPELLINGS, *UNSUPPORTED]) + problems
    if problems:
        raise ValueError(" ".join(problems))
    return {field: next(iter(spelled.values())) for field, spelled in given.items()}


def _opened(mapping: Mapping[str, Any], problems: list[str]) -> Iterator[tuple[str, str, Any]]:
    """The names in `mapping`, the fields meant and their values; a name may hold several fields."""
    for name, value in mapping.items():
        if name in _OPENED and value is None:
            continue
        if name == "response_format":
            yield from ((name, *item) for item in _response_format(value, problems))
        elif name in ("structured_outputs", "guided_decoding"):
            yield from ((name, *item) for item in _structured_outputs(name, value, problems))
        elif name == "logprobs" and isinstance(value, bool):
            # OpenAI's chat form: a switch, with the number beside it
            yield name, name, (mapping.get("top_logprobs") or 0) if value else None
        elif name == "top_logprobs":
            count = mapping.get("logprobs")
            if value and (count is None or count is False):
                problems.append(f"`top_logprobs` is {value!r} without `logprobs`: set that True.")
            elif count not in (None, False, True) and value != count:
                problems.append(
                    f"`top_logprobs` = {value!r} and `logprobs` = {count!r} disagree: keep one."
                )
        else:
            yield name, name, value


def _response_format(value: Any, problems: list[str]) -> Iterator[tuple[str, Any]]:
    kind = value.get("type") if isinstance(value, Mapping) else None
    if kind == "json_object":
        yield "json_schema", value.get("schema") or _ANY_OBJECT
    elif kind == "json_schema":
        holder = value.get("json_schema")
        holder = holder if isinstance(holder, Mapping) else value
        yield "json_schema", holder.get("schema") or _ANY_OBJECT
    elif kind == "structural_tag":
        yield "structural_tag", value
    elif kind != "text":
        problems.append(
            f"`response_format` is {value!r}: its type is one of 'text', 'json_object', "
            "'json_schema' and 'structural_tag'."
        )


def _structured_outputs(name: str, value: Any, problems: list[str]) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        problems.append(f"`{name}` is {value!r}: give a mapping with one of {list(_STRUCTURED)}.")
        return
    for key, entry in value.items():
        if key in _STRUCTURED:
            yield _STRUCTURED[key], entry
        elif key == "json_object" and entry:
            yield "json_schema", _ANY_OBJECT
        elif entry:
            problems.append(f"`{name}` holds `{key}` = {entry!r}, which cannot be honoured.")


def _read(name: str, value: Any) -> Any:
    """A value in our form, where another system's differs; None for the default."""
    if name in ("seed", "n_predict", "max_tokens", "max_completion_tokens") and value == -1:
        return None  # vLLM and llama.cpp: drawn at random; until the end
    if name == "n_probs" and value == 0:
        return None
    if name == "logit_bias" and isinstance(value, list | tuple):
        pairs = {str(entry[0]): entry[1] for entry in value if _is_pair(entry)}
        if len(pairs) < len(value):
            raise ValueError(
                f"`logit_bias` is {value!r}: as a list it holds [token id, bias] pairs, each id "
                "once. Give such pairs or a mapping."
            )
        value = pairs
    if name == "logit_bias" and isinstance(value, Mapping):
        # llama.cpp's spelling of a ban, and ours in JSON
        return {
            token: -math.inf if bias is False or bias == "-inf" else bias
            for token, bias in value.items()
        }
    return value


def _is_pair(entry: Any) -> bool:
    return isinstance(entry, list | tuple) and len(entry) == 2


def plain_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """`values` with lists for tuples, strings for ids as keys, and "-inf" for a ban.

    Raises ValueError that names a value which strict JSON does not have.
    """
    result = {name: value for name, value in values.items() if name != "logit_bias"}
    result = {name: _plain(name, value) for name, value in result.items()}
    if "logit_bias" in values:
        result["logit_bias"] = {
            str(token): "-inf" if bias == -math.inf else bias
            for token, bias in values["logit_bias"].items()
        }
    return result


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(f"{name}[{index}]", entry) for index, entry in enumerate(value)]
    if isinstance(value, FrozenDict) and all(isinstance(key, str) for key in value):
        return {key: _plain(f"{name}[{key!r}]", entry) for key, entry in value.items()}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise ValueError(
        f"`{name}` is {value!r}, which JSON does not have: to_dict takes None, bools, finite "
        "numbers, strings, lists and mappings with string keys. Replace it before to_dict."
    )
