"""How rows end in `LogitsPipeline`: those that are over, those that cannot be decided."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pipeline_by_hand import INF, ORDINARY, V, drawn, ids, logits, pipeline, walked
from pipeline_models import EOS, PAD, prompt, tiny_tokenizer
from torch import Tensor

import logitkit as lk
from logitkit import LogitsPipeline, SamplingParams
from logitkit.stops import StopRegexTimeout, StopRules


def test_a_bad_row_raises_with_its_neighbours_tokens_and_the_pipeline_goes_on() -> None:
    x, scores = ids(prompt(5), prompt(5, 1), prompt(5, 2)), logits(3)
    healthy = pipeline(ORDINARY).sample(x, scores).tolist()
    for poison, kind in ((float("nan"), lk.BadLogitsError), (-INF, lk.EmptyRowError)):
        wrong = scores.clone()
        wrong[1] = poison
        pipe = pipeline(ORDINARY)
        for call in (pipe, pipe.process, pipe.sample):
            with pytest.raises(kind, match="request 1, position 5") as caught:
                call(x, wrong)
            assert caught.value.slots == (1,)
        assert caught.value.tokens is not None
        assert caught.value.tokens.tolist() == [healthy[0], -1, healthy[2]]
        assert pipe.sample(x, scores).tolist() == healthy
        more = torch.cat([x, torch.tensor([[20], [21], [22]])], 1)
        other = pipeline(ORDINARY)
        other.sample(x, scores)
        assert pipe.sample(more, scores).tolist() == other.sample(more, scores).tolist()


def test_the_stage_that_emptied_a_row_is_named() -> None:
    params = SamplingParams(allowed_token_ids=[7], no_repeat_ngram_size=1, sampling_seed=1)
    with pytest.raises(lk.EmptyRowError, match="NoRepeatNgram"):
        pipeline(params).sample(ids([7, 8]), logits(1))


@pytest.mark.parametrize("pad", [PAD, EOS])
@pytest.mark.parametrize("select", [True, False])
@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("poison", [float("nan"), -INF])
def test_finished_rows_never_raise(pad: int, select: bool, joined: bool, poison: float) -> None:
    pipe = pipeline(ORDINARY, pad_token_id=pad, select=select)
    x = ids([*prompt(5), EOS, pad, pad], [*prompt(5, 1), 20, 21, 22])
    if joined:
        pipe.reset(prompt_lengths=5)
    for width in range(7 if joined else 5, 9):
        scores = logits(2, width)
        if width > 5:
            scores[0] = poison
        assert not pipe(x[:, :width], scores).isnan().any()
    scores[1] = poison
    with pytest.raises(lk.RowError) as caught:
        pipe(x, scores)
    assert caught.value.slots == (1,)


def test_a_row_that_the_callers_criteria_ended_never_raises() -> None:
    pipe = pipeline(ORDINARY)
    token = int(pipe.sample(ids(prompt(5)), logits(1)))
    pipe.sample(ids([*prompt(5), token]), logits(1))
    pipe.sample(ids([*prompt(5), token, PAD]), torch.full((1, V), -INF))  # a pad nobody drew


def test_a_pad_that_was_drawn_is_a_token_like_others() -> None:
    only_pad = torch.full((1, V), -INF)
    only_pad[0, PAD] = 0.0
    pipe = pipeline(ORDINARY)
    assert pipe.sample(ids(prompt(5)), only_pad).tolist() == [PAD]
    with pytest.raises(lk.EmptyRowError):
        pipe.sample(ids([*prompt(5), PAD]), torch.full((1, V), -INF))


def run(pipe: LogitsPipeline, tokens: list[int]) -> list[int]:
    """What the pipeline answers behind the prompt and after each of `tokens`."""
    x, out = prompt(5), []
    for step, token in enumerate([None, *tokens]):
        x = x if token is None else [*x, token]
        out.append(int(pipe.sample(ids(x), logits(1, step))))
    return out


@pytest.mark.parametrize(
    ("fields", "over_after"),
    [
        ({"max_new_tokens": 3}, 3),
        ({"stop_token_ids": [21]}, 2),
        ({"stop": ["0c1"]}, 2),  # the texts of 20, 21, 22: "c0c1c2"
        ({"stop_regex": ["c[12]+"]}, 2),
        ({"stop": ["c1"], "min_new_tokens": 2}, None),
        ({"stop": ["c2"], "min_new_tokens": 2}, 3),
        ({"stop_regex": ["c1c2"], "min_new_tokens": 2}, 3),
    ],
)
def test_a_row_that_is_over_gets_eos_next(fields: dict[str, Any], over_after: int | None) -> None:
    params = SamplingParams(sampling_seed=1, logit_bias={EOS: -INF}, **fields)
    pipe = LogitsPipeline(params, tokenizer=tiny_tokenizer())
    answers = run(pipe, [20, 21, 22, 30])
    end = 5 if over_after is None else over_after
    assert EOS not in answers[:end]
    assert set(answers[end:]) <= {EOS}
    selected = pipe(ids([*prompt(5), 20, 21, 22, 30]), logits(1))
    assert (drawn(selected[0]) == EOS) == (over_after is not None)
    left = pipe.process(ids([*prompt(5), 20, 21, 22, 30]), logits(1))
    assert (int((left > -INF).sum()) == 1) == (over_after is not None)


def test_eos_and_stop_ids_are_masked_before_min_new_tokens() -> None:
    params = SamplingParams(min_new_tokens=2, stop_token_ids=[21], sampling_seed=1)
    pipe = LogitsPipeline(params, tokenizer=tiny_tokenizer())
    for tokens, masked in (([], True), ([20], True), ([20, 22], False)):
        out = pipe.process(ids([*prompt(5), *tokens]), logits(1))
        assert [float(out[0, t]) == -INF for t in (EOS, 21)] == [masked, masked]


def test_each_row_has_its_own_stops() -> None:
    several = [SamplingParams(max_new_tokens=1, sampling_seed=1), ORDINARY]
    pipe = pipeline(several)
    x = ids([*prompt(5), 20], [*prompt(5, 1), 20])
    pipe.sample(x[:, :5], logits(2))
    selected = pipe(x, logits(2))
    assert drawn(selected[0]) == EOS
    assert drawn(selected[1]) == int(walked_sample([ORDINARY], x[1:], 5, logits(2)[1:]))


def walked_sample(params: Any, x: Tensor, prompt_width: int, scores: Tensor) -> Tensor:
    pipe = pipeline(params)
    pipe.reset(prompt_lengths=prompt_width)
    return pipe.sample(x, scores)


def test_criteria_tell_rows_that_are_over_also_of_beam_candidates() -> None:
    several = [SamplingParams(max_new_tokens=2), SamplingParams(stop_token_ids=[21])]
    pipe = pipeline(several, select=False)
    criteria = pipe.stopping_criteria()
    x = ids([*prompt(5), 20], [*prompt(5, 1), 20])
    pipe(x[:, :5], logits(2))
    assert criteria(x, None).tolist() == [False, False]
    pipe(x, logits(2))
    longer = [[*row, token] for row in x.tolist() for token in (21, 22)]
    assert criteria(ids(*longer), None).tolist() == [True, True, True, False]  # two a row
    assert criteria(ids(longer[1], longer[3]), None).tolist() == [True, False]


def test_criteria_without_the_pipeline_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"logits_processor=\[pipe\]"):
        pipeline(SamplingParams(stop_token_ids=[3])).stopping_criteria()(ids(prompt(5)), None)


def test_a_regex_that_runs_out_of_time_leaves_the_pipeline_usable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(StopRules.__init__, "__kwdefaults__", {"regex_time_limit": 0.02})
    params = SamplingParams(stop_regex=["(?:c|[0-9]|c[0-9])+[yz]"], sampling_seed=1)
    pipe = LogitsPipeline(params, tokenizer=tiny_tokenizer())
    fresh = LogitsPipeline(params, tokenizer=tiny_tokenizer())
    x = [*prompt(5), *[20, 21, 22, 23] * 12]
    with pytest.raises(StopRegexTimeout):
        for width in range(5, len(x)):
            pipe.sample(ids(x[:width]), logits(1))
    for width in (5, 6, 7):
        expected = fresh.sample(ids(x[:width]), logits(1)).tolist()
        assert pipe.sample(ids(x[:width]), logits(1)).tolist() == expected


def test_an_interrupted_step_is_not_half_done(monkeypatch: pytest.MonkeyPatch) -> None:
    params = SamplingParams(max_new_tokens=2, presence_penalty=1.0, sampling_seed=1)
    pipe, x = pipeline(params), ids([*prompt(5), 20])
    pipe.process(x[:, :5], logits(1))

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(lk.Batch, "commit", interrupt)
        pipe.process(x, logits(1))
    for _ in range(2):
        assert torch.equal(pipe.process(x, logits(1)), walked(params, x, 5, logits(1)))
