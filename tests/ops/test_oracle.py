"""Both backends against the float64 oracle: exactly the same survivors, on every kind of row.

Rows whose deciding quantity lies within 1e-6 of its threshold are not compared; they are counted
per filter, and a test fails if there are more than a few.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import oracle
import pytest
import torch
from helpers import INF, OPS, arguments, logit_rows, start, tensors
from torch import Tensor

from logitkit import SamplingParams
from logitkit.randomness import XTC_STREAM

ROWS = 6
GRID: dict[str, tuple[float, ...]] = {
    "top_n_sigma": (0.05, 0.7, 1.5, 3.0),
    "top_h": (0.103, 0.507, 0.905, 1.0),
    "top_k": (1, 2, 40, 300, 1029),
    "top_p": (1e-6, 0.15, 0.5, 0.93, 0.9995),
    "min_p": (1e-5, 0.03, 0.37, 1.0),
    "typical_p": (1e-6, 0.15, 0.5, 0.93, 0.9995),
    "epsilon_cutoff": (1e-6, 7e-4, 0.03, 0.6),
    "eta_cutoff": (1e-6, 7e-4, 0.03, 0.6),
    "xtc_threshold": (0.0, 1e-5, 0.013, 0.2, 0.6),
}


def kept_by(ops: Any, logits: Tensor, params: SamplingParams) -> Tensor:
    """Which entries a backend keeps, [R, V] bool."""
    batch = start(params, [[]] * len(logits), logits.shape[-1])
    out, status = ops.process_logits(logits, *tensors(batch.rows()), **arguments(batch))
    assert not status.any()
    return out > -INF


def differing(logits: Tensor, values: dict[str, float]) -> tuple[int, int]:
    """Compare both backends with the oracle: rows compared, and rows too close to compare."""
    fields = dict(values)
    if "xtc_threshold" in fields:
        fields["xtc_probability"] = 1.0
    params = SamplingParams(sampling_seed=3, **fields)
    found = {name: kept_by(ops, logits, params) for name, ops in OPS.items()}
    compared = close = 0
    for r, row in enumerate(logits.double().numpy()):
        kept, margin = oracle.chain(row, values)
        if margin < oracle.MARGIN:
            close += 1
            continue
        compared += 1
        for name, mine in found.items():
            wrong = np.flatnonzero(mine[r].numpy() != kept)
            assert wrong.size == 0, f"{name}, {values}, row {r}: {wrong[:9]} (margin {margin:.1e})"
    return compared, close


@pytest.mark.parametrize("size", [5, 100, 1030, 6001])
@pytest.mark.parametrize("name", list(GRID))
def test_each_filter_keeps_exactly_the_oracles_tokens(name: str, size: int) -> None:
    compared = close = 0
    for kind, logits in logit_rows(ROWS, size, seed=size).items():
        if kind.startswith("strided"):
            continue
        for value in GRID[name]:
            count = differing(logits.float(), {name: value})
            compared, close = compared + count[0], close + count[1]
    total = compared + close
    assert close <= 0.15 * total, f"{close} of {total} rows were too close to compare"


@pytest.mark.parametrize("seed", range(4))
def test_chains_of_filters_keep_exactly_the_oracles_tokens(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    compared = close = 0
    for size in (30, 700, 5000):
        for logits in logit_rows(ROWS, size, seed=seed).values():
            values = {
                name: grid[int(torch.randint(len(grid), (1,), generator=g))]
                for name, grid in GRID.items()
                if torch.rand(1, generator=g) < 0.4
            }
            count = differing(logits.float(), values)
            compared, close = compared + count[0], close + count[1]
    assert close <= 0.15 * (compared + close), f"{close} rows were too close to compare"


def test_the_oracle_agrees_with_a_table_made_by_hand() -> None:
    x = np.log(np.array([0.4, 0.3, 0.15, 0.1, 0.05]))
    # above each token stands 0, 0.4, 0.7, 0.85, 0.95: p = 0.75 keeps three
    assert oracle.top_p(x, 0.75)[0].tolist() == [True, True, True, False, False]
    assert oracle.top_p(x, 0.75)[1] == pytest.approx(0.05)  # 0.7 is nearest
    assert oracle.top_k(x, 2)[0].tolist() == [True, True, False, False, False]
    # 0.3 / 0.4 = 0.75, 0.15 / 0.4 = 0.375
    assert oracle.min_p(x, 0.5)[0].tolist() == [True, True, False, False, False]
    # entropy 1.3927, surprises .916 1.204 1.897 2.303 2.996, distances .476 .189 .504 .910 1.60
    assert oracle.typical_p(x, 0.29)[0].tolist() == [False, True, False, False, False]
    assert oracle.typical_p(x, 0.6)[0].tolist() == [True, True, False, False, False]
    # two tokens have 0.3 or more: the larger goes
    assert oracle.xtc(x, 0.25)[0].tolist() == [False, True, True, True, True]
    assert oracle.epsilon_cutoff(x, 0.12)[0].tolist() == [True, True, True, False, False]
    # sqrt(0.2) * exp(-1.3927) = 0.1111
    assert oracle.eta_cutoff(x, 0.2)[0].tolist() == [True, True, True, False, False]
    # mean -1.8631, deviation 0.7421: the floor for n = 1 is -0.9163 - 0.7421 = -1.6584
    assert oracle.top_n_sigma(x, 1.0)[0].tolist() == [True, True, False, False, False]
    # entropy terms .3665 .3612 .2846 .2303 .1498; half of 1.3923 is .696: one term fits
    assert oracle.top_h(x, 0.5)[0].tolist() == [True, False, False, False, False]
    assert oracle.top_h(x, 0.53)[0].tolist() == [True, True, False, False, False]


def test_xtc_leaves_a_row_alone_when_its_coin_says_no() -> None:
    logits = torch.randn(200, 40)
    batch = start(
        [SamplingParams(xtc_probability=0.4, sampling_seed=i) for i in range(200)],
        [[]] * 200,
        40,
    )
    coins = batch.rows().uniform(XTC_STREAM)
    for ops in OPS.values():
        out, _ = ops.process_logits(logits, *tensors(batch.rows()), **arguments(batch))
        for r in range(200):
            kept = oracle.xtc(logits[r].double().numpy(), 0.1)[0]
            want = kept if coins[r] < 0.4 else np.ones(40, bool)
            assert (out[r] > -INF).tolist() == want.tolist()
