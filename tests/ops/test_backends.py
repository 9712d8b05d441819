"""The CPU kernels against plain torch: the same survivors, the same tokens, the same refusals.

Where a mass lies within 1e-6 of its threshold the survivors may differ by rounding: those rows are
checked against the oracle's margin, counted, and their number is bounded.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import oracle
import pytest
import torch
from helpers import INF, OPS, arguments, histories, logit_rows, start, tensors, use_threads
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from logitkit import SamplingParams
from logitkit.ops import BAD, EMPTY, FILTERS, OK, ORDER, numba_ops, reference

FILTER_ARGUMENTS = {name for stage in FILTERS for name in ORDER[stage]}
SIZES = (1, 2, 17, 63, 64, 65, 1023, 1024, 1025, 4097)
HUGE = 128_256

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
    logits: Tensor, params: SamplingParams | Sequence[SamplingParams], prompts: list[list[int]]
) -> int:
    """Assert that both backends agree on every row; the number of rows decided by rounding."""
    size, width = logits.shape
    several = [params] * size if isinstance(params, SamplingParams) else list(params)
    seeded = [dataclasses.replace(p, sampling_seed=100 + i) for i, p in enumerate(several)]
    batch = start(seeded, prompts, width, prompt_lengths=[len(p) // 2 for p in prompts])
    rows, given = batch.rows(), arguments(batch)
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


def test_both_backends_have_the_same_names_and_signatures() -> None:
    for name in ("process_logits", "sample_tokens"):
        signatures = {inspect.signature(getattr(ops, name)) for ops in OPS.values()}
        assert len(signatures) == 1
    assert {ops.BACKEND for ops in OPS.values()} == set(OPS)
    for ops in OPS.values():
        assert set(ORDER) >= ops.FUSED


@pytest.mark.parametrize("size", SIZES)
def test_every_stage_alone_agrees_at_every_size(size: int) -> None:
    rounded = 0
    for kind, logits in logit_rows(4, size, seed=size).items():
        prompts = histories(4, size)
        for request in EVERY_FILTER + EVERY_EDIT:
            if kind != "random" and request.get("allowed_token_ids"):
                continue
            rounded += compare(logits, fitting(request, size), prompts)
    assert rounded <= 12  # of about 1,600 rows: flat rows whose masses are simple fractions


@pytest.mark.parametrize("size", SIZES)
def test_all_stages_together_agree_at_every_size(size: int) -> None:
    rounded = 0
    for logits in logit_rows(8, size, seed=size).values():
        rounded += compare(logits, fitting(EVERYTHING, size), histories(8, size))
    assert rounded <= 2


def extreme_rows(num_rows: int, vocab_size: int) -> dict[str, Tensor]:
    """Finite logits at the edges of float32, and rows that are hard on approximations."""
    g = torch.Generator().manual_seed(vocab_size)
    normal = torch.randn(num_rows, vocab_size, generator=g)
    ten = torch.full_like(normal, -INF)
    ten[:, :: max(1, vocab_size // 10)] = normal[:, :: max(1, vocab_size // 10)]
    neighbours = (normal * 2).round() * 2.0**-23 + 1.0  # a division makes some of them equal
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


@pytest.mark.parametrize("size", [3, 150, 5000])
def test_extreme_rows_agree(size: int) -> None:
    rounded = 0
    for logits in extreme_rows(3, size).values():
        for request in (*EVERY_FILTER, *EVERY_EDIT[:1], *EVERY_EDIT[4:], EVERYTHING):
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
            for given in ({}, arguments(batch)):
                _, status = ops.process_logits(logits, *tensors(batch.rows()), **given)
                assert status.tolist() == [OK] + [BAD] * len(places)
                tokens, status = ops.sample_tokens(logits, *tensors(batch.rows()), **given)
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


POSITIVE = st.floats(1e-3, 1.0)
RANDOM_FILTERS = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.sampled_from([0.0, 0.3, 0.7, 1.0, 1.7, 40.0]),
        "dynatemp_range": st.floats(0.0, 2.0),
        "dynatemp_exponent": st.floats(0.2, 4.0),
        "top_n_sigma": st.floats(0.0, 4.0),
        "top_h": st.floats(0.0, 1.0),
        "top_k": st.sampled_from([0, 1, 2, 50, 99, 100, 101, 2047, 2048, 2049, 5000]),
        "top_p": POSITIVE,
        "min_p": st.floats(0.0, 1.0),
        "typical_p": POSITIVE,
        "epsilon_cutoff": st.floats(0.0, 0.1),
        "eta_cutoff": st.floats(0.0, 0.1),
        "xtc_probability": st.sampled_from([0.0, 0.5, 1.0]),
        "xtc_threshold": st.floats(0.0, 0.5),
    },
)
RANDOM_EDITS = st.fixed_dictionaries(
    {},
    optional={
        "allowed_token_ids": st.lists(st.integers(0, 40), min_size=4, max_size=30),
        "logit_bias": st.dictionaries(st.integers(0, 40), st.floats(-4, 4), max_size=9),
        "bad_words_ids": st.lists(st.lists(st.integers(0, 4), min_size=2, max_size=3), max_size=6),
        "repetition_penalty": st.floats(0.3, 3.0),
        "presence_penalty": st.floats(-2.0, 2.0),
        "frequency_penalty": st.floats(-2.0, 2.0),
        "dry_multiplier": st.floats(0.0, 3.0),
        "dry_base": st.floats(1.0, 3.0),
        "dry_allowed_length": st.integers(1, 4),
        "dry_range": st.integers(-1, 12),
        "dry_sequence_breakers": st.lists(
            st.lists(st.integers(0, 4), min_size=1, max_size=3), max_size=5
        ),
        "no_repeat_ngram_size": st.sampled_from([0, 2, 3, 4]),
        "min_new_tokens": st.integers(0, 9),
        "stop_token_ids": st.lists(st.integers(0, 40), max_size=4),
    },
)


REQUESTS = st.builds(
    lambda filters, edits: SamplingParams(**{"dry_sequence_breakers": ()} | edits | filters),
    RANDOM_FILTERS,
    st.one_of(st.just({}), RANDOM_EDITS),
)


@settings(max_examples=150)
@given(
    requests=st.lists(REQUESTS, min_size=4, max_size=4),
    kind=st.sampled_from(sorted(logit_rows(1, 1))),
    size=st.sampled_from([41, 500, 1025, 3000, 6000]),
    seed=st.integers(0, 99),
)
def test_random_requests_side_by_side_agree(
    requests: list[SamplingParams], kind: str, size: int, seed: int
) -> None:
    logits = logit_rows(4, size, seed)[kind]
    compare(logits, requests, histories(4, size, seed=seed))
