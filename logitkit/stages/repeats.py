"""Stages that act against repeated sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from logitkit.ops import ORDER
from logitkit.params import ResolvedParams, SamplingParams
from logitkit.rows import Rows
from logitkit.stage import BuiltinStage, column, ragged


@dataclass(frozen=True, eq=False)
class Dry(BuiltinStage):
    """Penalise the token that would lengthen a repetition (llama.cpp's DRY). Neutral: 0."""

    op: ClassVar[str | None] = "dry"
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_range: int = -1
    dry_sequence_breakers: tuple[str | tuple[int, ...], ...] = ()

    def is_neutral(self, params: SamplingParams) -> bool:
        return params.dry_multiplier == 0.0 or params.dry_range == 0

    def columns(self, params: Sequence[ResolvedParams]) -> dict[str, Tensor]:
        # After `resolve` all are ids; sorted by their first token, to search.
        breakers = [sorted(map(_ids, p.dry_sequence_breakers)) for p in params]
        starts, tokens = ragged(ids for found in breakers for ids in found)
        return {
            "dry_multiplier": column(p.dry_multiplier for p in params),
            "dry_base": column(p.dry_base for p in params),
            "dry_allowed_length": column(p.dry_allowed_length for p in params),
            "dry_range": column(p.dry_range for p in params),
            "dry_breaker_offsets": torch.tensor([0, *map(len, breakers)]).cumsum(0),
            "dry_breaker_starts": starts,
            "dry_breaker_tokens": tokens,
        }

    def op_args(self, rows: Rows) -> dict[str, Tensor]:
        return {name: rows.columns[name] for name in ORDER["dry"]}


@dataclass(frozen=True, eq=False)
class NoRepeatNgram(BuiltinStage):
    """No n-gram of this size may appear twice, prompt included (transformers). Neutral: 0."""

    op: ClassVar[str | None] = "no_repeat_ngram"
    no_repeat_ngram_size: int = 0


def _ids(breaker: str | tuple[int, ...]) -> tuple[int, ...]:
    assert not isinstance(breaker, str)
    return breaker
