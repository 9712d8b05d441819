"""A `LogitsPipeline` called by hand, on logits that are made up."""

from __future__ import annotations

from typing import Any

import torch
from pipeline_models import EOS, PAD
from torch import Tensor

from logitkit import LogitsPipeline, SamplingParams

V = 97
INF = float("inf")
FULL = SamplingParams(
    temperature=0.8, top_k=30, top_p=0.9, min_p=0.01, repetition_penalty=1.2, presence_penalty=0.3,
    frequency_penalty=0.2, no_repeat_ngram_size=3, dry_multiplier=0.5, dry_sequence_breakers=[[5]],
    xtc_probability=0.5, min_new_tokens=4, sampling_seed=11,
)  # fmt: skip


def logits(rows: int, seed: int = 0, width: int = V) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(8, width, generator=g)[:rows]


def ids(*rows: list[int]) -> Tensor:
    return torch.tensor(rows)


def pipeline(params: Any = FULL, **options: Any) -> LogitsPipeline:
    return LogitsPipeline(params, **{"eos_token_id": EOS, "pad_token_id": PAD} | options)


def drawn(row: Tensor) -> int:
    """The token of a selected row."""
    assert row.max() == 0.0
    assert int((row > -INF).sum()) == 1
    return int(row.argmax())


def walked(params: Any, x: Tensor, prompt_width: int, scores: Tensor, **options: Any) -> Tensor:
    """The logits of a pipeline that joins at `x`."""
    pipe = pipeline(params, **options)
    pipe.reset(prompt_lengths=prompt_width)
    return pipe.process(x, scores)


ORDINARY = SamplingParams(sampling_seed=1)
