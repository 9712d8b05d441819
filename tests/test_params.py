"""`SamplingParams`: checks at the door, other systems' spellings, and words as token ids."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import pickle
import re
import time
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import GenerationConfig, GPT2Config

from logitkit.params import ResolvedParams, SamplingParams, generation_config, resolve
from logitkit.params.checks import FrozenDict
from logitkit.params.fields import FIELDS, STRUCTURED_FIELDS
from logitkit.params.names import MEANT, SPELLINGS, TRANSPORT, UNSUPPORTED

INF, NAN = math.inf, math.nan
NAMES = [field.name for field in dataclasses.fields(SamplingParams)]


# -- fields and checks


def test_the_table_describes_every_field_in_order() -> None:
    assert list(FIELDS) == NAMES
    for name, field in FIELDS.items():
        assert field.allowed and field.effect and field.source
        assert f"{name} = " in (SamplingParams.__doc__ or "")


NOT_NUMBERS = [NAN, INF, -INF, "1", None, True, [1.0], 1j, 10**400]
NOT_COUNTS = [-2, 1.0, NAN, "1", True, [1], 2**31]
WRONG: dict[str, list[Any]] = {
    "temperature": [*NOT_NUMBERS, -0.1, 1e-40, 1e39, np.True_, torch.tensor([1.0])],
    "top_k": [*NOT_COUNTS, None],
    "top_p": [*NOT_NUMBERS, 0, 0.0, -0.5, 1.5],
    "min_p": [*NOT_NUMBERS, -0.1, 1.1],
    "repetition_penalty": [*NOT_NUMBERS, 0, -1.0],
    "presence_penalty": NOT_NUMBERS,
    "frequency_penalty": NOT_NUMBERS,
    "logit_bias": [
        *([(1, 1.0)], {-1: 1.0}, {"x": 1.0}, {"-1": 1.0}, {1.5: 1.0}, {True: 1.0}, None),
        *({7: NAN}, {7: INF}, {7: "1"}, {7: True}, {7: None}, {7: "-inf"}),
        *({1: 1.0, "1": 1.0}, {"1": 0, "01": 0}),
    ],
    "allowed_token_ids": [(), [-1], [1.0], [True], "12", 5, {1: 2}],
    "bad_words": ["", [""], [1], 3, None, b"x"],
    "bad_words_ids": [[[]], [1, 2], [[-1]], [[True]], ["ab"], "ab", None],
    "min_new_tokens": [*NOT_COUNTS, -1, None],
    "max_new_tokens": [*NOT_COUNTS, 0, -1],
    "stop": ["", ["a", ""], [1], 3, None, {"a": 1}],
    "stop_token_ids": [[-1], ["1"], [1.0], [True], "1", 1, None],
    "stop_regex": ["", [""], [1], 3, None],
    "ignore_eos": [0, 1, "yes", None],
    "n": [*NOT_COUNTS, 0, None],
    "sampling_seed": [-1, 2**64, 1.0, "1", True],
    "logprobs": [*NOT_COUNTS, -1],
    "logprob_mode": ["RAW", "", None, 1],
    "typical_p": [*NOT_NUMBERS, 0, 1.1],
    "epsilon_cutoff": [*NOT_NUMBERS, 1.0, -0.1],
    "eta_cutoff": [*NOT_NUMBERS, 1.0, -0.1],
    "top_n_sigma": [*NOT_NUMBERS, -0.5, -2],
    "top_h": [*NOT_NUMBERS, 1.1, -0.1],
    "no_repeat_ngram_size": [*NOT_COUNTS, -1, None],
    "dry_multiplier": [*NOT_NUMBERS, -1.0],
    "dry_base": [*NOT_NUMBERS, 0.9],
    "dry_allowed_length": [*NOT_COUNTS, 0, None],
    "dry_range": [*NOT_COUNTS, None],
    "dry_sequence_breakers": [[""], [()], [[-1]], [1], 1, None],
    "xtc_probability": [*NOT_NUMBERS, -0.1, 1.1],
    "xtc_threshold": [*NOT_NUMBERS, -0.1, 1.1],
    "dynatemp_range": [*NOT_NUMBERS, -0.1],
    "dynatemp_exponent": [*NOT_NUMBERS, 0, -1],
    "extra": [{1: 2}, {"top_p": 0.5}, [("a", 1)], None],
}


def test_every_field_has_wrong_values_to_try() -> None:
    assert {*WRONG, *STRUCTURED_FIELDS} == set(NAMES)


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRONG.items() for value in values]
)
def test_a_wrong_value_is_named_with_its_field_range_and_remedy(name: str, value: Any) -> None:
    with pytest.raises(ValueError) as error:
        SamplingParams(**{name: value})
    message = str(error.value)
    shown = repr(value) if len(repr(value)) < 30 else repr(value)[:10]
    assert f"`{name}`" in message and shown in message
    assert FIELDS[name].allowed in message and "leave the field out" in message


@pytest.mark.parametrize("value", [1e300, 10**12, [10**12], [[10**12]], {10**12: 1.0}])
@pytest.mark.parametrize("name", [name for name in NAMES if name not in STRUCTURED_FIELDS])
def test_the_ranges_in_messages_are_true_at_the_ends_of_the_columns(name: str, value: Any) -> None:
    try:
        SamplingParams(**{name: value})
    except ValueError as error:
        if "out of range" in str(error):
            assert re.search(r"2\*\*31 - 1|2\*\*64|float32|<=? 1\b", FIELDS[name].allowed)
            assert not re.search(r"finite|>= \d", FIELDS[name].allowed)


@pytest.mark.parametrize(("value", "words"), [(3, "an int is not"), (b"x", "a bytes is not")])
def test_types_have_their_article(value: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        SamplingParams(stop=[value])


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("temperature", 0, 0.0),
        ("temperature", np.float32(0.5), 0.5),
        ("temperature", torch.tensor(0.5), 0.5),
        ("top_k", -1, 0),
        ("top_k", np.int64(5), 5),
        ("top_k", torch.tensor(5), 5),
        ("top_n_sigma", -1, 0.0),
        ("presence_penalty", -0.0, 0.0),
        ("logit_bias", {"3": -INF, 1: 2}, {1: 2.0, 3: -INF}),
        ("allowed_token_ids", [3, 1, 3], (1, 3)),
        ("allowed_token_ids", torch.tensor([3, 1]), (1, 3)),
        ("bad_words_ids", [[2, 2], [1], (2, 2)], ((2, 2), (1,))),
        ("stop", "###", ("###",)),
        ("stop", ["b", "a", "b"], ("b", "a")),
        ("stop_regex", r"\d+", (r"\d+",)),
        ("stop_token_ids", np.array([7, 5]), (7, 5)),
        ("ignore_eos", np.True_, True),
        ("sampling_seed", 2**64 - 1, 2**64 - 1),
        ("dry_sequence_breakers", ["a", [1, 2]], ("a", (1, 2))),
        ("extra", {"a": [1, {"b": [2]}]}, {"a": (1, {"b": (2,)})}),
    ],
)
def test_a_right_value_is_kept_plain_and_normal(name: str, value: Any, kept: Any) -> None:
    found = getattr(SamplingParams(**{name: value}), name)
    assert found == kept
    assert repr(found) == repr(kept)  # 1 is not 1.0, and numpy's 1 is neither


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"min_new_tokens": 5, "max_new_tokens": 4}, ["`min_new_tokens` is 5", "is 4"]),
        ({"allowed_token_ids": [1], "logit_bias": {1: -INF}}, ["`allowed_token_ids` is (1,)"]),
        ({"allowed_token_ids": [1], "bad_words_ids": [[1]]}, ["`bad_words_ids`", "nothing"]),
        ({"regex": "a", "choice": ["a"]}, ["`regex` and `choice`", "at most one"]),
        ({"ebnf": 'root ::= "a"', "json_schema": {}}, ["`json_schema` and `ebnf`", "Keep one"]),
    ],
)
def test_values_that_contradict_each_other_are_refused(
    fields: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(ValueError) as error:
        SamplingParams(**fields)
    assert all(word in str(error.value) for word in words)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("topp", "top_p"), ("tempreature", "temperature"), ("seed", "sampling_seed")],
)
def test_an_unknown_field_names_the_one_that_was_meant(name: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"unknown field `{name}`; did you mean `{meant}`\\?"):
        SamplingParams(**{name: 1})


def test_an_unknown_field_without_a_neighbour_points_to_extra() -> None:
    with pytest.raises(ValueError, match=r"unknown field `zzz`; .*`extra`"):
        SamplingParams(**{"zzz": 1})


# -- the object


def test_params_are_immutable_and_own_their_values() -> None:
    bias, inner = {1: 1.0}, [1]
    params = SamplingParams(logit_bias=bias, extra={"a": inner})
    bias[2], inner[0] = 2.0, 2
    assert params.logit_bias == {1: 1.0} and params.extra == {"a": (1,)}
    with pytest.raises(dataclasses.FrozenInstanceError):
        params.top_k = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        params.logit_bias[1] = 2.0  # type: ignore[index]


def test_params_survive_pickle_copy_replace_and_hash() -> None:
    params = SamplingParams(top_k=5, logit_bias={1: -INF}, extra={"a": {"b": [1]}}, stop="x")
    for same in (pickle.loads(pickle.dumps(params)), copy.deepcopy(params), copy.copy(params)):
        assert same == params and hash(same) == hash(params)
    changed = dataclasses.replace(params, top_k=-1)
    assert changed.top_k == 0 and changed.stop == ("x",) and changed != params
    with pytest.raises(ValueError, match="`top_p` is 2"):
        dataclasses.replace(params, top_p=2)


def test_the_repr_shows_what_was_set() -> None:
    assert repr(SamplingParams()) == "SamplingParams()"
    assert repr(SamplingParams(top_p=0.5, n=2)) == "SamplingParams(top_p=0.5, n=2)"


# -- dictionaries


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


# -- transformers


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


# -- resolve


class Letters:
    """A tokenizer with the longest match first; token i is the i-th of `words`."""

    def __init__(self, *words: str) -> None:
        self.words = list(words)
        self.decoded = 0

    def __len__(self) -> int:
        return len(self.words)

    def get_vocab(self) -> dict[str, int]:
        return {word: token for token, word in enumerate(self.words)}

    def decode(self, ids: list[int], **_: Any) -> str:
        self.decoded += 1
        return "".join(self.words[token] for token in ids).replace("\u2581", " ").lstrip(" ")

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        assert not add_special_tokens
        ids, text = [], text.replace(" ", "\u2581")
        while text:
            fits = [word for word in self.words if text.startswith(word)]
            if not fits:
                text = text[1:]
                continue
            word = max(fits, key=len)
            ids.append(self.words.index(word))
            text = text[len(word) :]
        return ids


def test_resolving_nothing_changes_nothing() -> None:
    resolved = resolve(SamplingParams(top_k=3))
    assert isinstance(resolved, ResolvedParams)
    assert (resolved.top_k, resolved.eos_token_ids, resolved.dry_sequence_breakers) == (3, (), ())
    assert resolve(resolved, eos_token_ids=2).eos_token_ids == (2,)
    assert pickle.loads(pickle.dumps(resolved)) == resolved


def test_bad_words_become_ids_with_and_without_a_space() -> None:
    tok = Letters("ab", "\u2581ab", "\u2581", "c")
    params = SamplingParams(bad_words=["ab", " abc", "c"], bad_words_ids=[[3]])
    resolved = resolve(params, tokenizer=tok)
    # ab -> (0), (1); " abc" -> (0, 3), (1, 3); c -> (3), which was there, and (2, 3)
    assert resolved.bad_words_ids == ((3,), (0,), (1,), (0, 3), (1, 3), (2, 3))
    assert resolved.bad_words == ()
    assert resolve(resolved) == resolved


def test_a_bad_word_without_tokens_or_at_the_end_of_text_is_refused() -> None:
    tok = Letters("a", "</s>")
    with pytest.raises(ValueError, match="`bad_words`: 'z' has no tokens"):
        resolve(SamplingParams(bad_words="z"), tokenizer=tok)
    with pytest.raises(ValueError, match="`bad_words`: '</s>' is the end-of-text token 1"):
        resolve(SamplingParams(bad_words="</s>"), tokenizer=tok, eos_token_ids=[1])
    by_id = resolve(SamplingParams(bad_words_ids=[[1]]), eos_token_ids=[1])
    assert by_id.bad_words_ids == ((1,),)


def test_breakers_become_every_way_to_spell_them() -> None:
    tok = Letters("a", "b", "ca", "xaby", "aa", "ba", "\u2581", "ac")
    params = SamplingParams(dry_multiplier=1.0, dry_sequence_breakers=["ab", [5, 5], " "])
    resolved = resolve(params, tokenizer=tok)
    # "ab": token 3 contains it; 0 (a), 2 (ca), 4 (aa), 5 (ba) end in its head "a", then b = 1;
    # 7 (ac) does not
    assert resolved.dry_sequence_breakers == ((0, 1), (2, 1), (3,), (4, 1), (5, 1), (5, 5), (6,))
    assert resolve(resolved) == resolved


def test_the_tail_of_a_breaker_is_twenty_tokens_at_most() -> None:
    params = SamplingParams(dry_multiplier=1.0, dry_sequence_breakers=["x" + "a" * 30])
    resolved = resolve(params, tokenizer=Letters("a", "x"))
    assert resolved.dry_sequence_breakers == ((1,) + (0,) * 20,)


@pytest.mark.parametrize("off", [{"dry_multiplier": 0.0}, {"dry_multiplier": 1.0, "dry_range": 0}])
def test_breakers_vanish_where_dry_is_off(off: dict[str, Any]) -> None:
    params = SamplingParams(dry_sequence_breakers=["ab", [1]], **off)
    assert resolve(params).dry_sequence_breakers == ()


def test_breaker_tokens_that_the_model_lacks_are_left_out() -> None:
    tok = Letters("a", "b", "aa")
    params = SamplingParams(dry_multiplier=1.0, dry_sequence_breakers=["a"])
    assert resolve(params, tokenizer=tok, vocab_size=2).dry_sequence_breakers == ((0,),)


def test_a_vocabulary_is_decoded_once() -> None:
    tok = Letters(*(f"<{token}>" for token in range(150_000)))
    resolve(SamplingParams(dry_multiplier=1.0), tokenizer=tok)
    assert tok.decoded == 150_000
    start = time.perf_counter()
    breakers = ["<777>", ">"]
    params = SamplingParams(dry_multiplier=1.0, dry_sequence_breakers=breakers)
    # "<777>" is one token; as a head ends no other token in "<", "<7", "<77" or "<777"
    assert len(resolve(params, tokenizer=tok).dry_sequence_breakers) == 150_000
    assert time.perf_counter() - start < 5  # about 0.4 s; generous, for a busy machine
    assert tok.decoded == 150_000
    tok.words.append("more")
    resolve(params, tokenizer=tok)
    assert tok.decoded == 150_000 + 150_001


@pytest.mark.parametrize(
    "fields", [{"bad_words": "a"}, {"dry_multiplier": 1.0}], ids=["bad_words", "breakers"]
)
def test_text_without_a_tokenizer_is_refused(fields: dict[str, Any]) -> None:
    name = "bad_words" if "bad_words" in fields else "dry_sequence_breakers"
    with pytest.raises(ValueError, match=f"`{name}` holds text, which needs a tokenizer"):
        resolve(SamplingParams(**fields))
    with pytest.raises(ValueError, match="`tokenizer` is an object without encode"):
        resolve(SamplingParams(**fields), tokenizer=object())


@pytest.mark.parametrize("size", [0, -1])
def test_a_vocabulary_without_tokens_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"`vocab_size` is {size}"):
        resolve(SamplingParams(stop_token_ids=[1]), vocab_size=size)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("logit_bias", {"logit_bias": {10: 1.0}}),
        ("allowed_token_ids", {"allowed_token_ids": [1, 10]}),
        ("stop_token_ids", {"stop_token_ids": [10]}),
        ("bad_words_ids", {"bad_words_ids": [[1, 10]]}),
        ("dry_sequence_breakers", {"dry_multiplier": 1.0, "dry_sequence_breakers": [[10, 1]]}),
    ],
)
def test_an_id_outside_the_vocabulary_is_named(name: str, fields: dict[str, Any]) -> None:
    params = SamplingParams(**fields)
    with pytest.raises(ValueError, match=rf"`{name}` holds token 10, .* 10 tokens"):
        resolve(params, vocab_size=10)
    resolve(params, vocab_size=11)
    with pytest.raises(ValueError, match="`eos_token_ids` holds token 11"):
        resolve(params, vocab_size=11, eos_token_ids=[11])


def test_a_frozen_dict_equals_a_dict_and_hashes_by_value() -> None:
    assert FrozenDict({1: 2, 3: 4}) == {3: 4, 1: 2}
    assert hash(FrozenDict({1: 2, 3: 4})) == hash(FrozenDict({3: 4, 1: 2}))
