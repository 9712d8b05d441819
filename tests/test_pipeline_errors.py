"""What `LogitsPipeline` refuses by name, when it is built and when it is called."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pipeline_by_hand import ORDINARY, ids, logits, pipeline
from pipeline_models import EOS, prompt
from torch import Tensor

from logitkit import LogitsPipeline, SamplingParams


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"params": SamplingParams(ignore_eos=True)}, r"`ignore_eos`=True.*lk\.generate"),
        ({"params": SamplingParams(logprobs=3)}, r"`logprobs`=3.*lk\.generate"),
        ({"params": []}, "`params` is empty"),
        ({"params": None}, "`params` must be SamplingParams"),
        ({"params": {"top_k": 3}}, "`params` must be SamplingParams"),
        ({"params": [ORDINARY, 3]}, "`params` must hold SamplingParams, got 3"),
        ({"params": SamplingParams(stop=["x"])}, "`stop`.*tokenizer="),
        ({"params": SamplingParams(bad_words=["x"])}, "`bad_words`.*tokenizer="),
        ({"params": SamplingParams(min_new_tokens=2), "eos_token_id": None}, "`min_new_tokens`=2"),
        ({"params": ORDINARY, "eos_token_id": -1}, "`eos_token_id`.*-1"),
        ({"params": ORDINARY, "eos_token_id": True}, "`eos_token_id`.*True"),
        ({"params": ORDINARY, "eos_token_id": []}, r"`eos_token_id`.*\[\]"),
        ({"params": ORDINARY, "eos_token_id": 2.0}, r"`eos_token_id`.*2\.0"),
        ({"params": ORDINARY, "pad_token_id": [1, 2]}, "`pad_token_id`"),
        ({"params": ORDINARY, "backend": "cuda"}, "`backend`.*'cuda'"),
        ({"params": SamplingParams(extra={"x": 1})}, "`extra`.*x"),
    ],
)
def test_what_cannot_be_honoured_is_refused_when_the_object_is_built(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        LogitsPipeline(**{"eos_token_id": EOS} | arguments)


@pytest.mark.parametrize(
    ("params", "x", "scores", "message"),
    [
        (ORDINARY, torch.ones(5, dtype=torch.int64), logits(1), r"`input_ids` \[B, L\]"),
        (ORDINARY, ids(prompt(5)), logits(2), r"\(1, 5\) and \(2, 97\)"),
        (ORDINARY, ids(prompt(5)), logits(1)[0], r"`scores` \[B, V\]"),
        (ORDINARY, ids(prompt(5)).float(), logits(1), "`input_ids` must hold integers"),
        (ORDINARY, ids(prompt(5)), logits(1).double(), "`scores` must be float32.*float64"),
        (SamplingParams(n=2), ids(prompt(5)), logits(1), "`n`=2 needs a multiple of 2 rows"),
        ([ORDINARY, ORDINARY], ids(prompt(5)), logits(1), "let num_return_sequences equal `n`"),
        (SamplingParams(n=2), ids(prompt(5), prompt(5, 1)), logits(2), "`n`=2.*different prompts"),
        (SamplingParams(stop_token_ids=[500]), ids(prompt(5)), logits(1), "`stop_token_ids`.*500"),
    ],
)
def test_a_call_that_does_not_fit_is_refused_and_the_next_one_served(
    params: Any, x: Tensor, scores: Tensor, message: str
) -> None:
    pipe = pipeline(params)
    for _ in range(2):  # the same answer when asked again
        with pytest.raises(ValueError, match=message):
            pipe(x, scores)
    good = pipe.params[0].n * len(pipe.params)
    if not pipe.params[0].stop_token_ids:
        pipe(torch.tensor([prompt(5)] * good), logits(good))


def test_a_failed_start_does_not_leave_the_old_generation_in_place() -> None:
    pipe = pipeline([ORDINARY, ORDINARY])
    pipe(ids(prompt(5), prompt(5, 1)), logits(2))
    for _ in range(2):
        with pytest.raises(ValueError, match="`n`"):
            pipe(ids(prompt(5), prompt(5, 1), prompt(5, 2)), logits(3))


def test_beams_need_equal_prompts_in_every_run() -> None:
    several = [ORDINARY, ORDINARY]
    x = ids(prompt(5), prompt(5), prompt(5, 1), prompt(5, 1))
    pipeline(several, select=False)(x, logits(4))
    with pytest.raises(ValueError, match="`n`"):
        pipeline(several)(x, logits(4))  # selected rows are no beams
    with pytest.raises(ValueError, match="different prompts"):
        pipeline(several, select=False)(x[[0, 2, 1, 3]], logits(4))


@pytest.mark.parametrize("lengths", [[1, 2, 3], 9, -1, 1.5, [1, 9], "two"])
def test_wrong_prompt_lengths_are_refused(lengths: Any) -> None:
    pipe = pipeline(ORDINARY)
    pipe.reset(prompt_lengths=lengths)
    with pytest.raises(ValueError, match="`prompt_lengths`"):
        pipe(ids(prompt(5), prompt(5, 1)), logits(2))


def test_scores_of_another_width_need_a_reset() -> None:
    pipe = pipeline(ORDINARY)
    pipe(ids(prompt(5)), logits(1))
    with pytest.raises(ValueError, match=r"`scores` are 98 wide.*97.*pipe\.reset\(\)"):
        pipe(ids([*prompt(5), 20]), logits(1, width=98))
    pipe(ids(prompt(5, 1)), logits(1, width=98))  # another prompt is another generation anyway


def test_stops_without_eos_need_criteria() -> None:
    params = SamplingParams(max_new_tokens=2, sampling_seed=1)
    pipe = LogitsPipeline(params)
    with pytest.raises(ValueError, match=r"eos_token_id=.*stopping_criteria\(\)"):
        pipe(ids(prompt(5)), logits(1))
    criteria = pipe.stopping_criteria()
    x = ids([*prompt(5), 20, 21])
    pipe(x[:, :5], logits(1))
    pipe(x[:, :6], logits(1))
    assert criteria(x, None).tolist() == [True]


def test_negative_ids_are_refused_at_the_start_and_later() -> None:
    pipe = LogitsPipeline(SamplingParams(repetition_penalty=2.0))
    with pytest.raises(ValueError, match="`input_ids` holds -100"):
        pipe.sample(torch.tensor([[-100, 2]]), torch.zeros(1, 8))
    pipe.sample(torch.tensor([[1, 2]]), torch.zeros(1, 8))
    with pytest.raises(ValueError, match="`input_ids` holds -3"):
        pipe.sample(torch.tensor([[1, 2, -3]]), torch.zeros(1, 8))
