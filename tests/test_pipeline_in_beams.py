"""`LogitsPipeline` where a prompt has several rows in `model.generate`: samples and beams."""

from __future__ import annotations

from typing import Any

import pytest
from pipeline_models import (
    EOS,
    PAD,
    alone,
    generate,
    prompt,
    until,
    without_eos,
)

from logitkit import LogitsPipeline, SamplingParams

PROMPTS = [prompt(6), prompt(3, 1), prompt(9, 2), prompt(1, 3)]


def test_one_params_serves_every_prompt_with_its_seed() -> None:
    params = SamplingParams(temperature=0.9, sampling_seed=5)
    pipe = LogitsPipeline(params, pad_token_id=PAD)
    assert generate(pipe, PROMPTS) == alone(PROMPTS, [params] * 4)


def test_num_return_sequences_gives_the_samples_of_n() -> None:
    params = [SamplingParams(n=2, sampling_seed=5), SamplingParams(n=2, sampling_seed=6)]
    new = generate(LogitsPipeline(params, pad_token_id=PAD), PROMPTS[:2], num_return_sequences=2)
    firsts = alone(PROMPTS[:2], [SamplingParams(sampling_seed=s) for s in (5, 6)])
    assert [new[0], new[2]] == firsts
    assert new[1] != new[0]
    assert new[3] != new[2]
    one = LogitsPipeline(params[0], pad_token_id=PAD)
    again = generate(one, PROMPTS[:2], num_return_sequences=2)
    assert again[:2] == new[:2]


@pytest.mark.parametrize(
    ("params", "samples"),
    [
        ([SamplingParams(), SamplingParams()], 2),
        ([SamplingParams(n=2), SamplingParams(n=2)], 1),
        (SamplingParams(n=2), 3),
        (SamplingParams(n=2), 1),
    ],
)
def test_num_return_sequences_other_than_n_is_an_error(params: Any, samples: int) -> None:
    pipe = LogitsPipeline(params, pad_token_id=PAD)
    with pytest.raises(ValueError, match="`n`"):
        generate(pipe, PROMPTS[:2], num_return_sequences=samples)


def test_beams_equal_transformers_beams_with_the_same_rules() -> None:
    prompts = [prompt(6), prompt(6, 1)]
    rules = {"repetition_penalty": 1.4, "no_repeat_ngram_size": 2}
    params = [SamplingParams(sampling_seed=1, **rules), SamplingParams(sampling_seed=2, **rules)]
    options = {"num_beams": 3, "do_sample": False}
    pipe = LogitsPipeline(params, select=False)
    theirs = generate(pipe, prompts, logits_processor=[], **rules, **options)
    assert theirs != generate(pipe, prompts, logits_processor=[], **options)
    for _ in range(2):
        assert generate(pipe, prompts, **options) == theirs
    single = LogitsPipeline(params[0], select=False)
    assert generate(single, prompts, **options) == theirs
    assert generate(single, prompts, num_return_sequences=2, **options)[::2] == theirs


def test_beams_have_their_requests_own_params() -> None:
    prompts = [prompt(6), prompt(6, 1)]
    params = [SamplingParams(repetition_penalty=1.4), SamplingParams(no_repeat_ngram_size=1)]
    options = {"num_beams": 3, "do_sample": False, "logits_processor": []}
    pipe = LogitsPipeline(params, select=False)
    first = generate(pipe, prompts[:1], repetition_penalty=1.4, **options)
    second = generate(pipe, prompts[1:], no_repeat_ngram_size=1, **options)
    assert generate(pipe, prompts, **options | {"logits_processor": [pipe]}) == first + second


def test_beams_end_by_their_own_rules() -> None:
    params = [without_eos(max_new_tokens=3), without_eos(max_new_tokens=5)]
    pipe = LogitsPipeline(params, select=False, eos_token_id=EOS, pad_token_id=PAD)
    prompts = [prompt(6), prompt(6, 1)]
    options = {"num_beams": 3, "do_sample": False, "eos_token_id": EOS}
    exact = generate(pipe, prompts, stopping_criteria=pipe.stopping_criteria(), **options)
    assert [len([t for t in row if t not in (PAD, EOS)]) for row in exact] == [3, 5]
    late = generate(pipe, prompts, **options)
    assert [until(row, EOS)[-1] for row in late] == [EOS, EOS]
    assert [len(until(row, EOS)) for row in late] == [4, 6]


def test_beams_are_refused_with_selected_rows() -> None:
    pipe = LogitsPipeline(SamplingParams(sampling_seed=5))
    with pytest.raises(ValueError, match="`select`=True cannot serve beam search"):
        generate(pipe, [prompt(6)], num_beams=3, do_sample=False)
