"""`SamplingParams` from transformers' `GenerationConfig`: every key has one place."""

from __future__ import annotations

import math
from typing import Any

import pytest
from transformers import GenerationConfig, GPT2Config

from logitkit.params import SamplingParams, generation_config

INF, NAN = math.inf, math.nan


def from_config(**fields: Any) -> SamplingParams:
    return SamplingParams.from_generation_config(GenerationConfig(**fields))


def test_every_key_of_a_generation_config_has_one_place() -> None:
    places = [
        generation_config.READ,
        generation_config.LEFT_TO_THE_DOOR,
        generation_config.INERT,
        set(generation_config.REFUSED),
    ]
    for key in GenerationConfig(sequence_bias={(1,): 1.0}).to_dict():
        assert key.startswith("_") or sum(key in place for place in places) == 1, key


def test_a_config_that_does_not_sample_is_greedy_without_filters() -> None:
    assert from_config() == SamplingParams(temperature=0)
    greedy = from_config(temperature=0.5, top_k=3, top_p=0.5, do_sample=False)
    assert greedy == SamplingParams(temperature=0)


def test_a_config_that_samples_takes_transformers_defaults() -> None:
    assert from_config(do_sample=True) == SamplingParams(top_k=50)
    assert from_config(do_sample=True, top_k=0) == SamplingParams()


def test_a_config_gives_every_field_that_it_has() -> None:
    warpers = {"temperature": 0.5, "top_k": 7, "top_p": 0.9, "min_p": 0.1, "top_h": 0.3}
    cutoffs = {"typical_p": 0.8, "epsilon_cutoff": 0.01, "eta_cutoff": 0.02}
    edits = {"repetition_penalty": 1.2, "no_repeat_ngram_size": 3, "min_new_tokens": 1}
    found = from_config(
        do_sample=True,
        max_new_tokens=9,
        stop_strings=["a", "b"],
        num_return_sequences=2,
        bad_words_ids=[[1, 2], [0], [3]],
        eos_token_id=[0],
        sequence_bias={(5,): 1.5, (6,): 1.0},
        suppress_tokens=[6, 7],
        renormalize_logits=True,
        length_penalty=2.0,
        max_length=20,
        pad_token_id=3,
        use_cache=False,
        output_scores=True,
        num_assistant_tokens=3,
        **warpers,
        **cutoffs,
        **edits,
    )
    assert found == SamplingParams(
        max_new_tokens=9,
        stop=("a", "b"),
        n=2,
        bad_words_ids=((1, 2), (3,)),  # transformers drops a ban on the end-of-text token
        logit_bias={5: 1.5, 6: -INF, 7: -INF},
        **warpers,
        **cutoffs,
        **edits,
    )


def test_what_a_config_asks_in_vain_is_named_in_one_error() -> None:
    wanted = {
        "num_beams": 2,
        "guidance_scale": 1.5,
        "encoder_repetition_penalty": 1.1,
        "forced_eos_token_id": 2,
        "begin_suppress_tokens": [1],
        "exponential_decay_length_penalty": (5, 1.1),
        "remove_invalid_values": True,
        "token_healing": True,
        "sequence_bias": {(1, 2): 1.0},
        "penalty_alpha": 0.6,
        "presence_penalty": 0.5,  # transformers ignores it in silence
    }
    with pytest.raises(ValueError) as error:
        SamplingParams.from_generation_config(wanted)
    assert all(f"`{name}`" in str(error.value) for name in wanted)


def test_a_config_with_neutral_values_everywhere_is_accepted() -> None:
    defaults = GenerationConfig._get_default_generation_params()
    assert from_config(**defaults, guidance_scale=1.0) == SamplingParams(temperature=0)
    custom = GenerationConfig()
    custom.chat_format = "x"
    assert SamplingParams.from_generation_config(custom).temperature == 0


@pytest.mark.parametrize(
    "lost",
    [
        {"max_length": 30},
        {"min_length": 3},
        {"max_time": 1.0},
        {"max_time": 1.0, "max_length": 30, "min_length": 3, "num_beams": 2},
        {"prompt_lookup_num_tokens": 3},
    ],
)
def test_what_a_config_says_and_params_cannot_is_named_in_one_error(lost: dict[str, Any]) -> None:
    for config in (GenerationConfig(**lost), lost):
        with pytest.raises(ValueError) as error:
            SamplingParams.from_generation_config(config)
        assert all(f"`{name}` = {value}" in str(error.value) for name, value in lost.items())
        if not {"num_beams", "prompt_lookup_num_tokens"} & set(lost):
            assert "lk.generate(generation_config=...)" in str(error.value)


def test_lengths_that_give_way_to_others_of_the_same_config_are_not_missed() -> None:
    found = from_config(max_length=30, min_length=3, max_new_tokens=9, min_new_tokens=1)
    assert (found.min_new_tokens, found.max_new_tokens) == (1, 9)


def test_a_mapping_as_a_config_may_not_hold_unknown_keys() -> None:
    plain = {**GenerationConfig(do_sample=True, top_p=0.5).to_dict(), "newer": None}
    assert SamplingParams.from_generation_config(plain) == SamplingParams(top_k=50, top_p=0.5)
    with pytest.raises(ValueError) as error:
        SamplingParams.from_generation_config({**plain, "temprature": 0.5, "zzzz": 1})
    assert "`temprature` is no field" in str(error.value)
    assert "did you mean `temperature`?" in str(error.value)
    assert "`zzzz` is no field of a GenerationConfig; take it out" in str(error.value)


@pytest.mark.parametrize("other", [3, None, "x", SamplingParams(top_k=2), GPT2Config()])
def test_something_else_than_a_config_is_refused(other: Any) -> None:
    with pytest.raises(ValueError, match=r"`generation_config` is .*GenerationConfig.*mapping"):
        SamplingParams.from_generation_config(other)
