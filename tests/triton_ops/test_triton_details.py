"""Log-probabilities and survivors from the kernels, however the row is cut, gathered or split."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import arguments, histories, start, tensors
from torch import Tensor
from twin import requests

import triton_ops
from logitkit.ops import reference
from triton_ops import launch

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, of overflows

CHAIN: dict[str, Any] = {
    "repetition_penalty": 1.1, "presence_penalty": 0.1, "frequency_penalty": 0.2,
    "temperature": 0.8, "top_k": 50, "top_p": 0.95, "min_p": 0.02,
}  # fmt: skip
EDITED = {"logit_bias": {0: 9.0, 3: 7.0}, "repetition_penalty": 0.7, "temperature": 0.6}
FIELDS: tuple[dict[str, Any], ...] = ({}, {"top_k": 3000}, {"top_p": 0.999}, CHAIN, EDITED)
CUDA = launch.TUNINGS["cuda"]


def drawn_both(
    logits: Tensor, fields: list[dict[str, Any]], prompts: list[list[int]]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    batch = start(requests(fields), prompts, logits.shape[1], backend="numba")
    call, given = (logits, *tensors(batch.rows())), arguments(batch)
    return (
        triton_ops.sample_tokens(*call, details=True, **given),
        reference.sample_tokens(*call, details=True, **given),
    )


def agree(got: tuple[Tensor, ...], want: tuple[Tensor, ...]) -> None:
    for i in (0, 1, 3):
        assert torch.equal(got[i], want[i])
    torch.testing.assert_close(got[2], want[2], rtol=0, atol=1e-6)


@pytest.mark.parametrize("fields", FIELDS, ids=str)
def test_split_rows_give_the_same_bits(
    fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(launch.TUNINGS, "cuda", CUDA._replace(block=1024, piece=2048))
    width = 4 * 1024 - 61
    g = torch.Generator().manual_seed(2)
    logits = torch.randn(2, width, generator=g) * torch.tensor([[2.5], [0.01]])
    prompts = [[5, 3000, 5], [0, 3, width - 1]]
    results = []
    for processors in (1, 8):
        monkeypatch.setattr(launch, "processors_of", lambda device, n=processors: n)
        got, want = drawn_both(logits, [fields] * 2, prompts)
        agree(got, want)
        results.append(got)
    assert all(map(torch.equal, *results))


def test_survivors_that_do_not_fit_the_buffer_are_counted_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(launch.TUNINGS, "cuda", CUDA._replace(capacity=16))
    for fields in ({"top_k": 300}, {"top_p": 0.9}, CHAIN | {"top_k": 400, "min_p": 0.0}):
        logits = torch.randn(3, 513, generator=torch.Generator().manual_seed(1))
        got, want = drawn_both(logits, [fields] * 3, histories(3, 513))
        assert int(want[3].max()) > 16
        agree(got, want)


def test_an_edited_token_has_its_edited_probability() -> None:
    """The bias makes 0 and 3 nearly certain, so what is drawn stands among the patches."""
    logits = torch.randn(8, 700, generator=torch.Generator().manual_seed(3))
    got, want = drawn_both(logits, [EDITED] * 8, [[3, 9]] * 8)
    agree(got, want)
    assert set(got[0].tolist()) <= {0, 3}
    assert (got[2] > -3).all()
    assert got[3].tolist() == [700] * 8


def test_a_large_vocabulary_is_summed_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(launch.TUNINGS, "cuda", CUDA._replace(piece=32_768))  # fewer steps here
    logits = 3 * torch.randn(1, 151_936, generator=torch.Generator().manual_seed(4))
    for fields in ({"temperature": 2.0}, CHAIN):
        got, want = drawn_both(logits, [fields], [[5, 4, 3]])
        agree(got, want)


def test_both_ways_of_launching_tell_in_a_last_launch() -> None:
    for tuning in launch.TUNINGS.values():
        for rows in (1, 8, 64, 128, 256):
            bare = launch.plan_launches(tuning, rows, 128_256, True, True, 132)
            told = launch.plan_launches(tuning, rows, 128_256, True, True, 132, True)
            assert told[-1].first == told[-1].last == launch.kernel.REDUCE.value
            assert len(told) <= max(2, len(bare))
