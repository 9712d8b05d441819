"""The grammar's masks in plain torch and in the CPU kernels: which bits, rows, and order."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from compare import EVERYTHING, compare, fitting
from helpers import INF, OPS, histories, logit_rows, masks, start, tensors
from torch import Tensor

from logitkit import SamplingParams
from logitkit.ops import BAD, EMPTY, OK, numba_ops, reference

every_backend = pytest.mark.parametrize("backend", list(OPS))


def masked(logits: Tensor, rows: list[list[int]], row: list[int], backend: str) -> Any:
    """`process_logits` with masks alone."""
    batch = start([SamplingParams()] * len(logits), [[]] * len(logits), logits.shape[1])
    given = {
        "mask_rows": torch.tensor(rows, dtype=torch.int64).to(torch.int32),
        "mask_row": torch.tensor(row, dtype=torch.int32),
    }
    return OPS[backend].process_logits(logits, *tensors(batch.rows()), **given)


@every_backend
def test_bits_count_from_the_least_and_row_0_allows_everything(backend: str) -> None:
    logits = torch.arange(40.0).expand(4, 40)
    # token 31 is the sign of the first word; 0b101 of the second are the tokens 32 and 34
    rows = [[0, 0], [0, 0], [1 | 1 << 31, 0b101], [-1, -1]]
    out, status = masked(logits, rows, [0, 1, 2, 3], backend)
    assert status.tolist() == [OK, EMPTY, OK, OK]
    assert torch.equal(out[0], logits[0])
    assert torch.equal(out[3], logits[3])
    assert (out[2] > -INF).nonzero().flatten().tolist() == [0, 31, 32, 34]
    assert torch.equal(out[2][out[2] > -INF], torch.tensor([0.0, 31.0, 32.0, 34.0]))


@every_backend
@pytest.mark.parametrize("width", [31, 32, 33, 64, 1023, 1024, 1025, 2050])
def test_ids_beyond_the_masks_are_masked_and_bits_beyond_the_logits_nothing(
    width: int, backend: str
) -> None:
    logits = torch.zeros(3, width)
    for words in (1, -(-width // 32), width // 32 + 3):
        out, status = masked(logits, [[0] * words, [0] * words, [-1] * words], [0, 2, 2], backend)
        assert status.tolist() == [OK, OK, OK]
        assert (out[0] == 0).all()
        for row in out[1:]:
            assert (row > -INF).nonzero().flatten().tolist() == list(range(min(width, 32 * words)))


@pytest.mark.parametrize("size", [1, 70, 1025, 3001])
def test_masks_of_every_density_agree_on_rows_of_every_kind(size: int) -> None:
    rounded = 0
    for logits in logit_rows(5, size, seed=size).values():
        for words in {max(1, size // 32), size // 32 + 2}:
            given = masks(5, words, seed=size + words)
            for request in ({}, {"top_p": 0.8}, {"temperature": 0.0}, EVERYTHING):
                rounded += compare(logits, fitting(request, size), histories(5, size), given)
    assert rounded <= 4


def test_an_overflow_is_seen_in_what_the_grammar_masks() -> None:
    logits = torch.full((4, 50), 3e38)
    logits[1, 7] = INF
    requests = [
        SamplingParams(logit_bias={3: 3e38}),
        SamplingParams(),
        SamplingParams(presence_penalty=-3e38),
        SamplingParams(dry_multiplier=0.5, dry_sequence_breakers=[], presence_penalty=0.5),
    ]
    given = {
        "mask_rows": torch.tensor([[-1, -1], [0, 0], [1, 0]], dtype=torch.int32),
        "mask_row": torch.full((4,), 2, dtype=torch.int32),
    }
    prompts = [[5, 5, 6, 6]] * 4
    assert compare(logits, requests, prompts, given) == 0
    batch = start(requests, prompts, 50, backend="numba", prompt_lengths=[0] * 4)
    call = (logits, *tensors(batch.rows()))
    columns = {k: batch.columns[k] for k in ("bias_offsets", "bias_ids", "bias_values")}
    columns["presence_penalty"] = batch.columns["presence_penalty"]
    for ops in (reference, numba_ops):
        _, status = ops.process_logits(*call, **columns, **given)
        assert status.tolist() == [BAD, BAD, BAD, OK]


def test_edited_tokens_get_no_value_back_that_the_grammar_masks() -> None:
    biased = dict.fromkeys(range(0, 60, 3), 9.0)
    requests = [SamplingParams(logit_bias=biased, repetition_penalty=2)]
    logits = torch.randn(1, 60)
    given = masks(2, 2, seed=3) | {"mask_row": torch.tensor([2], dtype=torch.int32)}
    prompts = [list(range(60)) * 2]
    assert compare(logits, requests, prompts, given) == 0


@every_backend
def test_rows_of_one_request_have_masks_of_their_own(backend: str) -> None:
    batch = start([SamplingParams()], [[1]], 40)
    rows = batch.rows().select(torch.zeros(3, dtype=torch.int64))
    given = {
        "mask_rows": torch.tensor([[0, 0], [0, 0], [2, 0], [4, 0]], dtype=torch.int32),
        "mask_row": torch.tensor([3, 2, 3], dtype=torch.int32),
    }
    tokens, status = OPS[backend].sample_tokens(torch.zeros(3, 40), *tensors(rows), **given)
    assert status.tolist() == [OK] * 3
    assert tokens.tolist() == [2, 1, 2]
