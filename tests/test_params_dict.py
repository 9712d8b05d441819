"""`SamplingParams` to and from dictionaries, in the spellings of other systems."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logitkit.params import SamplingParams
from logitkit.params.fields import STRUCTURED_FIELDS
from logitkit.params.names import MEANT, SPELLINGS, TRANSPORT, UNSUPPORTED

INF, NAN = math.inf, math.nan
NAMES = [field.name for field in dataclasses.fields(SamplingParams)]


def numbers(low: float, high: float, **ends: bool) -> st.SearchStrategy[float]:
    return st.floats(low, high, allow_nan=False, allow_infinity=False, **ends)  # type: ignore[arg-type]


TOKENS = st.integers(0, 2**31 - 1)
TEXTS = st.lists(st.text(min_size=1, max_size=3), max_size=3)
SEQUENCES = st.lists(st.lists(TOKENS, min_size=1, max_size=3), max_size=3)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | numbers(-1e9, 1e9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=4,
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "temperature": st.just(0) | numbers(1e-30, 100),
    "top_k": st.integers(-1, 2**31 - 1),
    "top_p": numbers(0, 1, exclude_min=True),
    "min_p": numbers(0, 1),
    "repetition_penalty": numbers(0.01, 10),
    "presence_penalty": numbers(-9, 9),
    "frequency_penalty": numbers(-9, 9),
    "logit_bias": st.dictionaries(TOKENS, st.just(-INF) | numbers(-100, 100), max_size=3),
    "allowed_token_ids": st.none() | st.just([2**31 - 1]),
    "bad_words": TEXTS,
    "bad_words_ids": st.lists(st.lists(st.integers(0, 99), min_size=2, max_size=3), max_size=3),
    "min_new_tokens": st.integers(0, 5),
    "max_new_tokens": st.none() | st.integers(5, 2**31 - 1),
    "stop": TEXTS,
    "stop_token_ids": st.lists(TOKENS, max_size=3),
    "stop_regex": TEXTS,
    "ignore_eos": st.booleans(),
    "n": st.integers(1, 9),
    "sampling_seed": st.none() | st.integers(0, 2**64 - 1),
    "logprobs": st.none() | st.integers(0, 20),
    "logprob_mode": st.sampled_from(["raw", "processed", "filtered"]),
    "typical_p": numbers(0, 1, exclude_min=True),
    "epsilon_cutoff": numbers(0, 1, exclude_max=True),
    "eta_cutoff": numbers(0, 1, exclude_max=True),
    "top_n_sigma": st.just(-1) | numbers(0, 9),
    "top_h": numbers(0, 1),
    "no_repeat_ngram_size": st.integers(0, 9),
    "dry_multiplier": numbers(0, 9),
    "dry_base": numbers(1, 9),
    "dry_allowed_length": st.integers(1, 9),
    "dry_range": st.integers(-1, 999),
    "dry_sequence_breakers": st.tuples(TEXTS, SEQUENCES).map(lambda pair: [*pair[0], *pair[1]]),
    "xtc_probability": numbers(0, 1),
    "xtc_threshold": numbers(0, 1),
    "dynatemp_range": numbers(0, 9),
    "dynatemp_exponent": numbers(0, 9, exclude_min=True),
    "extra": st.dictionaries(st.text(max_size=3), PLAIN, max_size=3),
}


@settings(deadline=None, max_examples=150)
@given(st.fixed_dictionaries({}, optional=VALUES))
def test_every_value_round_trips_through_strict_json(values: dict[str, Any]) -> None:
    try:
        params = SamplingParams(**values)
    except ValueError as error:  # the one way to contradict oneself here: the last id banned
        assert "nothing is left" in str(error)
        return
    text = json.dumps(params.to_dict(), allow_nan=False)
    assert SamplingParams.from_dict(params.to_dict()) == params
    assert SamplingParams.from_dict(json.loads(text)) == params
    assert pickle.loads(pickle.dumps(params)) == params


def test_the_round_trip_covers_every_field_that_can_be_set() -> None:
    assert {*VALUES, *STRUCTURED_FIELDS} == set(NAMES)


def test_to_dict_holds_only_what_was_set() -> None:
    assert SamplingParams().to_dict() == {}
    params = SamplingParams(stop="a", logit_bias={2: -INF, 1: 0.5}, top_k=-1)
    assert params.to_dict() == {"stop": ["a"], "logit_bias": {"1": 0.5, "2": "-inf"}}


@pytest.mark.parametrize("value", [INF, object(), {1: 2}, {3}, [NAN]])
def test_to_dict_names_what_json_does_not_have(value: Any) -> None:
    with pytest.raises(ValueError, match=r"`extra\['a'\]"):
        SamplingParams(extra={"a": value}).to_dict()


@pytest.mark.parametrize(
    ("mapping", "fields"),
    [
        ({"seed": 3}, {"sampling_seed": 3}),
        ({"seed": -1}, {}),
        ({"min_tokens": 1, "max_tokens": 2}, {"min_new_tokens": 1, "max_new_tokens": 2}),
        ({"max_completion_tokens": 2, "max_tokens": 2}, {"max_new_tokens": 2}),
        ({"n_predict": -1, "n_probs": 0}, {}),
        ({"typ_p": 0.5, "repeat_penalty": 1.5}, {"typical_p": 0.5, "repetition_penalty": 1.5}),
        ({"dry_penalty_last_n": 64}, {"dry_range": 64}),
        ({"stop": None, "top_k": -1, "temperature": None}, {}),
        ({"logprobs": True}, {"logprobs": 0}),
        ({"logprobs": True, "top_logprobs": 5}, {"logprobs": 5}),
        ({"logprobs": False, "top_logprobs": None}, {}),
        ({"logprobs": 4}, {"logprobs": 4}),
        ({"n_probs": 4}, {"logprobs": 4}),
        ({"logit_bias": {"50": -100}}, {"logit_bias": {50: -100.0}}),
        ({"logit_bias": [[5, 1.5], [6, False]]}, {"logit_bias": {5: 1.5, 6: -INF}}),
        ({"extra_args": {"a": 1}}, {"extra": {"a": 1}}),
        ({"response_format": {"type": "text"}}, {}),
        ({"response_format": {"type": "json_object"}}, {"json_schema": {"type": "object"}}),
        (
            {"response_format": {"type": "json_object", "schema": {"type": "array"}}},
            {"json_schema": {"type": "array"}},
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "n", "strict": True, "schema": {}},
                }
            },
            {"json_schema": {}},
        ),
        ({"guided_json": '{"type": "object"}'}, {"json_schema": {"type": "object"}}),
        ({"guided_json_object": True}, {"json_schema": "$$ANY$$"}),
        ({"guided_regex": "a+"}, {"regex": "a+"}),
        ({"guided_grammar": 'root ::= "a"'}, {"ebnf": 'root ::= "a"'}),
        ({"grammar": 'root ::= "a"'}, {"ebnf": 'root ::= "a"'}),
        ({"guided_choice": ["a", "b"]}, {"choice": ["a", "b"]}),
        ({"structured_outputs": {"json": {}, "regex": None}}, {"json_schema": {}}),
        ({"structured_outputs": {"json_object": True}}, {"json_schema": {"type": "object"}}),
        ({"guided_decoding": {"choice": ["a"], "json_object": False}}, {"choice": ["a"]}),
        (
            {"response_format": {"type": "structural_tag", "format": {"type": "any_text"}}},
            {"structural_tag": {"type": "structural_tag", "format": {"type": "any_text"}}},
        ),
        ({"best_of": 1, "prompt_logprobs": None, "tfs_z": 1.0, "mirostat": 0}, {}),
    ],
)
def test_other_spellings_mean_the_same(mapping: dict[str, Any], fields: dict[str, Any]) -> None:
    assert SamplingParams.from_dict(mapping) == SamplingParams(**fields)


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        (
            {"best_of": 4, "mirostat": 2, "topp": 1},
            ["`best_of` is 4", "`mirostat` is 2", "`top_p`?"],
        ),
        ({"max_tokens": 1, "max_new_tokens": 2}, ["`max_tokens` = 1", "`max_new_tokens` = 2"]),
        ({"max_token": 1}, ["unknown field `max_token`; did you mean `max_tokens`?"]),
        ({"top_logprobs": 2}, ["`top_logprobs` is 2", "`logprobs`"]),
        ({"logprobs": 3, "top_logprobs": 2}, ["`top_logprobs` = 2", "`logprobs` = 3"]),
        ({"logit_bias": [[5, 1.0], ["5", 2.0]]}, ["`logit_bias`", "once"]),
        ({"guided_regex": "a", "grammar": "root ::= x"}, ["`guided_regex` and `grammar`"]),
        (
            {"structured_outputs": {"choice": ["a"], "regex": "a"}},
            ["`structured_outputs['regex']` and `structured_outputs['choice']` are given"],
        ),
        ({"structured_outputs": {"whitespace_pattern": "x"}}, ["`whitespace_pattern`"]),
        ({"structured_outputs": "a"}, ["`structured_outputs`", "give a mapping"]),
        ({"response_format": {"type": "json_schema"}}, ["`response_format`", "no `schema`"]),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {}, "x": 1}}},
            ["`response_format` holds ['x']"],
        ),
        ({"guided_json": {"type": "object"}, "json_schema": {}}, ["`guided_json`", "disagree"]),
        ({"response_format": {"type": "xml"}}, ["`response_format`", "xml"]),
        (
            {
                "response_format": {"type": "json_schema", "json_schema": {"schema": {}}},
                "regex": "a",
            },
            ["`response_format` and `regex` are given"],
        ),
        ({"extra_body": {"top_k": 1}}, ["`extra_body`", "merge its entries"]),
        ({"temp": 1}, ["did you mean `temperature`?"]),
        ({"do_sample": True}, ["did you mean `temperature`?"]),
        ({"penalty_last_n": 64}, ["`penalty_last_n` is 64", "leave it out"]),
        ({"penalty_repeat": 1.1}, ["did you mean `repetition_penalty`?"]),
    ],
)
def test_what_cannot_be_honoured_is_named(mapping: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ValueError) as error:
        SamplingParams.from_dict(mapping)
    assert all(word in str(error.value) for word in words)


def test_what_a_request_to_a_server_holds_besides_is_told_to_be_taken_out_in_one_error() -> None:
    body = {
        "model": "m", "messages": [], "prompt": "p", "stream": True, "stream_options": {},
        "user": "u", "tools": [], "store": False, "metadata": {},
    }  # fmt: skip
    with pytest.raises(ValueError) as error:
        SamplingParams.from_dict({**body, "top_k": 5, "topp": 0.5})
    message = str(error.value)
    assert all(f"`{name}`" in message for name in body)
    assert message.count("no sampling parameters") == message.count("take them out") == 1
    assert "`extra`" not in message and "did you mean `top_p`?" in message
    with pytest.raises(ValueError, match="`messages`: no sampling parameters"):
        SamplingParams(**{"messages": []})


def test_none_asks_for_nothing_in_every_field_that_is_known() -> None:
    structured = ["response_format", "structured_outputs", "guided_decoding", "guided_json_object"]
    names = [*structured, *SPELLINGS, *UNSUPPORTED, *TRANSPORT, *NAMES]
    assert SamplingParams.from_dict(dict.fromkeys(names)) == SamplingParams()


def test_from_dict_takes_only_a_mapping() -> None:
    with pytest.raises(ValueError, match="mapping"):
        SamplingParams.from_dict([("top_k", 1)])  # type: ignore[arg-type]


def test_spellings_lead_to_fields_and_never_hide_one() -> None:
    assert {*SPELLINGS.values(), *MEANT.values()} <= set(NAMES)
    tables = [set(NAMES), set(SPELLINGS), set(UNSUPPORTED), set(TRANSPORT), set(MEANT)]
    assert sum(map(len, tables)) == len(set().union(*tables))
