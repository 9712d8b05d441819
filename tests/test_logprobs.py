"""Log-probabilities: the three modes by hand, and what an output shows of them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tiny import IDS, MASK, PADDED, VOCAB, logits_edited, tiny_model
from torch import Tensor

from logitkit import SamplingParams
from logitkit.generation.door import generate
from logitkit.sampler import token_logprobs

MODEL = tiny_model()
# Four tokens of weight 8, 4, 2, 1 (5, 6, 7, 8), all others next to impossible.
WEIGHTS = {5: 8.0, 6: 4.0, 7: 2.0, 8: 1.0}
NAN = math.nan


def four_tokens(logits: Tensor, step: int) -> Tensor:
    row = torch.full_like(logits, -60.0)
    for token, weight in WEIGHTS.items():
        row[:, token] = math.log(weight)
    return row


def shown(params: Any, ids: Tensor = IDS[:1], **call: Any) -> Any:
    call = {"max_new_tokens": 1, "return_dict_in_generate": True, **call}
    with logits_edited(MODEL, four_tokens):
        return generate(MODEL, ids, params=params, **call)


def close(found: Tensor, expected: Any) -> None:
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-5, atol=1e-6, equal_nan=True)


BIASED = {"logit_bias": {6: math.log(4.0)}, "temperature": 0.5, "top_k": 2, "sampling_seed": 1}
# With the bias the weights are 8, 16, 2, 1; at temperature 0.5 they are squared; top-k keeps 16, 8.
TABLE = {
    "raw": {5: 8 / 15, 6: 4 / 15},
    "processed": {5: 64 / 325, 6: 256 / 325},
    "filtered": {5: 64 / 320, 6: 256 / 320},
}
BEST = {"raw": [5, 6, 7], "processed": [6, 5, 7], "filtered": [6, 5, 0]}
BEST_P = {
    "raw": [8 / 15, 4 / 15, 2 / 15],
    "processed": [256 / 325, 64 / 325, 4 / 325],
    "filtered": [256 / 320, 64 / 320, NAN],
}


@pytest.mark.parametrize("backend", ["torch", "numba"])
@pytest.mark.parametrize("mode", ["raw", "processed", "filtered"])
def test_each_mode_gives_the_probabilities_worked_out_by_hand(mode: str, backend: str) -> None:
    out = shown(SamplingParams(**BIASED, logprobs=3, logprob_mode=mode), backend=backend)
    token = int(out.sequences[0, -1])
    close(out.logprobs, [[math.log(TABLE[mode][token])]])
    close(out.top_logprobs, [[[math.log(p) for p in BEST_P[mode]]]])
    assert out.top_token_ids.tolist() == [[BEST[mode]]]  # 0 is the pad id: only two are left


def test_temperature_zero_counts_as_one_and_filters_to_the_token_alone() -> None:
    params = {"temperature": 0.0, "logit_bias": {6: math.log(4.0)}, "top_k": 1, "logprobs": 2}
    processed = shown(SamplingParams(**params, logprob_mode="processed"))
    assert processed.sequences[0, -1] == 6
    close(processed.logprobs, [[math.log(16 / 27)]])
    close(processed.top_logprobs, [[[math.log(16 / 27), math.log(8 / 27)]]])
    filtered = shown(SamplingParams(**params, logprob_mode="filtered"))
    close(filtered.logprobs, [[0.0]])
    close(filtered.top_logprobs, [[[0.0, NAN]]])


def test_processed_leaves_filters_out_wherever_they_stand_in_the_chain() -> None:
    from logitkit.chains import LLAMA_CPP

    for mode in ("processed", "filtered"):
        params = SamplingParams(**BIASED, logprobs=3, logprob_mode=mode)
        out = shown(params, stages=LLAMA_CPP)
        close(out.top_logprobs, [[[math.log(p) for p in BEST_P[mode]]]])


def test_requests_of_every_mode_and_number_stand_side_by_side() -> None:
    params = [
        SamplingParams(**BIASED, logprobs=2, logprob_mode="filtered"),
        SamplingParams(**BIASED),
        SamplingParams(**BIASED, logprobs=0, logprob_mode="processed", max_new_tokens=2),
    ]
    out = shown(params, IDS, attention_mask=MASK, max_new_tokens=3)
    assert out.logprobs.shape == (3, 3)
    assert out.top_logprobs.shape == out.top_token_ids.shape == (3, 3, 2)
    assert not out.logprobs[0].isnan().any() and not out.top_logprobs[0].isnan().any()
    assert out.logprobs[1].isnan().all() and out.top_logprobs[1:].isnan().all()
    assert out.logprobs[2].isnan().tolist() == [False, False, True]  # behind the row's end
    assert (out.top_token_ids[1:] == 0).all()
    for row, p in enumerate(params):
        alone = shown(p, IDS[row : row + 1, MASK[row] == 1], max_new_tokens=3)
        if p.logprobs is not None:
            close(out.logprobs[row, : alone.logprobs.shape[1]], alone.logprobs[0].tolist())


def test_logprobs_are_those_of_a_log_softmax_over_the_models_own_logits() -> None:
    params = SamplingParams(sampling_seed=1, logprobs=VOCAB)
    out = generate(
        MODEL, **PADDED, params=params, max_new_tokens=5, return_dict_in_generate=True,
        output_logits=True,
    )  # fmt: skip
    for step, logits in enumerate(out.logits):
        expected = logits.log_softmax(-1)
        torch.testing.assert_close(
            out.logprobs[:, step : step + 1], expected.gather(1, out.sequences[:, 5 + step, None])
        )
        torch.testing.assert_close(
            out.top_logprobs[:, step], expected.gather(1, out.top_token_ids[:, step])
        )


def test_asking_for_logprobs_changes_no_token() -> None:
    call = {**PADDED, "max_new_tokens": 9, "return_dict_in_generate": True}
    params = {"temperature": 0.8, "top_p": 0.9, "sampling_seed": 2}
    plain = generate(MODEL, **call, params=SamplingParams(**params))
    assert plain.logprobs is None and "logprobs" not in plain
    for mode in ("raw", "processed", "filtered"):
        p = SamplingParams(**params, logprobs=2, logprob_mode=mode)
        assert generate(MODEL, **call, params=p).sequences.equal(plain.sequences)


def test_zero_logprobs_give_the_chosen_token_only() -> None:
    out = shown(SamplingParams(temperature=0.0, logprobs=0))
    close(out.logprobs, [[math.log(8 / 15)]])
    assert out.top_logprobs is None and out.top_token_ids is None


def test_more_logprobs_than_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match=r"`logprobs`=65.*only 64 tokens"):
        shown(SamplingParams(logprobs=VOCAB + 1))


def test_equal_logits_come_lowest_id_first() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0, 3.0, -torch.inf], [0.0, 0.0, 0.0, 0.0, 0.0]])
    chosen, top, ids = token_logprobs(logits, torch.tensor([2, 4]), 3)
    assert ids.tolist() == [[1, 2, 3], [0, 1, 2]]
    close(chosen[1], math.log(0.2))
    assert top[0, 0] == top[0, 2]
    assert token_logprobs(logits, torch.tensor([2, 4]), 5)[2].tolist() == [
        [1, 2, 3, 0, -1],
        [0, 1, 2, 3, 4],
    ]
