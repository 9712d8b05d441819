"""Strategies as transformers' `custom_generate=`: whose processors and criteria they keep."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tiny import EOS, IDS, PAD, PADDED, logits_edited, tiny_model, tiny_tokenizer, writing
from torch import Tensor
from transformers import (
    EosTokenCriteria,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    MaxLengthCriteria,
    RepetitionPenaltyLogitsProcessor,
    StoppingCriteriaList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
)

from logitkit import SamplingParams
from logitkit.causal_lm import DecoderOnlyOutput
from logitkit.generation.call import Generation
from logitkit.generation.custom_generate import callers_processors
from logitkit.generation.door import generate
from logitkit.generation.strategy import GenerationStrategy, Sampling

MODEL = tiny_model()
TOKENIZER = tiny_tokenizer()
SAMPLED = [
    SamplingParams(temperature=0.8, top_p=0.9, sampling_seed=3, repetition_penalty=1.2),
    SamplingParams(temperature=0.0),
    SamplingParams(top_k=9, min_p=0.02, sampling_seed=4, max_new_tokens=4),
]


class Bans(LogitsProcessor):
    """Bans one token, and counts its calls."""

    def __init__(self, token: int) -> None:
        self.token = token
        self.calls = 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.calls += 1
        return scores.index_fill(1, torch.tensor([self.token]), -torch.inf)


def test_the_strategy_inside_model_generate_equals_our_own_door() -> None:
    ours = generate(MODEL, **PADDED, params=SAMPLED, max_new_tokens=9)
    theirs = MODEL.generate(**PADDED, max_new_tokens=9, custom_generate=Sampling(SAMPLED))
    assert theirs.equal(ours)


def test_unpadded_prompts_and_several_samples_work_inside_model_generate() -> None:
    params = SamplingParams(sampling_seed=5, n=2)
    ours = generate(MODEL, IDS, params=params, max_new_tokens=6)
    theirs = MODEL.generate(
        IDS, do_sample=True, num_return_sequences=2, max_new_tokens=6,
        custom_generate=Sampling(params), attention_mask=torch.ones_like(IDS),
    )  # fmt: skip
    assert theirs.equal(ours)


def test_without_params_the_generation_config_is_read() -> None:
    call = {**PADDED, "max_new_tokens": 9, "repetition_penalty": 1.4, "eos_token_id": 22}
    greedy = MODEL.generate(**call)
    assert MODEL.generate(**call, custom_generate=Sampling()).equal(greedy)
    torch.manual_seed(2)
    ours = generate(MODEL, **call, do_sample=True, temperature=0.6)
    torch.manual_seed(2)
    theirs = MODEL.generate(**call, do_sample=True, temperature=0.6, custom_generate=Sampling())
    assert theirs.equal(ours)


def test_what_the_config_alone_asks_of_sampling_gives_way_to_params() -> None:
    greedy = SamplingParams(temperature=0.0)
    plain = MODEL.generate(**PADDED, max_new_tokens=9)
    model = copy.copy(MODEL)
    model.generation_config = GenerationConfig(
        do_sample=True, temperature=0.5, top_k=3, top_p=0.5, repetition_penalty=5.0,
        no_repeat_ngram_size=1, suppress_tokens=[22], bad_words_ids=[[45]], min_new_tokens=2,
        sequence_bias=[[[13], 9.0]], eos_token_id=EOS, pad_token_id=PAD,
    )  # fmt: skip
    call = {**PADDED, "max_new_tokens": 9, "custom_generate": Sampling(greedy)}
    assert model.generate(**call).equal(plain)
    assert model.generate(**call, do_sample=False, top_k=3).equal(plain)  # as the file has it
    assert model.generate(**call, repetition_penalty=None).equal(plain)
    with pytest.raises(ValueError, match=r"`repetition_penalty` = 1\.0 beside"):
        model.generate(**call, repetition_penalty=1.0)


@pytest.mark.parametrize(
    "keywords",
    [
        {"temperature": 0.1},
        {"temperature": 0.1, "do_sample": True},
        {"top_k": 5},
        {"top_p": 0.5},
        {"min_p": 0.1},
        {"top_h": 0.1},
        {"typical_p": 0.5},
        {"epsilon_cutoff": 0.1},
        {"eta_cutoff": 0.1},
        {"repetition_penalty": 1.3},
        {"no_repeat_ngram_size": 2},
        {"min_new_tokens": 2},
        {"min_length": 7},
        {"bad_words_ids": [[5]]},
        {"suppress_tokens": [5]},
        {"sequence_bias": [[[5], 1.0]]},
    ],
)
def test_sampling_that_the_call_asks_for_beside_params_is_refused_by_name(
    keywords: dict[str, Any],
) -> None:
    call = {**PADDED, "max_new_tokens": 2, "custom_generate": Sampling(SamplingParams())}
    name = next(iter(keywords))
    with pytest.raises(ValueError, match=f"`{name}` = .* beside the strategy's `params`"):
        MODEL.generate(**call, **keywords)
    with pytest.raises(ValueError, match=f"`{name}` = .* beside the strategy's `params`"):
        MODEL.generate(**call, generation_config=GenerationConfig(**keywords))


def test_transformers_defaults_beside_params_ask_for_nothing() -> None:
    strategy = Sampling(SamplingParams(temperature=0.0))
    call = {**PADDED, "max_new_tokens": 4, "custom_generate": strategy}
    neutral = {"temperature": 1.0, "top_k": 50, "top_p": 1.0, "do_sample": True, "min_p": 0.0}
    assert MODEL.generate(**call, **neutral).equal(MODEL.generate(**call))


@pytest.mark.parametrize(("n", "rows"), [(2, None), (1, 3), (2, 4)])
def test_rows_per_prompt_must_be_n(n: int, rows: int | None) -> None:
    strategy = Sampling(SamplingParams(n=n))
    call: dict[str, Any] = {} if rows is None else {"num_return_sequences": rows, "do_sample": True}
    with pytest.raises(ValueError, match=f"`n`={n} of `params`.*num_return_sequences={n}"):
        MODEL.generate(IDS[:2], max_new_tokens=2, custom_generate=strategy, **call)


def test_the_class_in_the_place_of_an_object_is_told() -> None:
    with pytest.raises(ValueError, match=r"`custom_generate` is the class Sampling: .*Sampling\("):
        MODEL.generate(**PADDED, max_new_tokens=2, custom_generate=Sampling)


@pytest.mark.parametrize("wrong", [MODEL, 3, "greedy", {"top_k": 1}, [None]])
def test_a_strategy_takes_params_only(wrong: Any) -> None:
    with pytest.raises(ValueError, match="`params` holds"):
        Sampling(wrong)
    with pytest.raises(ValueError, match="`params` is empty"):
        Sampling([])


def test_a_tokenizer_that_cannot_decode_is_refused() -> None:
    with pytest.raises(ValueError, match="`tokenizer` is a str without decode"):
        Sampling(SamplingParams(), "gpt2")


def test_the_callers_processors_are_kept_and_run_once_a_step() -> None:
    bans = Bans(22)
    call = {**PADDED, "max_new_tokens": 9, "eos_token_id": None}
    expected = MODEL.generate(**call, logits_processor=LogitsProcessorList([Bans(22)]))
    ours = MODEL.generate(
        **call, logits_processor=LogitsProcessorList([bans]), do_sample=True,
        custom_generate=Sampling(SamplingParams(temperature=0.0)),
    )  # fmt: skip
    assert ours.equal(expected)
    assert bans.calls == 9


def test_a_processor_of_the_callers_that_replaced_the_configs_is_kept() -> None:
    config = GenerationConfig(repetition_penalty=1.2, do_sample=True, top_k=50, temperature=0.5)
    own = RepetitionPenaltyLogitsProcessor(1.9)
    first, last = TemperatureLogitsWarper(0.5), TemperatureLogitsWarper(0.5)
    found = callers_processors([own, first, last, TopKLogitsWarper(50)], config)
    assert [id(p) for p in found] == [id(own), id(first)]
    assert callers_processors([RepetitionPenaltyLogitsProcessor(1.2)], config) == []


def test_criteria_of_the_callers_are_kept_and_those_of_the_config_become_limits() -> None:
    def stops_row_one(input_ids: Tensor, scores: Any, **_: Any) -> Tensor:
        return torch.tensor([False, input_ids.shape[1] >= 7, False])

    out = MODEL.generate(
        **PADDED, max_new_tokens=6, stopping_criteria=StoppingCriteriaList([stops_row_one]),
        return_dict_in_generate=True, custom_generate=Sampling(SAMPLED),
    )  # fmt: skip
    assert isinstance(out, DecoderOnlyOutput)
    assert out.finish_reasons == ["length", "criteria", "length"]
    assert out.lengths.tolist() == [6, 2, 4]


def test_a_requests_own_length_and_ignored_eos_win_over_the_config() -> None:
    params = SamplingParams(temperature=0.0, max_new_tokens=30, ignore_eos=True)
    with logits_edited(MODEL, writing([[EOS]] * 3)):
        out = MODEL.generate(IDS, max_new_tokens=5, custom_generate=Sampling(params))
    assert out.shape == (3, 35)
    own = MaxLengthCriteria(7), EosTokenCriteria(EOS + 1)
    short = MODEL.generate(
        IDS, max_new_tokens=5, stopping_criteria=StoppingCriteriaList(own),
        custom_generate=Sampling(params),
    )  # fmt: skip
    assert short.shape == (3, 7)


def test_outputs_stops_and_streamer_come_with_the_strategys_tokenizer() -> None:
    class Streamer:
        def __init__(self) -> None:
            self.puts: list[Tensor] = []
            self.ended = False

        def put(self, value: Tensor) -> None:
            self.puts.append(value)

        def end(self) -> None:
            self.ended = True

    streamer = Streamer()
    params = SamplingParams(temperature=0.0, stop="bc", logprobs=1)
    strategy = Sampling(params, TOKENIZER, streamer=streamer)
    with logits_edited(MODEL, writing([[3, 4, 5, 6]])):
        out = MODEL.generate(
            IDS[1:2], max_new_tokens=6, custom_generate=strategy, return_dict_in_generate=True,
            output_scores=True, output_logits=True,
        )  # fmt: skip
    assert out.texts == ["a"]
    assert out.stop_matched == ["bc"]
    assert len(out.scores) == len(out.logits) == 3
    assert out.logprobs.shape == (1, 3)
    assert [put.tolist() for put in streamer.puts] == [IDS[1:2].tolist(), [3], [4], [5]]
    assert streamer.ended


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        (
            {"guidance_scale": 2.0},
            "`guidance_scale` = 2.0 as a keyword or in the generation config",
        ),
        ({"forced_eos_token_id": 2}, "`forced_eos_token_id`"),
        ({"output_attentions": True}, "`output_attentions`"),
        ({"num_return_sequences": 2, "do_sample": True}, "`n`"),
    ],
)
def test_what_cannot_be_honoured_is_named_even_beside_params(
    keywords: dict[str, Any], message: str
) -> None:
    strategy = Sampling([SamplingParams()] * 3)
    with pytest.raises(ValueError, match=message):
        MODEL.generate(IDS, max_new_tokens=2, custom_generate=strategy, **keywords)


def test_a_cache_with_tokens_in_it_is_refused() -> None:
    with torch.no_grad():
        output = MODEL(IDS[:, :3], use_cache=True)
    with pytest.raises(ValueError, match=r"holds 3 tokens already"):
        Sampling(SamplingParams())(
            MODEL, IDS, generation_config=MODEL.generation_config,
            past_key_values=output.past_key_values,
        )  # fmt: skip


def test_a_strategy_of_ones_own_is_a_loop_over_the_same_parts() -> None:
    class Echo(GenerationStrategy):
        """Writes token 7 twice into every row, whatever the model says."""

        def run(self, generation: Generation) -> None:
            generation.lm.prefill()
            while not generation.progress.done:
                tokens = torch.full((len(generation.batch),), 7)
                taken, _ = generation.progress.advance(tokens[:, None], [1] * len(tokens))
                generation.batch.commit(tokens, taken)

    out = MODEL.generate(
        **PADDED, max_new_tokens=2, custom_generate=Echo(SamplingParams()), pad_token_id=PAD
    )
    assert out[:, 5:].tolist() == [[7, 7]] * 3
