"""How a call of the Triton kernels compares with the same call in plain torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import oracle
import torch
from helpers import INF, arguments, start, tensors
from torch import Tensor

import triton_ops
from logitkit import SamplingParams
from logitkit.ops import FILTERS, OK, ORDER, reference

FILTER_ARGUMENTS = {name for stage in FILTERS for name in ORDER[stage]}


def requests(fields: Sequence[dict[str, Any]]) -> list[SamplingParams]:
    """One request per dictionary, each with a seed of its own."""
    return [SamplingParams(**{"sampling_seed": 100 + i} | f) for i, f in enumerate(fields)]


def compare(
    logits: Tensor,
    params: Sequence[SamplingParams],
    prompts: list[list[int]],
    device: str = "cpu",
    masks: Mapping[str, Tensor] | None = None,
) -> int:
    """Assert that triton_ops and the reference agree on every row; how many rounding decided.

    The reference runs on the CPU, the kernels on `device`. `masks` are the arguments of a grammar.
    """
    width = logits.shape[1]
    lengths = [len(p) // 2 for p in prompts]
    batch = start(params, prompts, width, backend="numba", prompt_lengths=lengths)
    rows, given = batch.rows(), arguments(batch) | dict(masks or {})
    call = (logits, *tensors(rows))
    want, status = reference.process_logits(*call, **given)
    there = [tensor.to(device) for tensor in call]
    columns = {name: column.to(device) for name, column in given.items()}
    got, got_status = (found.cpu() for found in triton_ops.process_logits(*there, **columns))
    assert got_status.tolist() == status.tolist()
    good = status == OK
    same = ((want > -INF) == (got > -INF)).all(-1) | ~good
    rounded = (~same).nonzero().flatten().tolist()
    if rounded:
        edits = {k: v for k, v in given.items() if k not in FILTER_ARGUMENTS}
        edited, _ = reference.process_logits(*call, **edits)
        for r in rounded:
            kept, margin = oracle.chain(edited[r].double().numpy(), values_of(batch.params[r]))
            assert margin < oracle.MARGIN, (
                f"row {r}, {batch.params[r]}: torch keeps {int((want[r] > -INF).sum())}, triton "
                f"{int((got[r] > -INF).sum())}, the oracle {int(kept.sum())} (margin {margin:.2e})"
            )
    survived = (same & good)[:, None] & (want > -INF)
    if "dynatemp_range" in given and (given["dynatemp_range"] > 0).any():
        torch.testing.assert_close(got[survived], want[survived], rtol=3e-7, atol=0)
    else:
        assert torch.equal(got[survived], want[survived])
    tokens, _ = reference.sample_tokens(*call, **given)
    drawn, drawn_status = (found.cpu() for found in triton_ops.sample_tokens(*there, **columns))
    assert drawn_status.tolist() == status.tolist()
    assert drawn[same].tolist() == tokens[same].tolist()
    return len(rounded)


def values_of(params: SamplingParams) -> dict[str, float]:
    """The filters of a request as the oracle takes them."""
    if params.temperature == 0:
        return {}
    values = {name: getattr(params, name) for name in oracle.FILTERS}
    del values["xtc_threshold"]
    return values
