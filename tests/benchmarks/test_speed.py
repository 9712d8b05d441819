"""One sampling step at V = 128,256 beside the peers: `pytest -m bench tests/benchmarks`.

History: 256 prompt and 256 output tokens. Logits are normal with deviation 3, about what language
models give; the flat rows among the worst cases have deviation 0 to 1. Every bar is a ratio of
medians in one run; the bars are those of the project's first milestone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import peers
import pytest
import torch
from torch import Tensor

import logitkit as lk

pytestmark = pytest.mark.bench

WIDTH = 128_256
FULL: dict[str, Any] = {
    "repetition_penalty": 1.1,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.2,
    "temperature": 0.7,
    "top_k": 50,
    "top_p": 0.9,
    "min_p": 0.05,
}
Compare = Callable[..., dict[str, float]]


def problem(size: int, deviation: float = 3.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(size)
    logits = torch.randn(size, WIDTH, generator=generator) * deviation
    return logits, torch.randint(0, WIDTH, (size, 512), generator=generator)


@pytest.mark.parametrize(("size", "bar"), [(1, 25), (8, 45), (64, 50)])
def test_the_whole_chain_beside_its_peers(
    size: int, bar: float, compare: Compare, benchmark: Any
) -> None:
    logits, ids = problem(size)
    step = peers.ours(logits, ids, 256, FULL)
    steps = {"logitkit": step, "transformers": peers.transformers(logits, ids, 256, FULL)}
    steps["one logits.amax(-1)"] = lambda: logits.amax(-1)
    before = {}
    if llama := peers.llama_cpp(logits, ids, 256, FULL):
        before["llama.cpp"], steps["llama.cpp"] = llama
    if vllm := peers.vllm(logits, FULL):
        steps["vLLM, without penalties"] = vllm
    medians = compare(f"whole chain, B={size}", steps, before)
    benchmark.pedantic(step, rounds=20, warmup_rounds=2)

    assert medians["transformers"] / medians["logitkit"] >= bar
    if size == 64 and "llama.cpp" in medians:
        assert medians["logitkit"] <= 0.6 * medians["llama.cpp"]


@pytest.mark.parametrize("deviation", [3.0, 1.0])
def test_temperature_and_top_p(deviation: float, compare: Compare, benchmark: Any) -> None:
    logits, ids = problem(64, deviation)
    fields = {"temperature": 0.7, "top_p": 0.9}
    step = peers.ours(logits, ids, 256, fields)
    medians = compare(
        f"temperature, top-p, B=64, deviation {deviation:g}",
        {"logitkit": step, "transformers": peers.transformers(logits, ids, 256, fields)},
    )
    benchmark.pedantic(step, rounds=20, warmup_rounds=2)

    assert medians["transformers"] / medians["logitkit"] >= (45 if deviation > 1 else 10)


@pytest.mark.parametrize("size", [1, 64])
def test_temperature_alone(size: int, compare: Compare, benchmark: Any) -> None:
    logits, ids = problem(size)
    fields = {"temperature": 0.7}
    step = peers.ours(logits, ids, 256, fields)
    medians = compare(
        f"temperature, B={size}",
        {"logitkit": step, "softmax + multinomial": peers.transformers(logits, ids, 256, fields)},
    )
    benchmark.pedantic(step, rounds=20, warmup_rounds=2)

    assert medians["softmax + multinomial"] / medians["logitkit"] >= 6


def worst_rows() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    normal = torch.randn(1, WIDTH, generator=generator)
    spike, ties, masked = normal.clone(), normal.clone(), torch.full_like(normal, -torch.inf)
    spike[0, 77] = 60.0
    ties[0, torch.randperm(WIDTH, generator=generator)[:60_000]] = 3.0
    masked[0, :10] = 1.0
    return {
        "flat": torch.zeros(1, WIDTH),
        "nearly flat": normal * 1e-3,
        "normal": normal,
        "one spike": spike,
        "60,000 ties": ties,
        "bfloat16 values": normal.bfloat16(),
        "all but ten masked": masked,
    }


FILTERS: dict[str, dict[str, Any]] = {
    "top_k 50": {"top_k": 50},
    "top_k 60000": {"top_k": 60_000},
    "top_p": {"top_p": 0.9},
    "min_p": {"min_p": 0.05},
    "top_n_sigma": {"top_n_sigma": 1.0},
    "top_h": {"top_h": 0.5},
    "typical_p": {"typical_p": 0.9},
    "epsilon": {"epsilon_cutoff": 1e-5},
    "eta": {"eta_cutoff": 1e-4},
    "xtc": {"xtc_probability": 1.0, "xtc_threshold": 1e-5},
    "dynatemp": {"dynatemp_range": 0.3},
    "all": {
        "top_n_sigma": 4.0, "top_k": 100_000, "top_p": 0.95, "min_p": 1e-4, "typical_p": 0.95,
        "epsilon_cutoff": 1e-6, "eta_cutoff": 1e-6, "xtc_probability": 1.0, "xtc_threshold": 1e-6,
        "dynatemp_range": 0.3,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", FILTERS)
def test_no_row_takes_much_more_than_a_millisecond(name: str, compare: Compare) -> None:
    ids = torch.randint(0, WIDTH, (1, 512), generator=torch.Generator().manual_seed(5))
    fields = {"temperature": 0.7} | FILTERS[name]
    steps = {row: peers.ours(x, ids, 256, fields) for row, x in worst_rows().items()}

    medians = compare(f"one row, {name}", steps)

    assert max(medians.values()) <= (2.0 if name == "all" else 1.0)


def test_the_step_allocates_nothing_of_the_size_of_the_logits() -> None:
    from torch.profiler import ProfilerActivity, profile

    logits, ids = problem(64)
    step = peers.ours(logits, ids, 256, FULL)
    step()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as run:
        step()

    largest = max(event.cpu_memory_usage for event in run.events())

    assert largest < 64 * WIDTH
    assert lk.LogitsPipeline(lk.SamplingParams(**FULL)).plan.one_line().count("->") == 0
