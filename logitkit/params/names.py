"""The names that other systems use: ours for them, and what to say to those that have none.

Tables and their sentences, below `spellings` and `generation_config`; no value is read here.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

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
MEANT = {
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
        meant = SPELLINGS.get(name) or MEANT.get(name)
        near = [meant] if meant else difflib.get_close_matches(str(name), known, n=1)
        sentences.append(
            f"unknown field `{name}`; did you mean `{near[0]}`?"
            if near
            else f"unknown field `{name}`; a parameter of your own stage goes into `extra`."
        )
    return sentences
