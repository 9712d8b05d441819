"""What a grammar adds to a sampling step, B = 64: `pytest -m bench tests/benchmarks`.

The mask alone (the same fused call with and without masks, V = 128,256), and the whole step of a
batch, engine and Python included, over a vocabulary of ASCII strings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import arguments, start, tensors

import logitkit as lk
from logitkit.ops import numba_ops
from logitkit.params import resolve

pytestmark = pytest.mark.bench

WIDTH, SIZE = 128_256, 64
CHAINS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "draw": {"temperature": 0.8},
    "filters": {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "min_p": 0.05},
    "penalty": {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "repetition_penalty": 1.1},
}
Compare = Callable[..., dict[str, float]]


def packed(share: float) -> dict[str, torch.Tensor]:
    """A mask per row in which this share of tokens is allowed."""
    g = torch.Generator().manual_seed(1)
    words = WIDTH // 32
    bits = torch.rand(SIZE, words, 32, generator=g) < share
    rows = (bits.long() << torch.arange(32)).sum(-1).to(torch.int32)
    everything = torch.full((1, words), -1, dtype=torch.int32)
    return {
        "mask_rows": torch.cat([everything, rows]),
        "mask_row": torch.arange(1, SIZE + 1, dtype=torch.int32),
    }


@pytest.mark.parametrize("chain", CHAINS)
def test_a_mask_adds_less_than_a_tenth(chain: str, compare: Compare) -> None:
    logits = 3 * torch.randn(SIZE, WIDTH)
    params = [lk.SamplingParams(sampling_seed=i, **CHAINS[chain]) for i in range(SIZE)]
    batch = start(params, [list(range(500))] * SIZE, WIDTH, backend="numba")
    call, given = (logits, *tensors(batch.rows())), arguments(batch)
    steps = {"no grammar": lambda: numba_ops.sample_tokens(*call, **given)}
    for name, share in (("98 % allowed", 0.98), ("half", 0.5), ("100 tokens", 100 / WIDTH)):
        both = given | packed(share)
        steps[name] = lambda both=both: numba_ops.sample_tokens(*call, **both)
    medians = compare(f"masks, {chain}, B={SIZE}", steps, rounds=40)
    plain = medians.pop("no grammar")

    assert max(medians.values()) <= 1.1 * plain


def test_a_whole_step_with_a_grammar(compare: Compare) -> None:
    text = [chr(i) for i in range(32, 127)]
    tokens = [a.encode() for a in text]
    tokens += [(a + b).encode() for a in text for b in text]
    tokens += [(a + b + c).encode() for a in text for b in text for c in text[:13]]
    vocabulary = lk.Vocabulary(tokens[: WIDTH - 1], WIDTH - 1, size=WIDTH)
    logits = 3 * torch.randn(SIZE, WIDTH)
    kinds: dict[str, dict[str, Any]] = {"no grammar": {}, "regex": {"regex": r"[^\n]{1,100000}"}}

    def step(fields: dict[str, Any]) -> Callable[[], None]:
        params = [
            resolve(
                lk.SamplingParams(sampling_seed=i, **CHAINS["filters"], **fields),
                vocab_size=WIDTH, vocabulary=vocabulary,
            )
            for i in range(SIZE)
        ]  # fmt: skip
        batch = lk.Batch.start(params, [[1, 2, 3]] * SIZE, vocab_size=WIDTH, backend="numba")
        return lambda: batch.commit(batch.plan.sample(logits, batch.rows()))

    medians = compare(f"step, B={SIZE}", {name: step(f) for name, f in kinds.items()}, rounds=40)

    assert medians["regex"] <= 1.25 * medians["no grammar"]
