"""`LogitsPipeline` in a further `model.generate`, and back at a shorter prefix (assistants)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pipeline_models import (
    EOS,
    PAD,
    alone,
    generate,
    prompt,
    tiny_llama,
    without_eos,
)

import logitkit as lk
from logitkit import LogitsPipeline, SamplingParams

# -- the same object again

SEEDED = SamplingParams(temperature=0.9, presence_penalty=0.5, max_new_tokens=9, sampling_seed=5)


@pytest.mark.parametrize(
    "second",
    [
        [prompt(6), prompt(6, 1)],  # the same
        [prompt(6, 2), prompt(6, 3)],
        [prompt(6), prompt(6, 4)],  # one of them
        [prompt(4, 2), prompt(2, 3)],
        [prompt(3), prompt(3, 1)],
        [prompt(30, 2), prompt(20, 3)],
        [prompt(6)],
        [prompt(6), prompt(6, 1), prompt(6, 1)],
    ],
)
@pytest.mark.parametrize("criteria", [True, False])
def test_a_second_generate_equals_that_of_a_fresh_object(
    second: list[list[int]], criteria: bool
) -> None:
    def run(pipe: LogitsPipeline, prompts: list[list[int]]) -> list[list[int]]:
        stopping = pipe.stopping_criteria() if criteria else []
        return generate(pipe, prompts, eos_token_id=EOS, stopping_criteria=stopping)

    def fresh() -> LogitsPipeline:
        return LogitsPipeline(SEEDED, eos_token_id=EOS, pad_token_id=PAD)

    used = fresh()
    run(used, [prompt(6), prompt(6, 1)])
    assert run(used, second) == run(fresh(), second)


def test_a_continued_prompt_is_a_new_generation_after_reset() -> None:
    pipe = LogitsPipeline(SEEDED, eos_token_id=EOS, pad_token_id=PAD)
    generate(pipe, [prompt(6)], eos_token_id=EOS)
    longer = [*prompt(6), 20, 21]
    pipe.reset()
    fresh = LogitsPipeline(SEEDED, eos_token_id=EOS, pad_token_id=PAD)
    assert generate(pipe, [longer], eos_token_id=EOS) == generate(fresh, [longer], eos_token_id=EOS)


def test_unseeded_requests_differ_from_generate_to_generate_and_seeded_do_not() -> None:
    pipe = LogitsPipeline([SamplingParams(), SamplingParams(sampling_seed=5)])
    prompts = [prompt(6), prompt(6)]
    runs = [generate(pipe, prompts) for _ in range(3)]
    assert len({tuple(run[0]) for run in runs}) == 3
    assert len({tuple(run[1]) for run in runs}) == 1
    torch.manual_seed(3)
    first = generate(pipe, prompts)
    torch.manual_seed(3)
    assert generate(pipe, prompts) == first


# -- going back to a shorter prefix

RULED = SamplingParams(
    temperature=0.6, top_k=20, presence_penalty=0.4, frequency_penalty=0.1, repetition_penalty=1.1,
    no_repeat_ngram_size=6, min_new_tokens=3, sampling_seed=5,
)  # fmt: skip
ASSISTANTS: list[Callable[[], dict[str, Any]]] = [
    lambda: {"prompt_lookup_num_tokens": 4},
    lambda: {"assistant_model": tiny_llama(seed=1)},
    lambda: {"assistant_model": tiny_llama()},
]


@pytest.mark.parametrize("assistant", ASSISTANTS)
@pytest.mark.parametrize("do_sample", [True, False])
@pytest.mark.parametrize("temperature", [0.6, 0.0])
def test_assisted_decoding_and_prompt_lookup_equal_plain(
    assistant: Callable[[], dict[str, Any]], do_sample: bool, temperature: float
) -> None:
    params = lk.SamplingParams(**RULED.to_dict() | {"temperature": temperature})
    repeating = [20, 21, 22, 23] * 4
    pipe = LogitsPipeline(params, eos_token_id=EOS)
    options = {"max_new_tokens": 18, "do_sample": do_sample, "eos_token_id": EOS}
    for tokens in (repeating, prompt(6)):
        expected = alone([tokens], [params], steps=18, eos=EOS)
        for _ in range(2):
            assert generate(pipe, [tokens], **options, **assistant()) == expected


@pytest.mark.parametrize("assistant", ASSISTANTS)
def test_stops_hold_under_assisted_decoding(assistant: Callable[[], dict[str, Any]]) -> None:
    params = without_eos(max_new_tokens=7)
    plain = alone([prompt(6)], [without_eos()], steps=7)[0]
    pipe = LogitsPipeline(params, eos_token_id=EOS)
    options = {"eos_token_id": EOS, "max_new_tokens": 15, **assistant()}
    assert generate(pipe, [prompt(6)], **options) == [[*plain, EOS]]
    exact = generate(pipe, [prompt(6)], stopping_criteria=pipe.stopping_criteria(), **options)
    assert exact[0] in (plain, [*plain, EOS])  # transformers asks criteria once per block
