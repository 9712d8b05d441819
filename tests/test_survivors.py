"""`logprobs=0` in the mode "filtered": told by the draw itself, and equal to what logits tell."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tiny import IDS, MASK, PADDED, VOCAB, logits_edited, tiny_model
from torch import Tensor

import logitkit as lk
from logitkit import SamplingParams
from logitkit.generation.door import generate
from logitkit.sampler import Sampler

MODEL = tiny_model()
WEIGHTS = {5: 8.0, 6: 4.0, 7: 2.0, 8: 1.0}  # all other tokens are next to impossible
TOLD = {"logprobs": 0, "logprob_mode": "filtered"}
FIELDS: tuple[dict[str, Any], ...] = (
    {"top_k": 5, "temperature": 0.8}, {"top_p": 0.9}, {"temperature": 0.0},
    {"typical_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.2}, {"xtc_probability": 1.0},
)  # fmt: skip


def four_tokens(logits: Tensor, step: int) -> Tensor:
    row = torch.full_like(logits, -60.0)
    for token, weight in WEIGHTS.items():
        row[:, token] = math.log(weight)
    return row


def shown(params: Any, **call: Any) -> Any:
    call = {**PADDED, "max_new_tokens": 6, "return_dict_in_generate": True, **call}
    return generate(MODEL, params=params, **call)


def same(a: Any, b: Any, atol: float = 1e-6) -> None:
    """The tokens, their log-probabilities and the survivors of two outputs are one."""
    assert torch.equal(a.sequences, b.sequences)
    torch.testing.assert_close(a.logprobs, b.logprobs, rtol=0, atol=atol, equal_nan=True)
    assert torch.equal(a.num_survivors, b.num_survivors)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Whether each choice kept the logits in between."""
    found: list[bool] = []
    choose = Sampler.choose

    def spy(self: Sampler, logits: Tensor, rows: Any) -> Any:
        choice = choose(self, logits, rows)
        found.append(choice.scores is not None)
        return choice

    monkeypatch.setattr(Sampler, "choose", spy)
    yield found


@pytest.mark.parametrize("backend", ["torch", "numba"])
def test_the_survivors_and_their_probabilities_are_those_worked_out_by_hand(backend: str) -> None:
    params = [
        SamplingParams(top_k=2, sampling_seed=1, **TOLD),  # 8 and 4
        SamplingParams(top_p=0.9, sampling_seed=2, **TOLD),  # 8 + 4 + 2 of 15
        SamplingParams(temperature=0.0, **TOLD),
    ]
    with logits_edited(MODEL, four_tokens):
        out = shown(params, max_new_tokens=3, backend=backend)
    assert out.num_survivors.tolist() == [[2] * 3, [3] * 3, [1] * 3]
    assert out.num_survivors.dtype == torch.int64
    for row, total in enumerate((12.0, 14.0, 8.0)):
        tokens = out.sequences[row, -3:].tolist()
        expected = torch.tensor([math.log(WEIGHTS[t] / total) for t in tokens])
        torch.testing.assert_close(out.logprobs[row], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("backend", ["torch", "numba"])
def test_the_draw_tells_what_the_logits_tell(backend: str, kept: list[bool]) -> None:
    fields = [FIELDS[0], FIELDS[2], FIELDS[3]], [FIELDS[1], FIELDS[4], {}]
    for few in fields:
        params = [SamplingParams(**{"sampling_seed": i} | f | TOLD) for i, f in enumerate(few)]
        told = shown(params, backend=backend)
        assert not any(kept)
        seen = shown(params, backend=backend, output_scores=True)
        assert any(kept)
        same(told, seen)
        # a neighbour that wants the best tokens takes the other way as well, and changes nothing
        best = [SamplingParams(sampling_seed=9, logprobs=3, logprob_mode="filtered"), *params[1:]]
        beside = shown(best, backend=backend)
        assert torch.equal(beside.num_survivors[1:], told.num_survivors[1:])
        torch.testing.assert_close(
            beside.logprobs[1:], told.logprobs[1:], rtol=0, atol=1e-6, equal_nan=True
        )
        kept.clear()


@pytest.mark.parametrize("verify", ["exact", "ratio"])
def test_drafted_rows_have_the_survivors_of_rows_that_were_stepped(verify: str) -> None:
    params = [SamplingParams(**{"sampling_seed": 3} | f | TOLD) for f in FIELDS[:3]]
    call = {"draft": MODEL, "num_draft_tokens": 3, "verify": verify, "max_new_tokens": 9}
    drafted = shown(params, **call)
    assert drafted.speculation.num_accepted > 0
    if verify == "exact":
        same(drafted, shown(params, max_new_tokens=9), atol=1e-4)  # forwards of other widths
    same(drafted, shown(params, **call, output_scores=True))


def test_the_survivors_are_those_of_the_scores() -> None:
    params = [SamplingParams(**{"sampling_seed": 4} | FIELDS[i] | TOLD) for i in (0, 1, 3)]
    out = shown(params, output_scores=True)
    for step, scores in enumerate(out.scores):
        over = out.num_survivors[:, step] == 0
        assert over.tolist() == [step >= length for length in out.lengths.tolist()]
        want = (scores > -torch.inf).sum(1).masked_fill(over, 0)
        assert torch.equal(out.num_survivors[:, step], want)


def test_other_requests_and_modes_have_no_survivors() -> None:
    params = [
        SamplingParams(top_k=2, sampling_seed=1, **TOLD),
        SamplingParams(top_k=2, sampling_seed=1),
        SamplingParams(top_k=2, sampling_seed=1, logprobs=0, max_new_tokens=2),
    ]
    out = shown(params)
    length = int(out.lengths[0])
    assert out.num_survivors[0].tolist() == [2] * length + [0] * (6 - length)
    assert out.num_survivors[1:].sum() == 0
    assert out.logprobs[1].isnan().all() and not out.logprobs[2, :2].isnan().any()
    none = shown([SamplingParams(logprobs=2)] * 3)
    assert none.num_survivors is None and "num_survivors" not in none


def test_what_a_criterion_cuts_off_has_neither() -> None:
    def stops(ids: Tensor, scores: Any) -> Tensor:
        return torch.tensor([ids.shape[1] >= IDS.shape[1] + 2, False, False])

    params = [SamplingParams(**{"sampling_seed": 5, "ignore_eos": True} | TOLD)] * 3
    call = {"stopping_criteria": [stops], "draft": MODEL, "num_draft_tokens": 4}
    out = shown(params, **call)
    assert out.lengths.tolist() == [2, 6, 6]
    assert out.num_survivors[0].tolist() == [VOCAB] * 2 + [0] * 4
    assert out.logprobs[0].isnan().tolist() == [False] * 2 + [True] * 4


def test_a_row_alone_tells_the_same() -> None:
    params = [SamplingParams(**{"sampling_seed": 6 + i} | FIELDS[i] | TOLD) for i in range(3)]
    together = shown(params)
    for row, p in enumerate(params):
        alone = lk.generate(
            MODEL, IDS[row : row + 1, MASK[row] == 1], params=p, max_new_tokens=6,
            return_dict_in_generate=True,
        )  # fmt: skip
        size = int(alone.lengths[0])
        assert torch.equal(together.num_survivors[row, :size], alone.num_survivors[0])
        torch.testing.assert_close(
            together.logprobs[row, :size], alone.logprobs[0], rtol=1e-3, atol=1e-5
        )
