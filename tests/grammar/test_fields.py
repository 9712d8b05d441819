"""The structured fields of `SamplingParams`: what they take, keep, refuse and give back."""

from __future__ import annotations

import dataclasses
import json
import pickle
from typing import Any

import pytest
from helpers import letters
from pydantic import BaseModel
from tiny import EOS, VOCAB, tiny_tokenizer

import logitkit as lk
from logitkit.params import resolve


class Point(BaseModel):
    x: int
    y: int


TAG = {"format": {"type": "const_string", "value": "ab"}}
# field, what is given, the spec that is kept
GIVEN: list[tuple[str, Any, Any]] = [
    ("json_schema", {"type": "integer"}, lk.JsonSchema({"type": "integer"})),
    ("json_schema", True, lk.JsonSchema(True)),
    ("json_schema", '{"type": "integer"}', lk.JsonSchema({"type": "integer"})),
    ("json_schema", "$$ANY$$", lk.JsonSchema({"type": "object"})),
    ("json_schema", Point, lk.JsonSchema(Point.model_json_schema())),
    ("json_schema", list[int], lk.JsonSchema({"items": {"type": "integer"}, "type": "array"})),
    ("json_schema", lk.JsonSchema({}, whitespace=2), lk.JsonSchema({}, whitespace=2)),
    ("regex", "a+", lk.Regex("a+")),
    ("regex", lk.Regex("a+", dialect="ecma"), lk.Regex("a+", dialect="ecma")),
    ("ebnf", 'root ::= "a"', lk.Ebnf('root ::= "a"')),
    ("choice", ["a", "b"], lk.Choice(("a", "b"))),
    ("choice", ("a", "b"), lk.Choice(["a", "b"])),
    ("structural_tag", TAG, lk.StructuralTag(TAG)),
    ("structural_tag", json.dumps(TAG), lk.StructuralTag(TAG)),
]


@pytest.mark.parametrize(("name", "given", "kept"), GIVEN, ids=lambda x: str(x)[:30])
def test_a_value_is_kept_as_its_spec(name: str, given: Any, kept: Any) -> None:
    params = lk.SamplingParams(**{name: given})
    assert getattr(params, name) == kept
    assert type(getattr(params, name)) is type(kept)


@pytest.mark.parametrize(("name", "given", "kept"), GIVEN, ids=lambda x: str(x)[:30])
def test_equal_requests_are_equal_and_hash_alike(name: str, given: Any, kept: Any) -> None:
    one, other = lk.SamplingParams(**{name: given}), lk.SamplingParams(**{name: kept})
    assert one == other
    assert hash(one) == hash(other)
    assert one != lk.SamplingParams()
    assert pickle.loads(pickle.dumps(one)) == one
    assert dataclasses.replace(one, top_k=3) == lk.SamplingParams(**{name: given}, top_k=3)


@pytest.mark.parametrize(("name", "given", "kept"), GIVEN, ids=lambda x: str(x)[:30])
def test_to_dict_is_json_and_comes_back(name: str, given: Any, kept: Any) -> None:
    params = lk.SamplingParams(**{name: given})
    if kept in (lk.JsonSchema({}, whitespace=2), lk.Regex("a+", dialect="ecma")):
        with pytest.raises(ValueError, match=rf"`{name}` is .* options"):
            params.to_dict()
        return
    text = json.dumps(params.to_dict(), allow_nan=False)
    assert lk.SamplingParams.from_dict(json.loads(text)) == params


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"regex": 3}, "`regex`: Regex: `pattern` must be a str, not int"),
        ({"regex": "a", "choice": ["a"]}, "`regex` and `choice` are given: at most one"),
        ({"regex": lk.Choice(["a"])}, "a Choice belongs into the field `choice`"),
        ({"json_schema": "{"}, "`json_schema`: .* line 1, column 2"),
        ({"json_schema": 3}, "`json_schema`"),
        ({"choice": []}, "`choice`: .* at least one"),
        ({"choice": "ab"}, "`choice`: .* sequence of str"),
        ({"ebnf": ["a"]}, "`ebnf`: .* must be a str"),
        ({"structural_tag": [1]}, "`structural_tag`: .* JSON object"),
    ],
)
def test_a_wrong_value_is_refused_with_its_field(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        lk.SamplingParams(**fields)


def test_errors_keep_the_place_in_the_grammars_text() -> None:
    with pytest.raises(lk.GrammarError) as error:
        lk.SamplingParams(json_schema="[1")
    assert error.value.where == "line 1, column 3"


def test_a_grammar_without_tokenizer_is_refused_by_name_with_the_remedy() -> None:
    for vocab_size in (None, VOCAB):
        with pytest.raises(ValueError, match=r"`regex` needs .* pass tokenizer="):
            resolve(lk.SamplingParams(regex="a"), eos_token_ids=EOS, vocab_size=vocab_size)


def test_the_vocabulary_is_made_of_tokenizer_width_and_every_eos() -> None:
    tokenizer = tiny_tokenizer()
    params = lk.SamplingParams(choice=["ab"])
    found = resolve(params, tokenizer=tokenizer, eos_token_ids=[EOS, 40], vocab_size=VOCAB + 9)
    assert found.grammar is not None
    assert found.grammar.vocabulary.eos_token_ids == found.eos_token_ids == (EOS, 40)
    assert found.grammar.vocabulary.size == VOCAB + 9
    again = resolve(params, tokenizer=tokenizer, eos_token_ids=[EOS, 40], vocab_size=VOCAB + 9)
    assert again.grammar is found.grammar


def test_without_eos_ids_the_tokenizers_are_taken() -> None:
    params = lk.SamplingParams(choice=["ab"])
    assert resolve(params, tokenizer=tiny_tokenizer(), vocab_size=VOCAB).eos_token_ids == (EOS,)


def test_requests_without_grammar_ask_no_tokenizer() -> None:
    resolved = resolve(lk.SamplingParams(), tokenizer=object(), vocab_size=VOCAB)
    assert resolved.grammar is None
    assert resolved.ending_eos_ids == ()


def test_what_does_not_compile_names_the_field() -> None:
    with pytest.raises(lk.GrammarError, match="`regex`: "):
        resolve(lk.SamplingParams(regex="(a"), vocab_size=30, vocabulary=letters(30))


def test_ignore_eos_cannot_go_beyond_the_end_of_a_grammar() -> None:
    params = lk.SamplingParams(regex="a", ignore_eos=True)
    assert resolve(params, vocab_size=30, vocabulary=letters(30)).ending_eos_ids == (29,)
    assert resolve(lk.SamplingParams(ignore_eos=True), eos_token_ids=2).ending_eos_ids == ()
