"""The Triton kernels, interpreted on the CPU, against plain torch: survivors, tokens, refusals."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from automata import random_call
from compare import compare as compare_on_cpu
from helpers import INF, OPS, arguments, histories, logit_rows, masks, start, tensors
from torch import Tensor
from twin import compare, requests

import triton_ops
from logitkit import SamplingParams, randomness
from logitkit.ops import BAD, EMPTY, OK, ORDER, reference
from triton_ops import launch
from triton_ops.numbers import key_of, least_noise_of, noise_of, popcount, uniform_of, value_of

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, of overflows

FILTERS: tuple[dict[str, Any], ...] = (
    {"top_n_sigma": 1.5},
    {"top_k": 1},
    {"top_k": 40},
    {"top_k": 300},
    {"top_p": 0.9},
    {"top_p": 0.999},
    {"top_p": 0.01},
    {"min_p": 0.05},
    {"min_p": 1.0},
    {"epsilon_cutoff": 3e-4},
    {"eta_cutoff": 2e-3},
)
EDITS: tuple[dict[str, Any], ...] = (
    {"allowed_token_ids": [0, 1, 31, 32, 63, 64]},
    {"logit_bias": {0: 2.5, 3: -1.0, 64: -INF}},
    {"logit_bias": {0: 0.5, 1: 1.5}, "repetition_penalty": 1.2, "frequency_penalty": 0.5},
    {"bad_words_ids": [[1], [0, 1], [2, 2, 0], [3, 4]]},
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 0.8, "frequency_penalty": -0.9},
    {"presence_penalty": 0.4, "frequency_penalty": 0.3},
    {"no_repeat_ngram_size": 1},
    {"no_repeat_ngram_size": 2},
    {"no_repeat_ngram_size": 3},
    {"min_new_tokens": 50, "stop_token_ids": [0, 64]},
    {"temperature": 0.0},
    {"temperature": 0.6},
    {"temperature": 3.0, "dynatemp_range": 2.5, "dynatemp_exponent": 1.5},
    {"temperature": 0.1, "dynatemp_range": 4.0},
)
CHAIN: dict[str, Any] = {
    "repetition_penalty": 1.1,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.2,
    "temperature": 0.8,
    "top_k": 50,
    "top_p": 0.95,
    "min_p": 0.02,
}
EVERYTHING = CHAIN | {
    "logit_bias": {0: 0.5, 1: -0.25},
    "bad_words_ids": [[1, 2]],
    "no_repeat_ngram_size": 4,
    "min_new_tokens": 30,
    "top_n_sigma": 2.5,
    "epsilon_cutoff": 1e-4,
    "eta_cutoff": 1e-4,
}


def kinds(width: int, seed: int = 0) -> Tensor:
    """One row of every kind, float32."""
    rows = logit_rows(1, width, seed)
    return torch.cat([row.float() for row in rows.values()])


def tune(monkeypatch: pytest.MonkeyPatch, **changes: int) -> None:
    monkeypatch.setitem(launch.TUNINGS, "cuda", launch.TUNINGS["cuda"]._replace(**changes))


def split(monkeypatch: pytest.MonkeyPatch, processors: int) -> None:
    monkeypatch.setattr(launch, "processors_of", lambda device: processors)


@triton.jit
def _numbers(seed, ids, position, noise, bound, STREAM: tl.constexpr, N: tl.constexpr):
    lane = tl.arange(0, N)
    v = uniform_of(tl.load(seed), tl.load(ids + lane), tl.load(position).to(tl.int32), STREAM)
    tl.store(noise + lane, noise_of(v))
    tl.store(bound + lane, least_noise_of(v))


@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1, -1, -(2**63), 0x123456789ABCDEF])
@pytest.mark.parametrize("position", [0, 77, 2**31 - 1])
def test_noise_is_that_of_the_reference_to_the_bit(seed: int, position: int) -> None:
    ids = torch.cat([torch.arange(4000), 2**31 - 1 - torch.arange(96)]).int()
    noise, bound = torch.empty(4096), torch.empty(4096)
    given = torch.tensor([seed]), torch.tensor([position])
    for stream in (0, 3):
        _numbers[(1,)](given[0], ids, given[1], noise, bound, stream, 4096)
        want = randomness.noise(given[0], ids.long(), given[1], stream)
        assert torch.equal(noise, want)
        assert (bound <= want).all()
        assert (bound >= want - 0.03).all()


@triton.jit
def _words(noise, bound, values, N: tl.constexpr):
    lane = tl.arange(0, N)
    v = tl.minimum(
        (tl.load(values + lane).to(tl.float32) + 0.5) * 2.3283064365386963e-10, 0.9999999403953552
    )
    tl.store(noise + lane, noise_of(v))
    tl.store(bound + lane, least_noise_of(v))


def test_noise_of_extreme_words_is_that_of_the_reference() -> None:
    small = [0, 1, 2, 3, 100, 1000, 2**13, 2**14 - 1, 2**14, 2**14 + 1, 2**20, 2**25, 2**26]
    words = torch.tensor(small + [2**32 - 1 - w for w in small] + [2**31] * 6)
    noise, bound = torch.empty(32), torch.empty(32)
    _words[(1,)](noise, bound, words, 32)
    v = ((words.float() + 0.5) * 2.0**-32).clamp_max(1.0 - 2.0**-24)
    want = torch.log(-torch.log1p(-v.double())).float()
    assert torch.equal(noise, want)
    assert (bound <= want).all()


@triton.jit
def _bits(x, keys, back, counts, N: tl.constexpr):
    lane = tl.arange(0, N)
    key = key_of(tl.load(x + lane))
    tl.store(keys + lane, key)
    tl.store(back + lane, value_of(key))
    tl.store(counts + lane, popcount(key))


def test_keys_order_as_the_numbers_do() -> None:
    x = torch.tensor(
        [-INF, -3.4e38, -1.0, -1e-45, -0.0, 0.0, 1e-45, 1.0, 1.0000001, 3.4e38, INF, 2, 3, 4, 5, 6]
    )
    keys, counts = torch.empty(16, dtype=torch.int32), torch.empty(16, dtype=torch.int32)
    back = torch.empty(16)
    _bits[(1,)](x, keys, back, counts, 16)
    assert torch.equal(back, x)
    assert torch.equal(keys[:, None] < keys[None], x[:, None] < x[None])
    assert counts.tolist() == [(key & 0xFFFFFFFF).bit_count() for key in keys.tolist()]


def test_the_names_and_signatures_are_those_of_the_other_backends() -> None:
    for name in ("process_logits", "sample_tokens", "commit_tokens", "advance_fsm"):
        want = inspect.signature(getattr(reference, name))
        assert inspect.signature(getattr(triton_ops, name)) == want
    assert triton_ops.BACKEND == "triton"
    assert set(ORDER) >= triton_ops.FUSED
    assert {argument for name in triton_ops.FUSED for argument in ORDER[name]} | {
        "greedy"
    } == launch.KNOWN


@pytest.mark.parametrize("fields", FILTERS + EDITS, ids=str)
def test_every_stage_alone_agrees(fields: dict[str, Any]) -> None:
    logits = kinds(513)
    size = len(logits)
    assert compare(logits, requests([fields] * size), histories(size, 513)) <= 2


@pytest.mark.parametrize("width", [1, 33, 70])
def test_narrow_rows_agree(width: int) -> None:
    fitting = {k: v for k, v in EVERYTHING.items() if k not in ("logit_bias", "bad_words_ids")}
    logits = kinds(width)
    rounded = 0
    for fields in ({"top_p": 0.9}, {"top_k": 3}, {"min_p": 0.5}, fitting):
        rounded += compare(logits, requests([fields] * len(logits)), histories(len(logits), width))
    assert rounded <= 6  # flat rows whose masses are simple fractions


def test_all_stages_together_agree() -> None:
    logits = kinds(700, seed=3)
    size = len(logits)
    assert compare(logits, requests([EVERYTHING] * size), histories(size, 700)) <= 1


def test_other_requests_in_the_batch_change_nothing() -> None:
    fields = [*FILTERS, *EDITS, CHAIN, EVERYTHING, {}]
    logits = torch.randn(len(fields), 600) * 3
    prompts = histories(len(fields), 600)
    compare(logits, requests(fields), prompts)
    alone = requests(fields)[4:5]
    batch = start(requests(fields), prompts, 600, backend="numba")
    single = start(alone, prompts[4:5], 600, backend="numba")
    want, _ = triton_ops.process_logits(logits[4:5], *tensors(single.rows()), **arguments(single))
    got, _ = triton_ops.process_logits(logits, *tensors(batch.rows()), **arguments(batch))
    assert torch.equal(got[4], want[0])


@pytest.mark.parametrize(
    "fields",
    [{}, {"top_k": 40}, {"top_p": 0.9}, {"top_k": 3000}, {"eta_cutoff": 2e-4}, EVERYTHING],
    ids=str,
)
def test_rows_split_over_programs_give_the_same(
    fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(monkeypatch, block=1024, piece=2048)
    width = 4 * 1024 - 61
    logits = torch.cat([2.5 * torch.randn(1, width), 0.01 * torch.randn(1, width)])
    params, prompts = requests([fields] * 2), [[5, 3000, 5], [7, 7, width - 1, 4000]]
    batch = start(params, prompts, width, backend="numba")
    call = (logits, *tensors(batch.rows()))
    results = []
    for processors in (1, 8):
        split(monkeypatch, processors)
        out, _ = triton_ops.process_logits(*call, **arguments(batch))
        tokens, _ = triton_ops.sample_tokens(*call, **arguments(batch))
        results.append((out, tokens))
    for out, tokens in results[1:]:
        assert torch.equal(out, results[0][0])
        assert torch.equal(tokens, results[0][1])
    assert compare(logits, params, prompts) == 0


@pytest.mark.parametrize(
    "fields",
    [{"top_k": 300}, {"top_p": 0.9}, {"top_p": 0.999, "top_k": 450}, CHAIN | {"top_k": 400}],
    ids=str,
)
def test_rows_whose_survivors_do_not_fit_the_buffer_agree(
    fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(monkeypatch, capacity=16)
    logits = kinds(513, seed=1)
    assert compare(logits, requests([fields] * len(logits)), histories(len(logits), 513)) <= 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_dtypes_and_strides_agree(dtype: torch.dtype) -> None:
    wide = (3 * torch.randn(3, 1500)).to(dtype)
    params, prompts = requests([CHAIN, {"top_p": 0.7}, {}]), histories(3, 500)
    for logits in (wide[:, 7:507], wide[:, :1000:2], wide[:1].expand(3, 1500)[:, :500]):
        assert compare(logits, params, prompts) == 0


def test_addresses_beyond_two_to_the_31_are_right() -> None:
    width, stride = 600, 2**30 + 24  # the product with the row's number is too large
    line = torch.empty(2 * stride + width, dtype=torch.float16)  # its untouched pages cost nothing
    far = line.as_strided((3, width), (stride, 1))
    near = (3 * torch.randn(3, width)).half()
    far.copy_(near)
    batch = start(requests([CHAIN] * 3), histories(3, width), width, backend="numba")
    arguments_ = arguments(batch)
    want, _ = triton_ops.process_logits(near, *tensors(batch.rows()), **arguments_)
    got, _ = triton_ops.process_logits(far, *tensors(batch.rows()), **arguments_)
    assert torch.equal(got, want)


@pytest.mark.parametrize("fields", [{}, CHAIN, {"temperature": 0.0}], ids=str)
def test_bad_and_empty_rows_are_reported_and_harm_nobody(fields: dict[str, Any]) -> None:
    logits = torch.randn(6, 300)
    logits[1, 299] = float("nan")
    logits[2, 0] = INF
    logits[3] = -INF
    logits[4, :-1] = -INF
    params, prompts = requests([fields] * 6), histories(6, 300)
    assert compare(logits, params, prompts) == 0
    batch = start(params, prompts, 300, backend="numba")
    tokens, status = triton_ops.sample_tokens(logits, *tensors(batch.rows()), **arguments(batch))
    assert status.tolist() == [OK, BAD, BAD, EMPTY, OK, OK]
    assert tokens[1:5].tolist() == [-1, -1, -1, 299]


def test_a_banned_nan_is_still_bad_and_an_edit_may_overflow() -> None:
    logits = torch.randn(3, 100)
    logits[0, 5] = float("nan")
    logits[1, 3] = 3e38
    fields = [{"allowed_token_ids": [1, 2]}, {"logit_bias": {3: 3e38}}, {"temperature": 1e-30}]
    assert compare(logits, requests(fields), [[]] * 3) == 0


def test_an_overflow_is_seen_even_if_the_token_is_banned_afterwards() -> None:
    logits = torch.full((4, 50), 3e38)
    bias = {"logit_bias": {3: 3e38}}
    fields = [
        bias | {"min_new_tokens": 9, "stop_token_ids": [3]},
        bias | {"bad_words_ids": [[3]]},
        bias | {"allowed_token_ids": [1, 2]},
        {"presence_penalty": -3e38, "no_repeat_ngram_size": 1},
    ]
    prompts = [[], [], [], [5, 5, 6, 6]]
    assert compare(logits, requests(fields), prompts) == 0
    batch = start(requests(fields), prompts, 50, backend="numba", prompt_lengths=[0] * 4)
    _, status = triton_ops.sample_tokens(logits, *tensors(batch.rows()), **arguments(batch))
    assert status.tolist() == [BAD, BAD, OK, BAD]


def test_greedy_rows_are_marked_by_either_column() -> None:
    logits = torch.randn(4, 300).round()
    fields = [{"temperature": 0.0, "top_k": 3}, {"temperature": 0.5, "top_k": 3}] * 2
    batch = start(requests(fields), histories(4, 300), 300, backend="numba")
    given = arguments(batch)
    unmarked = {name: column for name, column in given.items() if name != "greedy"}
    for arguments_ in (given, unmarked, {"greedy": given["greedy"]}):
        call = (logits, *tensors(batch.rows()))
        for name in ("process_logits", "sample_tokens"):
            want, _ = getattr(reference, name)(*call, **arguments_)
            got, _ = getattr(triton_ops, name)(*call, **arguments_)
            assert torch.equal(got, want)


def test_extreme_rows_and_parameters_agree() -> None:
    normal = torch.randn(1, 300)
    rows = torch.cat([
        normal / normal.abs().amax() * 3.4e38,
        normal * 1e-40,
        torch.where(normal > 0, 0.0, -0.0),
        1e5 + 3 * normal,
        300 * normal,
        (normal * 2).round() * 2.0**-23 + 1.0,
    ])  # fmt: skip
    for fields in (
        {"top_p": 0.9}, {"top_k": 2**31 - 1}, {"top_p": 5e-324}, {"top_p": 1 - 2.0**-53},
        {"min_p": 5e-324}, {"repetition_penalty": 3e38}, {"temperature": 3e38},
        {"no_repeat_ngram_size": 2**31 - 1}, {"min_new_tokens": 2**31 - 1}, {"top_n_sigma": 1e-300},
        {"epsilon_cutoff": 5e-324}, {"eta_cutoff": 1 - 2.0**-53}, {"temperature": 0.0},
    ):  # fmt: skip
        compare(rows, requests([fields] * len(rows)), histories(len(rows), 300))


@pytest.mark.parametrize("width", [70, 513])
def test_masks_of_grammars_agree(width: int) -> None:
    logits = kinds(width, seed=2)[:4]
    fitting = {k: v for k, v in EVERYTHING.items() if k not in ("logit_bias", "bad_words_ids")}
    for words in (width // 32, width // 32 + 2):
        given = masks(4, words, seed=words)
        for fields in ({"top_k": 5}, fitting):
            params = requests([fields] * 4)
            assert compare(logits, params, histories(4, width), masks=given) <= 1


def test_an_overflow_is_seen_in_what_the_grammar_masks() -> None:
    logits = torch.full((3, 50), 3e38)
    logits[2, 9] = INF
    fields = [{"logit_bias": {3: 3e38}}, {"presence_penalty": -3e38}, {}]
    given = masks(3, 2) | {"mask_row": torch.ones(3, dtype=torch.int32)}
    assert compare(logits, requests(fields), [[5, 5, 6, 6]] * 3, masks=given) == 0


def test_masks_of_split_rows_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    tune(monkeypatch, block=1024, piece=2048)
    split(monkeypatch, 8)
    width = 4 * 1024 - 61
    logits = 2.5 * torch.randn(2, width)
    given = masks(2, -(-width // 32), seed=1) | {"mask_row": torch.tensor([3, 2]).int()}
    for fields in ({}, {"top_k": 40}, EVERYTHING):
        assert compare(logits, requests([fields] * 2), [[5, 3000, 5], [7]], masks=given) == 0


def test_automata_advance_as_in_plain_torch() -> None:
    for seed in range(8):
        call = random_call(seed, size=70)
        assert torch.equal(triton_ops.advance_fsm(*call), reference.advance_fsm(*call))
    none = random_call(0, size=0)
    assert len(triton_ops.advance_fsm(*none)) == 0


def test_no_rows_are_no_result() -> None:
    batch = start(requests([CHAIN]), [[1, 2]], 50, backend="numba")
    rows = batch.rows().select(torch.zeros(1, dtype=torch.bool))
    out, status = triton_ops.process_logits(torch.zeros(0, 50), *tensors(rows), **arguments(batch))
    assert out.shape == (0, 50)
    assert len(status) == 0


def test_tokens_beyond_the_logits_are_ignored_in_the_history() -> None:
    prompts = [[0, 69, 70, 500, 70, 500], [500] * 8, [70, 1, 70, 1, 70]]
    logits = torch.randn(3, 70)
    for fields in (CHAIN, {"no_repeat_ngram_size": 2}):
        assert compare(logits, requests([fields] * 3), prompts) == 0


def draws(number: int) -> None:
    logits = 2 * torch.randn(number, 512)
    params = [SamplingParams(sampling_seed=i // 4) for i in range(number)]
    prompts = [[1] * (i % 4) for i in range(number)]
    batch = start(params, prompts, 512, backend="numba")
    call = (logits, *tensors(batch.rows()))
    tokens = [ops.sample_tokens(*call)[0].tolist() for ops in (*OPS.values(), triton_ops)]
    assert all(found == tokens[0] for found in tokens[1:])


def full_chain(number: int, width: int) -> None:
    """Survivors, values and tokens of both kernels are those of plain torch; rounding decides none.

    (It may decide a row where a mass lies within 1e-6 of p, and none of these rows is one.)
    """
    rounded, size = 0, min(number, 50)
    for first in range(0, number, size):
        logits = 3 * torch.randn(size, width)
        params, prompts = requests([CHAIN] * size), histories(size, width, seed=first)
        rounded += compare(logits, params, prompts)
        rounded += compare_on_cpu(logits, params, prompts)
    assert rounded == 0


def test_bare_draws_are_the_same_on_three_backends() -> None:
    draws(300)


@pytest.mark.slow
def test_ten_thousand_bare_draws_are_the_same_on_three_backends() -> None:
    draws(10_000)


def test_the_full_chain_agrees_with_the_reference() -> None:
    full_chain(30, 512)
    full_chain(2, 151_936)


@pytest.mark.slow
def test_three_hundred_rows_of_the_full_chain_agree() -> None:
    full_chain(300, 512)
    full_chain(20, 151_936)


@pytest.mark.parametrize("fields", [{"top_p": 0.95}, {"top_k": 60_000, "top_p": 0.9}], ids=str)
def test_flat_and_tied_rows_of_a_large_vocabulary_agree(
    fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(monkeypatch, piece=32_768)  # fewer steps for the interpreter
    width = 128_256
    ties = 2.5 * torch.randn(1, width)
    ties[0, torch.randperm(width)[:60_000]] = 4.0
    logits = torch.cat([torch.randn(1, width) * 1e-2, ties])
    assert compare(logits, requests([fields] * 2), [[5, 4, 3, 5, 4]] * 2) <= 1
