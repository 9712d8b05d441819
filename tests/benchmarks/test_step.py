"""The whole step on the demo model: our loop with a full set of parameters beside greedy
`model.generate`, in turn: `pytest -m bench tests/benchmarks/test_step.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import logitkit as lk

pytestmark = pytest.mark.bench

PARAMS = lk.SamplingParams(
    repetition_penalty=1.1, presence_penalty=0.1, frequency_penalty=0.2, temperature=0.7,
    top_k=50, top_p=0.9, min_p=0.05, sampling_seed=1, ignore_eos=True, max_new_tokens=32,
)  # fmt: skip


@pytest.mark.parametrize("size", [1, 8])
def test_a_step_loses_at_most_five_percent(
    size: int, smollm2: Any, compare: Callable[..., dict[str, float]]
) -> None:
    model, _ = smollm2
    ids = torch.randint(10, 40_000, (size, 64), generator=torch.Generator().manual_seed(1))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def greedy() -> None:
        model.generate(**inputs, do_sample=False, max_new_tokens=32, min_new_tokens=32)

    medians = compare(
        f"32 tokens of SmolLM2-135M, B={size}",
        {
            "lk.generate, all parameters": lambda: lk.generate(model, **inputs, params=PARAMS),
            "model.generate, greedy": greedy,
        },
        rounds=9,
    )

    ours, theirs = medians.values()
    assert ours <= 1.05 * theirs
