"""`SamplingParams`: the checks at the door, and the object that they leave."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
import re
from typing import Any

import numpy as np
import pytest
import torch

from logitkit.params import SamplingParams
from logitkit.params.checks import FrozenDict
from logitkit.params.fields import FIELDS, STRUCTURED_FIELDS

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


def test_a_frozen_dict_equals_a_dict_and_hashes_by_value() -> None:
    assert FrozenDict({1: 2, 3: 4}) == {3: 4, 1: 2}
    assert hash(FrozenDict({1: 2, 3: 4})) == hash(FrozenDict({3: 4, 1: 2}))
