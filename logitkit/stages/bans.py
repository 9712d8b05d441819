"""Stages that allow, bias or ban given tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from logitkit.params import ResolvedParams, SamplingParams
from logitkit.rows import Rows
from logitkit.stage import BuiltinStage, ragged


@dataclass(frozen=True, eq=False)
class AllowedTokenIds(BuiltinStage):
    """Only these tokens may be drawn (vLLM). Neutral: None."""

    op: ClassVar[str | None] = "allowed_token_ids"
    allowed_token_ids: tuple[int, ...] | None = None

    def columns(self, params: Sequence[ResolvedParams]) -> dict[str, Tensor]:
        lists = [p.allowed_token_ids for p in params]
        distinct = sorted({ids for ids in lists if ids is not None})
        words = 1 + max((ids[-1] for ids in distinct), default=0) // 32
        mask = torch.zeros(max(1, len(distinct)), words, dtype=torch.int64)
        for row, ids in enumerate(distinct):
            found = torch.tensor(ids)
            mask[row].index_add_(0, found // 32, 1 << (found % 32))
        row_of = {ids: row for row, ids in enumerate(distinct)}
        return {
            "allowed_mask": mask.to(torch.int32),
            "allowed_row": torch.tensor([-1 if ids is None else row_of[ids] for ids in lists]),
        }

    def op_args(self, rows: Rows) -> dict[str, Tensor]:
        return {name: rows.columns[name] for name in ("allowed_mask", "allowed_row")}


@dataclass(frozen=True, eq=False)
class LogitBias(BuiltinStage):
    """Add a constant to some logits; -inf bans (OpenAI). Neutral: no entries."""

    op: ClassVar[str | None] = "logit_bias"
    logit_bias: Mapping[int, float] = field(default_factory=dict)

    def columns(self, params: Sequence[ResolvedParams]) -> dict[str, Tensor]:
        offsets, ids = ragged(list(p.logit_bias) for p in params)
        values = [bias for p in params for bias in p.logit_bias.values()]
        return {
            "bias_offsets": offsets,
            "bias_ids": ids,
            "bias_values": torch.tensor(values, dtype=torch.float32),
        }

    def op_args(self, rows: Rows) -> dict[str, Tensor]:
        return {name: rows.columns[name] for name in ("bias_offsets", "bias_ids", "bias_values")}


@dataclass(frozen=True, eq=False)
class BadWords(BuiltinStage):
    """Sequences of tokens that must not appear (transformers, vLLM). Neutral: none."""

    op: ClassVar[str | None] = "bad_words"
    bad_words_ids: tuple[tuple[int, ...], ...] = ()

    def columns(self, params: Sequence[ResolvedParams]) -> dict[str, Tensor]:
        counts = torch.tensor([0] + [len(p.bad_words_ids) for p in params])
        starts, tokens = ragged(ids for p in params for ids in p.bad_words_ids)
        return {
            "bad_words_offsets": counts.cumsum(0),
            "bad_words_starts": starts,
            "bad_words_tokens": tokens,
        }

    def op_args(self, rows: Rows) -> dict[str, Tensor]:
        names = ("bad_words_offsets", "bad_words_starts", "bad_words_tokens")
        return {name: rows.columns[name] for name in names}


@dataclass(frozen=True, eq=False)
class MinNewTokens(BuiltinStage):
    """No eos and no stop token before this many new tokens. Neutral: 0.

    In a plan the request's eos ids are known; alone in transformers name them as `stop_token_ids`.
    """

    op: ClassVar[str | None] = "min_new_tokens"
    min_new_tokens: int = 0
    stop_token_ids: tuple[int, ...] = ()

    def is_neutral(self, params: SamplingParams) -> bool:
        return params.min_new_tokens == 0

    def columns(self, params: Sequence[ResolvedParams]) -> dict[str, Tensor]:
        offsets, ids = ragged(ending_ids(p) for p in params)
        return {
            "min_new_tokens": torch.tensor([p.min_new_tokens for p in params]),
            "ending_offsets": offsets,
            "ending_ids": ids,
        }

    def op_args(self, rows: Rows) -> dict[str, Tensor]:
        names = ("min_new_tokens", "ending_offsets", "ending_ids")
        return {name: rows.columns[name] for name in names}


def ending_ids(params: ResolvedParams) -> list[int]:
    """The tokens that end this request by themselves."""
    return sorted({*params.ending_eos_ids, *params.stop_token_ids})
