"""The CPU kernels beside plain torch on the same rows, and requests that make every stage act."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import oracle
import torch
from helpers import INF, arguments, start, tensors
from torch import Tensor

from logitkit import SamplingParams
from logitkit.ops import FILTERS, OK, ORDER, numba_ops, reference

FILTER_ARGUMENTS = {name for stage in FILTERS for name in ORDER[stage]}

EVERY_FILTER: tuple[dict[str, Any], ...] = (
    {"top_n_sigma": 1.5},
    {"top_n_sigma": 0.01},
    {"top_h": 0.4},
    {"top_h": 1.0},
    {"top_k": 1},
    {"top_k": 40},
    {"top_k": 2500},
    {"top_k": 60_000},
    {"top_p": 0.9},
    {"top_p": 0.999},
    {"top_p": 0.01},
    {"min_p": 0.05},
    {"min_p": 1.0},
    {"typical_p": 0.9},
    {"typical_p": 0.2},
    {"epsilon_cutoff": 3e-4},
    {"eta_cutoff": 2e-3},
    {"xtc_probability": 1.0, "xtc_threshold": 0.1},
    {"xtc_probability": 1.0, "xtc_threshold": 1e-4},
    {"xtc_probability": 1.0, "xtc_threshold": 0.0},
    {"xtc_probability": 0.5, "xtc_threshold": 0.05},
)
EVERY_EDIT: tuple[dict[str, Any], ...] = (
    {"allowed_token_ids": [0]},
    {"logit_bias": {0: 2.5}},
    {"logit_bias": {0: -INF}, "top_k": 3},
    {"bad_words_ids": [[1], [0, 1], [2, 2, 0]]},
    {"repetition_penalty": 1.3},
    {"presence_penalty": 0.4, "frequency_penalty": 0.3},
    {"frequency_penalty": -0.9, "repetition_penalty": 0.8},
    {"dry_multiplier": 0.9, "dry_sequence_breakers": [[2], [1, 3], [4, 0, 1]]},
    {"dry_multiplier": 0.9, "dry_sequence_breakers": [], "dry_range": 6, "dry_base": 2.5},
    {"no_repeat_ngram_size": 1},
    {"no_repeat_ngram_size": 3},
    {"min_new_tokens": 50, "stop_token_ids": [0]},
    {"temperature": 0.0},
    {"temperature": 0.6},
    {"temperature": 3.0, "dynatemp_range": 2.5, "dynatemp_exponent": 1.5},
    {"dynatemp_range": 0.5},
    {"temperature": 0.1, "dynatemp_range": 4.0},
)
EVERYTHING: dict[str, Any] = {
    "logit_bias": {0: 0.5, 1: -0.25},
    "bad_words_ids": [[1, 2]],
    "repetition_penalty": 1.1,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.2,
    "dry_multiplier": 0.8,
    "dry_sequence_breakers": [[3]],
    "no_repeat_ngram_size": 4,
    "min_new_tokens": 30,
    "temperature": 0.8,
    "dynatemp_range": 0.2,
    "top_n_sigma": 2.5,
    "top_h": 0.9,
    "top_k": 50,
    "top_p": 0.95,
    "min_p": 0.001,
    "typical_p": 0.97,
    "epsilon_cutoff": 1e-4,
    "eta_cutoff": 1e-4,
    "xtc_probability": 0.5,
    "xtc_threshold": 0.05,
}


def fitting(request: dict[str, Any], vocab_size: int) -> SamplingParams:
    """The request without ids that this vocabulary lacks."""
    request = dict(request)
    if "logit_bias" in request:
        biases = request["logit_bias"].items()
        request["logit_bias"] = {token: bias for token, bias in biases if token < vocab_size}
    for name in {"bad_words_ids", "dry_sequence_breakers"} & set(request):
        request[name] = [ids for ids in request[name] if max(ids) < vocab_size]
    return SamplingParams(**{"sampling_seed": 11} | request)


def compare(
    logits: Tensor,
    params: SamplingParams | Sequence[SamplingParams],
    prompts: list[list[int]],
    masks: Mapping[str, Tensor] | None = None,
) -> int:
    """Assert that both backends agree on every row; the number of rows decided by rounding.

    `masks` are the arguments of a grammar.
    """
    size, width = logits.shape
    several = [params] * size if isinstance(params, SamplingParams) else list(params)
    seeded = [dataclasses.replace(p, sampling_seed=100 + i) for i, p in enumerate(several)]
    batch = start(seeded, prompts, width, prompt_lengths=[len(p) // 2 for p in prompts])
    rows, given = batch.rows(), arguments(batch) | dict(masks or {})
    want, want_status = reference.process_logits(logits, *tensors(rows), **given)
    got, got_status = numba_ops.process_logits(logits, *tensors(rows), **given)
    assert got_status.tolist() == want_status.tolist()
    same = ((want > -INF) == (got > -INF)).all(-1) | (want_status != OK)
    rounded = (~same).nonzero().flatten().tolist()
    if rounded:
        edits = {k: v for k, v in given.items() if k not in FILTER_ARGUMENTS}
        edited, _ = reference.process_logits(logits, *tensors(rows), **edits)
        for r in rounded:
            kept, margin = oracle.chain(edited[r].double().numpy(), oracle_values(batch.params[r]))
            assert margin < oracle.MARGIN, (
                f"row {r}, {batch.params[r]}: torch keeps {int((want[r] > -INF).sum())}, numba "
                f"{int((got[r] > -INF).sum())}, the oracle {int(kept.sum())} (margin {margin:.2e})"
            )
    decided = same & (want_status == OK)
    survived = decided[:, None] & (want > -INF)
    torch.testing.assert_close(got[survived], want[survived], rtol=3e-7, atol=0)
    tokens, status = reference.sample_tokens(logits, *tensors(rows), **given)
    drawn, drawn_status = numba_ops.sample_tokens(logits, *tensors(rows), **given)
    assert drawn_status.tolist() == status.tolist() == want_status.tolist()
    agreed = same | (want_status != OK)
    assert drawn[agreed].tolist() == tokens[agreed].tolist()
    return len(rounded)


def oracle_values(params: SamplingParams) -> dict[str, float]:
    """The filters of a request as the oracle takes them (XTC as if its coin said yes)."""
    if params.temperature == 0:
        return {}
    values = {name: getattr(params, name) for name in oracle.FILTERS}
    if params.xtc_probability == 0:
        del values["xtc_threshold"]
    return values
