"""`lk.generate` takes transformers' spelling, and knows whose value counts."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tiny import (
    EOS,
    PADDED,
    tiny_model,
)
from transformers import (
    GenerationConfig,
)

from logitkit import SamplingParams
from logitkit.generation import keywords as words
from logitkit.generation.door import generate
from logitkit.params.generation_config import LEFT_TO_THE_DOOR

MODEL = tiny_model()


def test_keywords_say_what_params_say() -> None:
    torch.manual_seed(1)
    by_words = generate(
        MODEL, **PADDED, max_new_tokens=12, do_sample=True, temperature=0.7, top_p=0.9,
        repetition_penalty=1.1, num_return_sequences=2,
    )  # fmt: skip
    params = SamplingParams(temperature=0.7, top_p=0.9, top_k=50, repetition_penalty=1.1, n=2)
    torch.manual_seed(1)
    assert by_words.equal(generate(MODEL, **PADDED, params=params, max_new_tokens=12))


def keyword_params(model: Any = MODEL, passed: Any = None, **keywords: Any) -> SamplingParams:
    read, _ = words.read_keywords(keywords, passed, model.generation_config, ())
    return read.sampling_params(5)


@pytest.mark.parametrize(
    "field", [{"temperature": 0.5}, {"top_p": 0.5}, {"top_k": 3}, {"min_p": 0.1}]
)
def test_a_sampling_keyword_alone_means_sampling(field: dict[str, Any]) -> None:
    assert keyword_params() == SamplingParams(temperature=0.0)
    assert keyword_params(**field) == SamplingParams(**{"top_k": 50, **field})
    assert keyword_params(do_sample=False, **field) == SamplingParams(temperature=0.0)


def test_keywords_beat_a_passed_config_and_that_beats_the_model_file() -> None:
    model = copy.copy(MODEL)
    model.generation_config = GenerationConfig(
        do_sample=True, temperature=0.3, top_p=0.4, typical_p=0.5, eos_token_id=EOS
    )
    passed = GenerationConfig(top_p=0.6, typical_p=0.7)
    found = keyword_params(model, passed, typical_p=0.8)
    assert found == SamplingParams(temperature=0.3, top_p=0.6, typical_p=0.8, top_k=50)


def test_an_explicit_none_takes_the_model_files_value_away() -> None:
    model = copy.copy(MODEL)
    model.generation_config = GenerationConfig(do_sample=True, top_k=7, temperature=0.5)
    assert keyword_params(model, top_k=None) == SamplingParams(temperature=0.5)
    assert keyword_params(model) == SamplingParams(temperature=0.5, top_k=7)


def test_the_model_files_sampling_is_not_for_params() -> None:
    model = copy.copy(MODEL)
    model.generation_config = GenerationConfig(repetition_penalty=5.0, eos_token_id=EOS)
    call = {**PADDED, "max_new_tokens": 10}
    plain = generate(MODEL, **call, params=SamplingParams(temperature=0.0))
    assert plain.equal(generate(model, **call, params=SamplingParams(temperature=0.0)))
    assert not plain.equal(generate(model, **call))


def test_the_models_configs_stay_as_they_are() -> None:
    model, passed = tiny_model(), GenerationConfig(top_p=0.5, max_new_tokens=3)
    before = [model.generation_config.to_dict(), model.config.to_dict(), passed.to_dict()]
    generate(model, **PADDED, generation_config=passed, eos_token_id=9, pad_token_id=8)
    with pytest.raises(ValueError, match="num_beams"):
        generate(model, **PADDED, generation_config=passed, num_beams=4)
    assert before == [model.generation_config.to_dict(), model.config.to_dict(), passed.to_dict()]
    assert not model.training


def test_every_field_left_to_the_door_is_honoured_idle_or_refused() -> None:
    kinds = [
        words.HONOURED, words.IDLE, set(words.MACHINERY), words.SPECULATION, set(words.SHOWN),
    ]  # fmt: skip
    assert set().union(*kinds) == LEFT_TO_THE_DOOR
    assert sum(map(len, kinds)) == len(LEFT_TO_THE_DOOR)
