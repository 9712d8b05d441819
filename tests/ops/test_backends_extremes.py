"""The CPU kernels against plain torch on hard rows: huge, tied, masked, empty, not numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from compare import EVERY_EDIT, EVERY_FILTER, EVERYTHING, compare, fitting
from helpers import INF, OPS, arguments, histories, logit_rows, start, tensors, use_threads
from torch import Tensor

from logitkit import SamplingParams
from logitkit.ops import BAD, EMPTY, OK, numba_ops

HUGE = 128_256


def extreme_rows(num_rows: int, vocab_size: int) -> dict[str, Tensor]:
    """Finite logits at the edges of float32, and rows that are hard on approximations."""
    g = torch.Generator().manual_seed(vocab_size)
    normal = torch.randn(num_rows, vocab_size, generator=g)
    ten = torch.full_like(normal, -INF)
    ten[:, :: max(1, vocab_size // 10)] = normal[:, :: max(1, vocab_size // 10)]
    neighbours = (normal * 2).round() * 2.0**-23 + 1.9  # dividing by 1.7 makes some of them equal
    return {
        "huge": (normal / normal.abs().amax()) * 3.4e38,
        "all near the largest float": torch.full_like(normal, 3.0e38) + normal.round() * 1e37,
        "all near the least float": torch.full_like(normal, -3.0e38) + normal.round() * 1e37,
        "denormal": normal * 1e-40,
        "signed zeros": torch.where(normal > 0, 0.0, -0.0),
        "far from zero": 1e5 + 3 * normal,
        "far below zero": -3e6 + normal,
        "very wide": 300 * normal,
        "all but ten masked": ten,
        "neighbouring floats": neighbours,
        "two values": torch.where(normal > 1.5, 1.0, -11.0),
    }


DIVIDED: tuple[dict[str, Any], ...] = (
    {"temperature": 1.7, "top_k": 1},
    {"temperature": 1.7, "top_k": 9},
    {"temperature": 3e38, "top_k": 9},
    {"temperature": 1.7, "top_h": 0.5},
    {"temperature": 1.7, "top_p": 0.5},
)


@pytest.mark.parametrize("size", [3, 150, 5000])
def test_extreme_rows_agree(size: int) -> None:
    rounded = 0
    for logits in extreme_rows(3, size).values():
        for request in (*EVERY_FILTER, *EVERY_EDIT[:1], *EVERY_EDIT[4:], *DIVIDED, EVERYTHING):
            rounded += compare(logits, fitting(request, size), histories(3, size))
    assert rounded <= 12


EXTREME_PARAMETERS: tuple[dict[str, Any], ...] = (
    {"temperature": 1e-30},
    {"temperature": 3e38},
    {"temperature": 1e-30, "top_k": 3},
    {"repetition_penalty": 1e-30},
    {"repetition_penalty": 3e38},
    {"presence_penalty": 3e38, "frequency_penalty": 3e38},
    {"presence_penalty": -3e38, "frequency_penalty": -3e38},
    {"logit_bias": {0: -3e38, 1: 3e38}},
    {"dry_multiplier": 3e38, "dry_base": 3e38, "dry_sequence_breakers": []},
    {"dry_multiplier": 1e-30, "dry_base": 1.0, "dry_sequence_breakers": []},
    {"dry_multiplier": 1.0, "dry_allowed_length": 2**31 - 1, "dry_sequence_breakers": []},
    {"dry_multiplier": 1.0, "dry_range": 2**31 - 1, "dry_sequence_breakers": []},
    {"no_repeat_ngram_size": 2**31 - 1},
    {"min_new_tokens": 2**31 - 1},
    {"dynatemp_range": 3e38},
    {"temperature": 2.0, "dynatemp_range": 2.0, "dynatemp_exponent": 300.0},
    {"temperature": 2.0, "dynatemp_range": 1.0, "dynatemp_exponent": 1e-300},
    {"top_k": 2**31 - 1},
    {"top_n_sigma": 1e-300},
    {"top_n_sigma": 3e38},
    {"top_h": 1e-300},
    {"top_p": 5e-324},
    {"top_p": 1 - 2.0**-53},
    {"min_p": 5e-324},
    {"typical_p": 5e-324},
    {"typical_p": 1 - 2.0**-53},
    {"epsilon_cutoff": 5e-324},
    {"epsilon_cutoff": 1 - 2.0**-53},
    {"eta_cutoff": 5e-324},
    {"eta_cutoff": 1 - 2.0**-53},
    {"xtc_probability": 1.0, "xtc_threshold": 5e-324},
    {"xtc_probability": 1.0, "xtc_threshold": 1.0},
)


@pytest.mark.parametrize("kind", ["random", "spike", "masked", "very wide", "huge", "denormal"])
def test_extreme_parameters_agree(kind: str) -> None:
    size = 1100
    logits = (logit_rows(3, size) | extreme_rows(3, size))[kind]
    for request in EXTREME_PARAMETERS:
        compare(logits, fitting(request, size), histories(3, size))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_nan_and_infinity_are_refused_wherever_they_stand(dtype: torch.dtype) -> None:
    patterns = {
        torch.float32: [0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF800001, 0xFFFFFFFF, 0x7F800000],
        torch.float16: [0x7E00, 0xFE00, 0x7C01, 0xFC01, 0xFFFF, 0x7C00],
        torch.bfloat16: [0x7FC0, 0xFFC0, 0x7F81, 0xFF81, 0xFFFF, 0x7F80],
    }
    word = np.int32 if dtype == torch.float32 else np.int16
    unsigned = np.uint32 if dtype == torch.float32 else np.uint16
    size = 1090
    places = [0, 1, 15, 63, 64, 1007, 1023, 1024, 1025, size - 1]
    healthy = torch.randn(1 + len(places), size).to(dtype)
    for pattern in patterns[dtype]:
        logits = healthy.clone()
        value = torch.from_numpy(np.array([pattern], unsigned).view(word)).view(dtype)
        for row, place in enumerate(places):
            logits[1 + row, place] = value
        batch = start(SamplingParams(top_k=5), [[]] * len(logits), size)
        for ops in OPS.values():
            for stages in ({}, arguments(batch)):
                _, status = ops.process_logits(logits, *tensors(batch.rows()), **stages)
                assert status.tolist() == [OK] + [BAD] * len(places)
                tokens, status = ops.sample_tokens(logits, *tensors(batch.rows()), **stages)
                assert status.tolist() == [OK] + [BAD] * len(places)
                assert tokens[0] >= 0
                assert (tokens[1:] == -1).all()


@pytest.mark.parametrize("request_", [{}, {"top_k": 3}, {"top_p": 0.5}, {"temperature": 0.0}])
def test_a_row_without_tokens_is_empty(request_: dict[str, Any]) -> None:
    logits = torch.full((3, 70), -INF)
    logits[1, 69] = 1.0
    assert compare(logits, fitting(request_, 70), [[]] * 3) == 0
    batch = start(fitting(request_, 70), [[]] * 3, 70)
    for ops in OPS.values():
        tokens, status = ops.sample_tokens(logits, *tensors(batch.rows()), **arguments(batch))
        assert tokens.tolist() == [-1, 69, -1]
        assert status.tolist() == [EMPTY, OK, EMPTY]


def test_zeros_of_either_sign_are_one_value() -> None:
    logits = torch.tensor([[-0.0, 0.0, -0.0, -1.0], [0.0, -0.0, -1.0, -0.0]])
    for request in ({"temperature": 0.0}, {"top_k": 1}, {"min_p": 1.0}, {"top_p": 0.1}):
        compare(logits, fitting(request, 4), [[], []])
    batch = start(SamplingParams(temperature=0.0), [[], []], 4)
    for ops in OPS.values():
        tokens, _ = ops.sample_tokens(logits, *tensors(batch.rows()), **arguments(batch))
        assert tokens.tolist() == [0, 0]


def test_no_rows_are_no_result() -> None:
    batch = start(fitting(EVERYTHING, 50), [[1, 2]], 50)
    rows = batch.rows().select(torch.zeros(1, dtype=torch.bool))
    for ops in OPS.values():
        out, status = ops.process_logits(torch.zeros(0, 50), *tensors(rows), **arguments(batch))
        assert out.shape == (0, 50)
        assert len(status) == 0
        tokens, _ = ops.sample_tokens(torch.zeros(0, 50), *tensors(rows), **arguments(batch))
        assert len(tokens) == 0


def test_tokens_beyond_the_logits_are_ignored_in_the_history() -> None:
    prompts = [[0, 69, 70, 500, 70, 500], [500] * 8, [70, 1, 70, 1, 70]]
    for logits in logit_rows(3, 70).values():
        for request in (*EVERY_EDIT[4:], EVERYTHING):
            compare(logits, fitting(request, 70), prompts)


def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    size, num_rows = 1500, 37
    for logits in (logit_rows(num_rows, size)["random"], logit_rows(num_rows, size)["bfloat16"]):
        batch = start(fitting(EVERYTHING, size), histories(num_rows, size), size)
        call = (logits, *tensors(batch.rows()))
        alone, _ = numba_ops.process_logits(*call, **arguments(batch))
        tokens, _ = numba_ops.sample_tokens(*call, **arguments(batch))
        with monkeypatch.context() as patched:
            use_threads(patched, work_per_thread=1000)
            for _ in range(5):
                shared, _ = numba_ops.process_logits(*call, **arguments(batch))
                drawn, _ = numba_ops.sample_tokens(*call, **arguments(batch))
                assert torch.equal(shared, alone)
                assert torch.equal(drawn, tokens)
        assert compare(logits, fitting(EVERYTHING, size), histories(num_rows, size)) <= 1


def huge_rows() -> dict[str, Tensor]:
    """Rows of a large vocabulary, the hard ones of DESIGN among them."""
    g = torch.Generator().manual_seed(5)
    random = 2.5 * torch.randn(1, HUGE, generator=g)
    ties = random.clone()
    ties[0, torch.randperm(HUGE, generator=g)[:60_000]] = 4.0
    ten = torch.full_like(random, -INF)
    ten[0, torch.randperm(HUGE, generator=g)[:10]] = random[0, :10]
    spike = random.clone()
    spike[0, 99_999] = 25.0
    rows = {"random": random, "60,000 ties": ties, "flat": torch.zeros(1, HUGE), "spike": spike}
    return rows | {"bfloat16": random.bfloat16(), "all but ten masked": ten}


@pytest.mark.parametrize("kind", list(huge_rows()))
def test_hard_rows_of_a_large_vocabulary_agree(kind: str) -> None:
    logits, rounded = huge_rows()[kind], 0
    for request in (*EVERY_FILTER, *EVERY_EDIT[-4:], EVERYTHING):
        rounded += compare(logits, fitting(request, HUGE), [[5, 4, 3, 5, 4]])
    assert rounded <= 2
