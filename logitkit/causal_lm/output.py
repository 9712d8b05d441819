"""What a generation returns with `return_dict_in_generate`; filled by `generation.record`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from torch import Tensor
from transformers.generation.utils import GenerateDecoderOnlyOutput

from logitkit.causal_lm.cache import NAMES


@dataclass
class DecoderOnlyOutput(GenerateDecoderOnlyOutput):
    """What `model.generate` returns with `return_dict_in_generate`, and what only logitkit knows.

    `lengths` [B]: new tokens per row. `finish_reasons`: "eos", "stop", "length" or "criteria" per
    row. `stop_matched`: the stop that ended the row, else None. `texts`: the new text per row (with
    a tokenizer), cut at its stop. `logprobs` [B, T], `top_logprobs` and `top_token_ids` [B, T, k]:
    NaN and the pad id behind a row's end. `num_survivors` [B, T], with logprobs in the mode
    "filtered": how many tokens the draw could have taken, 0 behind a row's end. `speculation`: what
    a speculative generation counted. A field that was not asked for is None and no key.
    """

    lengths: Tensor | None = None
    finish_reasons: list[str] | None = None
    stop_matched: list[str | int | None] | None = None
    texts: list[str] | None = None
    logprobs: Tensor | None = None
    top_logprobs: Tensor | None = None
    top_token_ids: Tensor | None = None
    num_survivors: Tensor | None = None
    speculation: Any = None


def decoder_only_output(
    sequences: Tensor,
    scores: tuple[Tensor, ...] | None = None,
    logits: tuple[Tensor, ...] | None = None,
    cache: Any = None,
    **extra_fields: Any,
) -> DecoderOnlyOutput:
    """Build the output with the cache under the field name of the installed release.

    sequences [B, L]; scores and logits: one [B, V] per new token; extra_fields: the fields that
    `DecoderOnlyOutput` adds. An unknown field is a TypeError.
    """
    names = {field.name for field in fields(GenerateDecoderOnlyOutput)}
    cache_name = next(name for name in NAMES if name in names)
    values = {"sequences": sequences, "scores": scores, "logits": logits, cache_name: cache}
    return DecoderOnlyOutput(**values, **extra_fields)
