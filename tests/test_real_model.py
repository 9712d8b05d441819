"""The demo model (SmolLM2-135M-Instruct) through both doors; fetched once, then from the cache."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

import logitkit as lk
from logitkit import LogitsPipeline, SamplingParams

Demo = tuple[PreTrainedModel, PreTrainedTokenizerBase]

STEPS = 12
TEXTS = [
    "What is the capital of France?",
    "Write one sentence about the sea and the people who live on its shore.",
    "1, 2, 3, 4,",
    "Once upon a time",
]
MIXED = [
    SamplingParams(temperature=0),
    SamplingParams(temperature=0.8, top_p=0.95, min_p=0.05, sampling_seed=7),
    SamplingParams(temperature=0.7, top_k=40, repetition_penalty=1.1, sampling_seed=8),
    SamplingParams(
        temperature=1.0, presence_penalty=0.3, frequency_penalty=0.2, dry_multiplier=0.8,
        no_repeat_ngram_size=3, bad_words=["sea", "king"], sampling_seed=9,
    ),
]  # fmt: skip


def inputs_of(demo: Demo, texts: list[str]) -> Any:
    """The texts as chats, left-padded."""
    tokenizer: Any = demo[1]
    chats = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True
        )
        for text in texts
    ]
    return tokenizer(chats, padding=True, return_tensors="pt", add_special_tokens=False)


def run(demo: Demo, texts: list[str], pipe: Any, **options: Any) -> list[list[int]]:
    """The new tokens of every row, without the pads behind an eos."""
    model: Any = demo[0]
    inputs = inputs_of(demo, texts)
    options = {"max_new_tokens": STEPS, "do_sample": True} | options
    processors = [] if pipe is None else [pipe]
    out = model.generate(**inputs, logits_processor=processors, **options)
    return [cut(demo, row) for row in out[:, inputs["input_ids"].shape[1] :].tolist()]


def cut(demo: Demo, tokens: list[int]) -> list[int]:
    eos = demo[1].eos_token_id
    return tokens[: tokens.index(eos) + 1] if eos in tokens else tokens


@pytest.fixture(scope="module")
def batched(smollm2: Demo) -> list[list[int]]:
    return run(smollm2, TEXTS, LogitsPipeline(MIXED, tokenizer=smollm2[1]))


def test_a_request_alone_gives_what_it_gives_in_a_batch(
    smollm2: Demo, batched: list[list[int]]
) -> None:
    for text, params, expected in zip(TEXTS, MIXED, batched, strict=True):
        assert run(smollm2, [text], LogitsPipeline(params, tokenizer=smollm2[1])) == [expected]


def test_seeds_repeat_and_the_rest_of_the_batch_does_not_matter(
    smollm2: Demo, batched: list[list[int]]
) -> None:
    pipe = LogitsPipeline(MIXED[::-1], tokenizer=smollm2[1])
    for _ in range(2):
        assert run(smollm2, TEXTS[::-1], pipe, do_sample=False)[::-1] == batched
    fresh = LogitsPipeline(SamplingParams(temperature=1.5), tokenizer=smollm2[1])
    runs = [run(smollm2, TEXTS[3:], fresh) for _ in range(2)]
    assert runs[0] != runs[1]


def test_greedy_params_equal_the_models_own_greedy(smollm2: Demo) -> None:
    pipe = LogitsPipeline(SamplingParams(temperature=0), tokenizer=smollm2[1])
    plain = run(smollm2, TEXTS, None, do_sample=False)
    assert run(smollm2, TEXTS, pipe) == plain
    assert run(smollm2, TEXTS, pipe, do_sample=False) == plain


def test_banned_words_do_not_appear(smollm2: Demo) -> None:
    params = SamplingParams(temperature=0, bad_words=["Paris"])
    text = TEXTS[0]
    plain = run(smollm2, [text], None, do_sample=False)[0]
    banned = run(smollm2, [text], LogitsPipeline(params, tokenizer=smollm2[1]))[0]
    assert "Paris" in smollm2[1].decode(plain)
    assert "Paris" not in smollm2[1].decode(banned)


def test_stop_strings_end_a_request_at_the_token(smollm2: Demo) -> None:
    tokenizer = smollm2[1]
    plain = run(smollm2, TEXTS[:2], None, do_sample=False)
    text: str = tokenizer.decode(plain[0], skip_special_tokens=True)
    stop = text[text.index("Par") + 1 :][:5]  # begins and ends inside tokens
    expected = next(plain[0][:n] for n in range(1, STEPS) if stop in tokenizer.decode(plain[0][:n]))
    greedy = {"temperature": 0.0}
    params = [SamplingParams(**greedy, stop=[stop]), SamplingParams(**greedy)]
    pipe = LogitsPipeline(params, tokenizer=tokenizer)
    exact = run(smollm2, TEXTS[:2], pipe, stopping_criteria=pipe.stopping_criteria())
    assert exact[0][: len(expected)] == expected
    assert set(exact[0][len(expected) :]) <= {tokenizer.pad_token_id}
    assert exact[1] == plain[1]
    late = run(smollm2, TEXTS[:2], pipe)
    assert late == [[*expected, tokenizer.eos_token_id], plain[1]]


def test_prompt_lookup_changes_nothing(smollm2: Demo, batched: list[list[int]]) -> None:
    pipe = LogitsPipeline(MIXED[2], tokenizer=smollm2[1])
    assert run(smollm2, [TEXTS[2]], pipe, prompt_lookup_num_tokens=3) == [batched[2]]


# -- both doors


def our_loop(demo: Demo, texts: list[str], params: Any, **options: Any) -> list[list[int]]:
    """The new tokens of `lk.generate`."""
    inputs = inputs_of(demo, texts)
    out = lk.generate(
        demo[0], **inputs, params=params, tokenizer=demo[1],
        **{"max_new_tokens": STEPS} | options,
    )  # fmt: skip
    return [cut(demo, row) for row in out[:, inputs["input_ids"].shape[1] :].tolist()]


def test_both_doors_give_the_same_tokens(smollm2: Demo, batched: list[list[int]]) -> None:
    assert our_loop(smollm2, TEXTS, MIXED) == batched


def test_both_doors_draw_the_same_fresh_seeds(smollm2: Demo) -> None:
    params = SamplingParams(temperature=1.2, n=2)
    torch.manual_seed(5)
    ours = our_loop(smollm2, TEXTS[2:], params)
    torch.manual_seed(5)
    pipe = LogitsPipeline(params, tokenizer=smollm2[1])
    assert run(smollm2, TEXTS[2:], pipe, num_return_sequences=2) == ours
    assert len({tuple(tokens) for tokens in ours}) == 4


def test_both_doors_stop_at_the_same_token(smollm2: Demo) -> None:
    params = [SamplingParams(temperature=0, stop=["aris"]), MIXED[1]]
    pipe = LogitsPipeline(params, tokenizer=smollm2[1])
    exact = run(smollm2, TEXTS[:2], pipe, stopping_criteria=pipe.stopping_criteria())
    assert our_loop(smollm2, TEXTS[:2], params) == exact
