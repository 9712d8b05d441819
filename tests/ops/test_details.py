"""`sample_tokens(details=True)`: the drawn token's log-probability, and how many could be drawn."""

from __future__ import annotations

import inspect
import math
from typing import Any

import pytest
import torch
from helpers import INF, OPS, arguments, histories, logit_rows, masks, start, tensors
from torch import Tensor

from logitkit import SamplingParams
from logitkit.ops import BAD, EMPTY, OK, reference

every_backend = pytest.mark.parametrize("backend", list(OPS))
# Tokens 5, 6, 7, 8 have the weights 8, 4, 2, 1.
FOUR = torch.full((1, 40), -INF)
FOUR[0, 5:9] = torch.tensor([8.0, 4.0, 2.0, 1.0]).log()

CHAIN: dict[str, Any] = {
    "repetition_penalty": 1.1, "presence_penalty": 0.1, "frequency_penalty": 0.2,
    "temperature": 0.8, "top_k": 50, "top_p": 0.95, "min_p": 0.02,
}  # fmt: skip
REQUESTS: tuple[dict[str, Any], ...] = (
    {}, {"top_k": 1}, {"top_k": 300}, {"top_p": 0.9}, {"min_p": 0.05}, {"top_n_sigma": 1.5},
    {"epsilon_cutoff": 3e-4, "eta_cutoff": 2e-3}, {"temperature": 0.0, "top_k": 3},
    {"temperature": 3.0, "dynatemp_range": 2.5}, {"temperature": 0.1, "dynatemp_range": 0.1},
    {"logit_bias": {0: 2.5, 3: -1.0}, "repetition_penalty": 1.3, "no_repeat_ngram_size": 2}, CHAIN,
)  # fmt: skip


def drawn(
    backend: str, logits: Tensor, fields: list[dict[str, Any]], prompts: Any, given: Any = None
) -> tuple[Tensor, ...]:
    """tokens, status, log-probabilities and survivors of one call."""
    params = [SamplingParams(**{"sampling_seed": 3 + i} | f) for i, f in enumerate(fields)]
    lengths = [len(p) // 2 for p in prompts]
    batch = start(params, prompts, logits.shape[1], backend="numba", prompt_lengths=lengths)
    found = arguments(batch) | dict(given or {})
    call = (logits, *tensors(batch.rows()))
    result: tuple[Tensor, ...] = OPS[backend].sample_tokens(*call, details=True, **found)
    bare = OPS[backend].sample_tokens(*call, **found)
    assert all(map(torch.equal, bare, result[:2]))  # asking changes no token
    return result


def agree(got: tuple[Tensor, ...], want: tuple[Tensor, ...]) -> int:
    """Assert that two results are one; how many rows rounding gave other survivors."""
    assert torch.equal(got[1], want[1])
    assert got[2].dtype == torch.float32
    assert got[3].dtype == torch.int64
    same = got[3] == want[3]
    assert torch.equal(got[0][same], want[0][same])
    torch.testing.assert_close(got[2][same], want[2][same], rtol=0, atol=1e-6, equal_nan=True)
    return int((~same).sum())


def test_the_signature_is_the_same_on_every_backend() -> None:
    want = inspect.signature(reference.sample_tokens)
    for ops in OPS.values():
        assert inspect.signature(ops.sample_tokens) == want


@every_backend
def test_probabilities_worked_out_by_hand(backend: str) -> None:
    fields = [{}, {"top_k": 2}, {"temperature": 0.5}, {"logit_bias": {8: math.log(17.0)}}, {
        "temperature": 0.0
    }]  # fmt: skip
    weights = [
        {5: 8 / 15, 6: 4 / 15, 7: 2 / 15, 8: 1 / 15},
        {5: 2 / 3, 6: 1 / 3},
        {5: 64 / 85, 6: 16 / 85, 7: 4 / 85, 8: 1 / 85},
        {5: 8 / 31, 6: 4 / 31, 7: 2 / 31, 8: 17 / 31},
        {5: 1.0},
    ]
    for seed in range(5):
        prompts = [[1] * seed for _ in fields]
        tokens, _, logprobs, survivors = drawn(backend, FOUR.expand(5, 40), fields, prompts)
        for token, logprob, known in zip(tokens.tolist(), logprobs, weights, strict=True):
            assert logprob.exp().item() == pytest.approx(known[token], abs=1e-6)
        assert survivors.tolist() == [4, 2, 4, 4, 1]
        assert logprobs[-1] == 0.0


@every_backend
def test_rows_without_a_token_have_neither(backend: str) -> None:
    logits = FOUR.repeat(4, 1)
    logits[1, 0] = float("nan")
    logits[2] = -INF
    for fields in ({}, {"top_k": 2}, {"temperature": 0.0}):
        tokens, status, logprobs, survivors = drawn(backend, logits, [fields] * 4, [[1]] * 4)
        assert status.tolist() == [OK, BAD, EMPTY, OK]
        assert tokens[1:3].tolist() == [-1, -1]
        assert logprobs.isnan().tolist() == [False, True, True, False]
        assert survivors[1:3].tolist() == [0, 0]
        assert (survivors[[0, 3]] > 0).all()


@every_backend
@pytest.mark.parametrize("width", [70, 513])
def test_every_kind_of_row_agrees_with_plain_torch(backend: str, width: int) -> None:
    rounded = 0
    for logits in logit_rows(len(REQUESTS), width, seed=width).values():
        call = (logits, list(REQUESTS), histories(len(REQUESTS), width))
        rounded += agree(drawn(backend, *call), drawn("torch", *call))
    assert rounded <= 6  # flat rows whose masses are simple fractions


@every_backend
def test_rows_of_a_grammar_agree_and_count_what_it_allows(backend: str) -> None:
    logits = 2 * torch.randn(5, 90, generator=torch.Generator().manual_seed(1))
    given = masks(5, 3)
    for fields in ({}, CHAIN):
        call = (logits, [fields] * 5, histories(5, 90), given)
        assert agree(drawn(backend, *call), drawn("torch", *call)) == 0
    given["mask_row"] = torch.tensor([0, 2, 3, 4, 1], dtype=torch.int32)
    _, status, _, survivors = drawn(backend, logits, [{}] * 5, [[1]] * 5, given)
    assert status[4] == EMPTY
    words = given["mask_rows"].long() & 0xFFFFFFFF
    allowed = ((words[:, :, None] >> torch.arange(32)) & 1).flatten(1)[:, :90].sum(1)
    assert survivors.tolist() == [90, *allowed[2:5].tolist(), 0]


@every_backend
def test_no_rows_give_four_empty_tensors(backend: str) -> None:
    batch = start(SamplingParams(sampling_seed=1), [[1, 2]], 50, backend="numba")
    rows = batch.rows().select(torch.zeros(1, dtype=torch.bool))
    found = OPS[backend].sample_tokens(torch.zeros(0, 50), *tensors(rows), details=True)
    assert [len(part) for part in found] == [0, 0, 0, 0]
