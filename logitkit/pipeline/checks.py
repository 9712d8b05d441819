"""What `LogitsPipeline` asks of its arguments, with errors that say what to do."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from logitkit.params import SamplingParams
from logitkit.pipeline.prefixes import Ids


def on_cpu(ids: Tensor) -> Ids:
    """The ids as int64 numpy, without a copy where they already are."""
    if ids.dtype is not torch.int64 and (ids.dtype.is_floating_point or ids.dtype is torch.bool):
        raise ValueError(f"`input_ids` must hold integers, got {ids.dtype}")
    on_cpu: Ids = ids.to("cpu", torch.int64).numpy()
    return on_cpu


def requests(params: Any) -> tuple[SamplingParams, ...]:
    """One `SamplingParams` or a list of them as a tuple."""
    if isinstance(params, SamplingParams):
        return (params,)
    if not isinstance(params, Sequence) or isinstance(params, str):
        raise ValueError(f"`params` must be SamplingParams or a list of them, got {params!r}")
    if not params:
        raise ValueError("`params` is empty; give one SamplingParams, or one per prompt")
    for p in params:
        if not isinstance(p, SamplingParams):
            raise ValueError(f"`params` must hold SamplingParams, got {p!r}")
    return tuple(params)


def token_ids(given: Any, tokenizer: Any, name: str) -> tuple[int, ...]:
    """Token ids as given, or the tokenizer's."""
    if given is None:
        given = getattr(tokenizer, name, None)
    if given is None:
        return ()
    found = given if isinstance(given, list | tuple) else [given]
    try:
        if not found or any(isinstance(i, bool) or i < 0 for i in found):
            raise TypeError
        return tuple(operator.index(i) for i in found)
    except TypeError:
        raise ValueError(
            f"`{name}` must be a token id >= 0 or a list of them, got {given!r}"
        ) from None


def prompt_lengths(given: Any, lengths: Ids) -> Ids:
    """How many ids of every row are prompt, [B]; `lengths` [B] is the default and the most."""
    if given is None:
        return lengths
    prompts = np.asarray(given)
    if prompts.dtype.kind not in "iu" or prompts.shape not in ((), lengths.shape):
        raise ValueError(
            f"`prompt_lengths` must be one int or one per row ({len(lengths)}), got {given!r}"
        )
    prompts = np.broadcast_to(prompts, lengths.shape).astype(np.int64)
    if (prompts < 0).any() or (prompts > lengths).any():
        raise ValueError(
            f"`prompt_lengths`={prompts.tolist()} must lie between 0 and the rows' lengths "
            f"{lengths.tolist()} (padding not counted)"
        )
    return prompts


def refuse_beams(prompts: Sequence[Tensor], scores: Tensor) -> None:
    """Refuse beam search, to which selected rows leave nothing to compare.

    It is known by its copies of one prompt and by its scores, which are log-probabilities of every
    token; what was masked before is no sign of it.
    """
    copies = any(torch.equal(one, next_one) for one, next_one in pairwise(prompts))
    is_whole = scores.shape[1] > 1 and bool(scores.isfinite().all())
    if copies and is_whole and bool((scores.float().logsumexp(-1).abs() < 1e-3).all()):
        raise ValueError(
            "`select`=True cannot serve beam search, which must compare scores: "
            "use LogitsPipeline(..., select=False)"
        )
