"""`lk.chains`: complete recipes, and where their order shows."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from logitkit import DEFAULT_STAGES, Batch, SamplingParams, chains
from logitkit.params import resolve
from logitkit.plan import Plan

CHAINS: dict[str, Any] = {
    "HF": chains.HF,
    "VLLM": chains.VLLM,
    "SGLANG": chains.SGLANG,
    "LLAMA_CPP": chains.LLAMA_CPP,
}


def survivors(chain: Any, probabilities: list[float], backend: str = "torch", **fields: Any) -> Any:
    """What a chain leaves of a row, with a prompt [1, 1] and the output [0]."""
    params = resolve(SamplingParams(sampling_seed=0, **fields), vocab_size=len(probabilities))
    batch = Batch.start(
        [params], [[1, 1, 0]], chain, vocab_size=len(probabilities), prompt_lengths=[2],
        backend=backend,
    )  # fmt: skip
    logits = torch.tensor([probabilities]).log()
    return batch.plan(logits, batch.rows())[0]


def kept(logits: Any) -> list[int]:
    return (logits > -torch.inf).nonzero().flatten().tolist()


@pytest.mark.parametrize("name", CHAINS)
def test_every_chain_holds_every_built_in_stage_exactly_once(name: str) -> None:
    found = [type(stage) for stage in CHAINS[name]]
    assert len(found) == len(set(found))
    assert set(found) == {type(stage) for stage in DEFAULT_STAGES}


@pytest.mark.parametrize("name", CHAINS)
def test_both_backends_agree_on_every_chain(name: str) -> None:
    torch.manual_seed(1)
    row = torch.rand(50).softmax(-1).tolist()
    fields: dict[str, Any] = {
        "temperature": 0.7, "top_k": 20, "top_p": 0.8, "min_p": 0.1, "repetition_penalty": 1.2,
        "presence_penalty": 0.3, "frequency_penalty": 0.2, "logit_bias": {3: 1.0}, "top_n_sigma": 2,
    }  # fmt: skip
    plain, fast = (
        survivors(CHAINS[name], row, backend, **fields) for backend in ("torch", "numba")
    )
    torch.testing.assert_close(plain, fast)


def test_llama_cpp_filters_before_the_temperature() -> None:
    row = [0.5, 0.3, 0.15, 0.05]
    assert kept(survivors(chains.LLAMA_CPP, row, temperature=100.0, top_p=0.7)) == [0, 1]
    assert kept(survivors(chains.HF, row, temperature=100.0, top_p=0.7)) == [0, 1, 2]


def test_llama_cpp_runs_typical_before_top_p() -> None:
    """The entropy is 1.26: typical goes by 0.25 and 0.2, and top-p sees what it left, or before."""
    row = [0.45, 0.25, 0.2, 0.1]
    assert kept(survivors(chains.LLAMA_CPP, row, typical_p=0.3)) == [1, 2]
    assert kept(survivors(chains.LLAMA_CPP, row, typical_p=0.3, top_p=0.5)) == [1]
    assert kept(survivors(chains.HF, row, typical_p=0.3, top_p=0.5)) == [0]


def test_vllm_runs_min_p_before_top_p() -> None:
    """Of 0.4, 0.3, 0.2, 0.1 min-p 0.7 leaves 4 and 3 sevenths: top-p 0.6 then needs both."""
    row = [0.4, 0.3, 0.2, 0.1]
    fields = {"min_p": 0.7, "top_p": 0.55}
    assert kept(survivors(chains.VLLM, row, **fields)) == [0]
    assert kept(survivors(chains.HF, row, **fields)) == [0, 1]


def test_sglang_biases_behind_the_penalties_and_vllm_before() -> None:
    fields: dict[str, Any] = {"repetition_penalty": 2.0, "logit_bias": {0: 3.0}}
    row = [math.exp(-1.0), 1 - math.exp(-1.0) - 0.1, 0.1]  # token 0 has the logit -1
    assert survivors(chains.SGLANG, row, **fields)[0] == pytest.approx(-1 * 2 + 3)
    assert survivors(chains.VLLM, row, **fields)[0] == pytest.approx((-1 + 3) / 2)
    assert survivors(chains.HF, row, **fields)[0] == pytest.approx((-1 + 3) / 2)


def test_sglang_subtracts_before_it_divides() -> None:
    fields = {"repetition_penalty": 2.0, "frequency_penalty": 0.5}
    row = [math.exp(-1.0), 1 - math.exp(-1.0) - 0.1, 0.1]
    assert survivors(chains.SGLANG, row, **fields)[0] == pytest.approx((-1 - 0.5) * 2)
    assert survivors(chains.HF, row, **fields)[0] == pytest.approx(-1 * 2 - 0.5)
    assert survivors(chains.LLAMA_CPP, row, **fields)[0] == pytest.approx(-1 * 2 - 0.5)


@pytest.mark.parametrize("name", CHAINS)
def test_temperature_zero_takes_the_largest_logit_whatever_the_filters(name: str) -> None:
    params = resolve(
        SamplingParams(temperature=0.0, typical_p=0.1, xtc_probability=1.0), vocab_size=4
    )
    batch = Batch.start([params], [[1]], CHAINS[name], vocab_size=4, backend="numba")
    plan: Plan = batch.plan
    assert plan.sample(torch.tensor([[0.5, 0.2, 0.16, 0.14]]).log(), batch.rows()).tolist() == [0]
