"""`LogitsPipeline` in transformers' own loop: rows as strangers, rows that end, stops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pipeline_models import (
    EOS,
    PAD,
    STEPS,
    alone,
    generate,
    padded,
    prompt,
    tiny_llama,
    tiny_tokenizer,
    until,
    without_eos,
)
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor

import logitkit as lk
from logitkit import LogitsPipeline, SamplingParams

MIXED = [
    SamplingParams(temperature=0.7, top_p=0.9, sampling_seed=7),
    SamplingParams(temperature=1.3, top_k=20, min_p=0.02, repetition_penalty=1.3, sampling_seed=8),
    SamplingParams(temperature=0, presence_penalty=1.0),
    SamplingParams(frequency_penalty=1, no_repeat_ngram_size=2, xtc_probability=1, sampling_seed=9),
]
PROMPTS = [prompt(6), prompt(3, 1), prompt(9, 2), prompt(1, 3)]


# -- the same tokens as by hand


@pytest.mark.parametrize("vocab_size", [97, 1031])
def test_every_row_of_a_batch_gives_what_it_gives_alone(vocab_size: int) -> None:
    model = tiny_llama(vocab_size)
    expected = alone(PROMPTS, MIXED, model=model)
    assert generate(LogitsPipeline(MIXED, pad_token_id=PAD), PROMPTS, model) == expected
    for p, q, new in zip(PROMPTS, MIXED, expected, strict=True):
        assert generate(LogitsPipeline(q), [p], model) == [new]
    back = slice(None, None, -1)
    assert (
        generate(LogitsPipeline(MIXED[back], pad_token_id=PAD), PROMPTS[back], model)
        == (expected[back])
    )


@pytest.mark.parametrize(
    "warpers",
    [
        {},  # top_k=50 is on by default
        {"top_k": 1},
        {"temperature": 0.1, "top_p": 0.1, "min_p": 0.9, "typical_p": 0.2},
        {"epsilon_cutoff": 0.5, "eta_cutoff": 0.5, "top_h": 0.3, "renormalize_logits": True},
        {"do_sample": False},
    ],
)
def test_nothing_that_transformers_adds_behind_can_change_the_tokens(
    warpers: dict[str, Any],
) -> None:
    pipe = LogitsPipeline(MIXED, pad_token_id=PAD)
    assert generate(pipe, PROMPTS, **warpers) == alone(PROMPTS, MIXED)


def test_a_model_files_sampling_defaults_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_llama()
    config = GenerationConfig(do_sample=True, temperature=0.2, top_p=0.3, top_k=4)
    monkeypatch.setattr(model, "generation_config", config)
    pipe = LogitsPipeline(MIXED, pad_token_id=PAD)
    assert generate(pipe, PROMPTS, do_sample=None) == alone(PROMPTS, MIXED)


def test_what_transformers_masks_before_us_stays_masked() -> None:
    banned = [int(t) for t in range(10, 97, 2)]
    params = SamplingParams(logit_bias=dict.fromkeys(banned, -float("inf")), sampling_seed=3)
    pipe = LogitsPipeline(SamplingParams(sampling_seed=3))
    new = generate(pipe, [prompt(5)], suppress_tokens=banned, begin_suppress_tokens=[11])
    expected = alone([prompt(5)], [params])
    assert new == expected
    assert not set(new[0]) & set(banned)


def test_a_forced_eos_and_a_least_length_of_transformers_hold() -> None:
    pipe = LogitsPipeline(SamplingParams(sampling_seed=3), eos_token_id=EOS)
    new = generate(pipe, [prompt(5)], forced_eos_token_id=EOS, eos_token_id=EOS, min_new_tokens=4)
    assert new[0].index(EOS) >= 4
    assert new[0][-1] == EOS


def test_greedy_params_equal_transformers_greedy() -> None:
    pipe = LogitsPipeline(SamplingParams(temperature=0), pad_token_id=PAD)
    plain = generate(pipe, PROMPTS, do_sample=False, logits_processor=[])
    assert generate(pipe, PROMPTS, do_sample=False) == plain
    assert generate(pipe, PROMPTS, do_sample=True) == plain


def test_scores_and_logits_of_the_output_are_what_they_should_be() -> None:
    pipe = LogitsPipeline(SamplingParams(top_k=5, sampling_seed=1))
    inputs = padded([prompt(5)])
    options = {"return_dict_in_generate": True, "output_logits": True, "output_scores": True}
    out = tiny_llama().generate(
        **inputs, max_new_tokens=4, do_sample=True, logits_processor=[pipe], **options
    )
    new = out.sequences[0, 5:]
    with torch.no_grad():
        logits = tiny_llama()(out.sequences).logits[0, 4:-1]
    assert torch.allclose(torch.cat(out.logits), logits, atol=1e-4)
    for token, scores in zip(new, out.scores, strict=True):
        assert (scores[0] > -float("inf")).nonzero().flatten().tolist() == [int(token)]


# -- rows that end


class Poison(LogitsProcessor):
    """Makes every finished row's logits NaN (its newest token is a pad, or eos)."""

    def __init__(self, endings: set[int]) -> None:
        self.endings, self.hits = endings, 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        over = torch.tensor([int(t) in self.endings for t in input_ids[:, -1]])
        self.hits += int(over.sum())
        return scores.masked_fill(over[:, None], float("nan"))


@pytest.mark.parametrize("pad", [PAD, EOS])
def test_finished_rows_are_left_alone_and_never_raise(pad: int) -> None:
    params = [
        SamplingParams(sampling_seed=5, logit_bias={EOS: bias, PAD: -100.0})
        for bias in (9.0, -100.0, 6.0, 7.0)
    ]
    expected = alone(PROMPTS, params, eos=EOS, steps=30)
    assert len({len(tokens) for tokens in expected}) > 2
    pipe, poison = LogitsPipeline(params, eos_token_id=EOS, pad_token_id=pad), Poison({PAD, EOS})
    new = generate(
        pipe, padded(PROMPTS, pad), eos_token_id=EOS, pad_token_id=pad, max_new_tokens=30,
        logits_processor=[poison, pipe],
    )  # fmt: skip
    assert [until(tokens, EOS) for tokens in new] == expected
    assert poison.hits > 0


def test_a_bad_row_stops_generate_and_the_pipeline_serves_the_next_one() -> None:
    params = [SamplingParams(sampling_seed=1), SamplingParams(sampling_seed=2)]
    prompts = PROMPTS[:2]
    pipe, calls = LogitsPipeline(params, pad_token_id=PAD), 0

    def spoil(input_ids: Tensor, scores: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return scores if calls != 5 else scores.index_fill(0, torch.tensor([1]), float("nan"))

    with pytest.raises(lk.BadLogitsError, match="request 1") as caught:
        generate(pipe, prompts, logits_processor=[spoil, pipe])
    assert caught.value.slots == (1,)
    assert generate(pipe, prompts) == alone(prompts, params)


def test_an_error_of_somebody_else_in_the_middle_leaves_no_trace() -> None:
    pipe = LogitsPipeline(MIXED, pad_token_id=PAD)

    def fail(input_ids: Tensor, scores: Tensor) -> Tensor:
        if input_ids.shape[1] > 13:
            raise KeyboardInterrupt
        return scores

    for processors in ([fail, pipe], [pipe, fail]):
        with pytest.raises(KeyboardInterrupt):
            generate(pipe, PROMPTS, logits_processor=processors)
        assert generate(pipe, PROMPTS) == alone(PROMPTS, MIXED)


# -- stops

TEXTS = tiny_tokenizer()


def text_of(tokens: list[int]) -> str:
    text: str = TEXTS.decode(tokens, skip_special_tokens=True)
    return text


# Fields from the plain tokens and their text (two characters each), and how many tokens they leave.
STOPS: list[tuple[Callable[[list[int], str], dict[str, Any]], int]] = [
    (lambda plain, text: {"stop": [text[5:9]]}, 5),  # from inside token 2 to inside token 4
    (lambda plain, text: {"stop": ["zz", text[4:6]]}, 3),
    (lambda plain, text: {"stop_token_ids": [96, plain[6]]}, 7),
    (lambda plain, text: {"stop_regex": [text[2:4] + ".{3}"]}, 4),
    (lambda plain, text: {"max_new_tokens": 4}, 4),
    (lambda plain, text: {"stop": [text[2:4]], "min_new_tokens": 6}, STEPS),
]


@pytest.mark.parametrize(("make_fields", "left"), STOPS)
def test_stops_are_exact_with_criteria_and_one_eos_late_without(
    make_fields: Callable[[list[int], str], dict[str, Any]], left: int
) -> None:
    plain = alone([prompt(5)], [without_eos()])[0]
    assert len(set(plain)) == len(plain)  # so that every stop is found where it was taken from
    fields = make_fields(plain, text_of(plain))
    params = [without_eos(**fields), without_eos()]
    prompts = [prompt(5), prompt(7, 1)]
    other = alone(prompts[1:], params[1:])[0]
    pipe = LogitsPipeline(params, tokenizer=TEXTS)
    late = generate(pipe, prompts, eos_token_id=EOS)
    assert until(late[0], EOS) == plain[:left] + [EOS] * (left < STEPS)
    assert late[1] == other
    exact = generate(pipe, prompts, eos_token_id=EOS, stopping_criteria=pipe.stopping_criteria())
    assert exact[0] == plain[:left] + [PAD] * (STEPS - left)
    assert exact[1] == other
    assert generate(pipe, prompts, eos_token_id=EOS) == late  # without them once more


@pytest.mark.parametrize("eos", [EOS, None])
def test_generate_returns_when_all_rows_are_over(eos: int | None) -> None:
    params = [without_eos(max_new_tokens=3), without_eos(max_new_tokens=5)]
    pipe = LogitsPipeline(params, pad_token_id=PAD)  # needs no eos with criteria
    stopping = pipe.stopping_criteria()
    new = generate(pipe, PROMPTS[:2], stopping_criteria=stopping, eos_token_id=eos)
    plain = alone(PROMPTS[:2], [without_eos()] * 2)
    assert new[1] == plain[1][:5]
    assert new[0][:3] == plain[0][:3]
    assert (new[0][3:] == [PAD, PAD]) == (eos is not None)  # transformers pads if it knows an eos
