"""What once broke the kernels, and rows and requests made to break them; against plain torch."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from helpers import INF, arguments, masks, start, tensors
from test_triton_kernels import CHAIN, split, tune
from torch import Tensor
from twin import compare, requests

import triton_ops

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, of overflows
MOST = 3.4028234663852886e38


@pytest.mark.parametrize("fields", [{}, {"epsilon_cutoff": 0.9}, {"top_p": 1e-7}], ids=str)
def test_a_first_half_without_survivors_does_not_end_the_draw(fields: dict[str, Any]) -> None:
    width = 4096  # one tile, which is drawn from in halves
    logits = torch.randn(2, width)
    logits[0, :3000] = -INF
    logits[1, 4000] = 40.0
    assert compare(logits, requests([fields] * 2), [[], []]) == 0


def test_a_grammar_may_ban_the_first_half() -> None:
    given = masks(1, 128) | {"mask_row": torch.tensor([1], dtype=torch.int32)}
    given["mask_rows"][1, 100:] = -1
    assert compare(torch.randn(1, 4096), requests([{}]), [[]], masks=given) == 0


@pytest.mark.parametrize("tiles", [5, 6, 7, 9])
def test_edits_are_seen_where_the_last_programs_have_no_tiles(
    tiles: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(monkeypatch, block=256, piece=256)
    split(monkeypatch, 8)
    for width in (256 * tiles - 255, 256 * tiles - 60):
        logits = torch.randn(2, width)
        fields = [{"presence_penalty": 2.0, "min_p": 0.2}, CHAIN | {"logit_bias": {width - 1: 3.0}}]
        assert compare(logits, requests(fields), [[0, 5, 7, 5], [1] * 9 + [width - 1]]) == 0


def test_every_split_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    tune(monkeypatch, block=256, piece=256, capacity=64)
    logits = 2 * torch.randn(1, 11 * 256 - 130)
    params, prompts = requests([CHAIN | {"logit_bias": {9: 4.0}, "top_k": 300}]), [[1, 2, 2700, 1]]
    batch = start(params, prompts, logits.shape[1], backend="numba")
    call = (logits, *tensors(batch.rows()))
    found = []
    for processors in (1, 2, 8):
        split(monkeypatch, processors)
        out, _ = triton_ops.process_logits(*call, **arguments(batch))
        token, _ = triton_ops.sample_tokens(*call, **arguments(batch))
        found.append((out, token))
    for out, token in found[1:]:
        assert torch.equal(out, found[0][0])
        assert torch.equal(token, found[0][1])


def test_a_row_of_a_real_vocabulary_split_as_on_a_gpu_agrees(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    split(monkeypatch, 132)  # 38 tiles for 32 programs
    logits = 3 * torch.randn(1, 151_936)
    prompts = [[5, 151_935, 5, 77_000]]
    assert compare(logits, requests([CHAIN | {"logit_bias": {3: 20.0}}]), prompts) == 0


def hard_rows(width: int, seed: int) -> Tensor:
    """Flat rows, two values, denormals, zeros of both signs, the largest numbers, one entry."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(8, width, generator=g)
    rows = torch.stack([
        3 * x[0],
        torch.full((width,), (0.0, -3.5, -MOST, MOST)[seed % 4]),
        torch.where(x[1] > 0, 1.0, 2.0),
        x[2] * 1e-40,
        torch.where(x[3] > 0, 0.0, -0.0),
        torch.where(x[4] > 0.5, MOST, -MOST),
        torch.full((width,), -INF),
        (2 * x[5]).round(),
        3e37 * x[6],
        torch.where(x[7] > 1, x[7].round(), -INF),
    ])  # fmt: skip
    rows[6, seed % width] = 1e-45
    rows[9, 0] = 2.0
    return rows


HARD: dict[str, tuple[Any, ...]] = {
    "top_k": (1, 3, 10**9),
    "top_p": (1 - 1e-7, 1e-7, 0.5),
    "min_p": (1e-300, 0.5, 1.0),
    "epsilon_cutoff": (1e-7, 0.9),
    "eta_cutoff": (1e-7, 0.99),
    "top_n_sigma": (1e-30, 1.0, 1e30),
    "temperature": (0.0, 1e-4, 100.0),
    "dynatemp_range": (5.0,),
    "repetition_penalty": (1e-3, 1e3),
    "presence_penalty": (1e30, -2.0),
    "frequency_penalty": (2.0,),
    "no_repeat_ngram_size": (1, 2, 10**6),
    "bad_words_ids": ([[0], [0, 0]], [[0] * 30, [0, 0]]),
    "min_new_tokens": (10**6,),
}


def hard_request(rng: random.Random, width: int) -> dict[str, Any]:
    """Some of the fields at values near or beyond the edge."""
    share = rng.choice([0.1, 0.3, 0.7])
    fields = {name: rng.choice(v) for name, v in HARD.items() if rng.random() < share}
    if rng.random() < share:
        values = (1e38, -1e38, -INF, 2.5, -0.0)
        fields["logit_bias"] = {rng.randrange(width): rng.choice(values) for _ in range(9)}
    if rng.random() < share / 2:
        fields["allowed_token_ids"] = [rng.randrange(width) for _ in range(1 + width // 2)]
    return fields


def laid_out(logits: Tensor, how: str) -> Tensor:
    """The same logits in another dtype or with other strides.

    bfloat16 loses its denormals, which Triton's interpreter reads wrongly.
    """
    if how == "bfloat16":
        return torch.where(logits.abs() < 1e-37, 0.0, logits).bfloat16()
    if how == "float16":
        return logits.half()  # what is too large becomes infinite: -inf is masked, +inf is bad
    if how == "transposed":
        return logits.T.contiguous().T
    wide = torch.zeros(len(logits), 3 * logits.shape[1] + 1)
    strided = wide[:, 1::3]
    strided.copy_(logits)
    return strided


@pytest.mark.parametrize("seed", range(12))
def test_hard_rows_and_requests_agree(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    width = (1, 2, 31, 33, 64, 70, 255, 257, 513, 700, 1025, 4097)[seed]
    small = {"block": 1024 if width > 4000 else 256, "capacity": (16, 64, 2048)[seed % 3]}
    tune(monkeypatch, piece=(1024, 64, 16)[seed % 3] if width < 4000 else 1024, **small)
    split(monkeypatch, 64 * (seed % 2) + 1)
    logits = hard_rows(width, seed)[torch.randperm(10)[:5]]
    logits = laid_out(logits, ("bfloat16", "float16", "transposed", "strided")[seed % 4])
    params = requests([hard_request(rng, width) for _ in range(5)])
    spans = (0, 1, 5, 60, 1500)
    prompts = [[rng.randrange(6) for _ in range(spans[(seed + i) % 5])] for i in range(5)]
    given = masks(5, -(-width // 32) + seed % 2, seed) if seed % 3 == 0 else None
    assert compare(logits, params, prompts, masks=given) == 0
