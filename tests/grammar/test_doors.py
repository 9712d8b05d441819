"""Errors at the door of the grammar API: each names the field, the value, and what to do."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import LogitsProcessor, TopKLogitsWarper
from writers import IDS, MASK, model

import logitkit as lk
from logitkit.errors import BadLogitsError, EmptyRowError, GrammarError
from logitkit.grammar import compile
from logitkit.params import resolve

EOS = 257
VOCABULARY = lk.Vocabulary([*(bytes([i]) for i in range(256)), b"ab", None], EOS)
ONLY_A = lk.Vocabulary([b"a", None], 1)


def matcher(pattern: str = "a+b?") -> lk.Matcher:
    return lk.compile_grammar(lk.Regex(pattern), VOCABULARY).matcher()


def message(kind: type[Exception], call: Callable[[], Any]) -> str:
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


# Budgets


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, "5", None, [1]])
def test_budget_seconds_must_be_finite_and_positive(value: Any) -> None:
    text = message(ValueError, lambda: lk.Budget(seconds=value))
    assert f"`seconds` is {value!r}" in text and "finite number above 0" in text


@pytest.mark.parametrize("name", ["states", "row_bytes", "nesting", "repeats"])
@pytest.mark.parametrize("value", [0, -3, True, 2.0, "7", None])
def test_other_budgets_must_be_positive_integers(name: str, value: Any) -> None:
    text = message(ValueError, lambda: lk.Budget(**{name: value}))
    assert f"`{name}` is {value!r}" in text and "integer of at least 1" in text


def test_budgets_take_numpy_numbers() -> None:
    budget = lk.Budget(seconds=np.float32(0.5), states=np.int64(7))
    assert (budget.seconds, budget.states) == (0.5, 7)
    assert type(budget.states) is int


# compile_grammar


def test_compile_grammar_names_the_argument_of_a_wrong_type() -> None:
    spec = lk.Regex("a")
    for wrong in (None, object(), "gpt2"):
        text = message(ValueError, lambda w=wrong: lk.compile_grammar(spec, w))
        assert "`vocabulary`" in text and "lk.Vocabulary.from_tokenizer(tokenizer)" in text
    text = message(GrammarError, lambda: lk.compile_grammar("a|b", VOCABULARY))
    assert "`spec`" in text and "lk.Regex('a|b')" in text
    text = message(ValueError, lambda: lk.compile_grammar(spec, VOCABULARY, budget=5))
    assert "`budget` is 5" in text and "lk.Budget(" in text


# JsonSchema


@pytest.mark.parametrize(
    "schema", [5, 1.5, [], (), None, object(), torch.zeros(1), lk.Budget()]
)  # a budget is a dataclass, but no class
def test_a_schema_of_another_type_lists_the_types_taken(schema: Any) -> None:
    text = message(GrammarError, lambda: lk.JsonSchema(schema))
    assert "`schema` is" in text and "JSON text" in text and "a pydantic model" in text
    assert "arbitrary_types_allowed" not in text


def test_a_schema_may_be_bytes_of_json() -> None:
    assert lk.JsonSchema(b'{"type": "null"}') == lk.JsonSchema({"type": "null"})
    assert "not JSON" in message(GrammarError, lambda: lk.JsonSchema(b"\xff"))


@pytest.mark.parametrize("lenient", [5, "enum", b"enum", None, [1]])
def test_lenient_must_be_a_set_of_keywords(lenient: Any) -> None:
    text = message(GrammarError, lambda: lk.JsonSchema({}, lenient=lenient))
    assert "`lenient`" in text and repr(lenient) in text


# Matchers


@pytest.mark.parametrize("token", ["a", True, 97.0, None, b"a", [97]])
def test_accept_takes_integers_only(token: Any) -> None:
    at = matcher()
    text = message(ValueError, lambda: at.accept(token))
    assert f"`token` is {token!r}" in text and at.num_accepted == 0


@pytest.mark.parametrize("token", [-1, EOS + 1, 10**6, 10**30])
def test_accept_refuses_ids_outside_of_the_vocabulary_with_an_error(token: int) -> None:
    text = message(ValueError, lambda: matcher().accept(token))
    assert f"`token` is {token}" in text and f"0 to {EOS}" in text


def test_a_token_that_the_grammar_refuses_returns_false() -> None:
    at = matcher()
    assert not at.accept(ord("b")) and at.accept(np.int64(97)) and at.accept(torch.tensor(97))
    assert at.num_accepted == 2


def test_a_true_does_not_pass_for_a_token_that_was_taken_before() -> None:
    at = lk.compile_grammar(lk.Regex("\x01+"), VOCABULARY).matcher()
    assert at.accept(1)
    at.reset()
    with pytest.raises(ValueError, match="`token` is True"):
        at.accept(True)


@pytest.mark.parametrize("n", ["a", True, 1.0, None])
def test_rollback_takes_integers_only(n: Any) -> None:
    at = matcher()
    at.accept(97)
    assert f"`n` is {n!r}" in message(ValueError, lambda: at.rollback(n))
    assert at.num_accepted == 1


@pytest.mark.parametrize("wrong", [[1], "ab", [None], 5])
def test_a_batch_takes_matchers_only(wrong: Any) -> None:
    assert "lk.Matcher objects" in message(ValueError, lambda: lk.MatcherBatch(wrong))


@pytest.mark.parametrize("tokens", [[97.0], ["a"], [True], [None], None])
def test_a_batch_accepts_integers_only(tokens: Any) -> None:
    at = matcher()
    assert "`tokens`" in message(ValueError, lambda: lk.MatcherBatch([at]).accept(tokens))
    assert at.num_accepted == 0


def test_copies_and_pickles_are_refused_with_the_remedy() -> None:
    at = matcher()
    for call in (copy.copy, copy.deepcopy, pickle.dumps):
        assert "fork()" in message(TypeError, lambda c=call: c(at))
    assert "lk.compile_grammar" in message(TypeError, lambda: pickle.dumps(at.grammar))
    assert "from_tokenizer" in message(TypeError, lambda: pickle.dumps(VOCABULARY))
    assert copy.copy(at.grammar) is at.grammar and copy.deepcopy(at.grammar) is at.grammar


# Errors come when the value is given


def test_a_wrong_regex_is_refused_when_it_is_made() -> None:
    for make in (lk.Regex, lambda text: lk.SamplingParams(regex=text)):
        assert "never closed" in message(GrammarError, lambda m=make: m("a("))
        assert "backreference" in message(GrammarError, lambda m=make: m(r"(a)\1")).lower()
    text = message(GrammarError, lambda: lk.Regex("a" * 100_001))
    assert "`pattern`" in text and "100001" in text and "lk.Choice" in text


def test_a_deeply_nested_regex_is_left_to_the_budget_of_compile_grammar() -> None:
    spec = lk.Regex("(" * 1_500 + "a" + ")" * 1_500)
    with pytest.raises(GrammarError, match="nesting"):
        lk.compile_grammar(spec, VOCABULARY)
    grammar = lk.compile_grammar(spec, VOCABULARY, lk.Budget(nesting=2_000))
    assert grammar.matcher().accept(97)


def test_a_wrong_ebnf_is_refused_when_it_is_made() -> None:
    for make in (lk.Ebnf, lambda text: lk.SamplingParams(ebnf=text)):
        with pytest.raises(GrammarError, match="line 1, column 10") as caught:
            make("root ::= x")
        assert caught.value.where == "line 1, column 10"
        assert "'root' is not defined" in message(GrammarError, lambda m=make: m('x ::= "a"'))
    assert lk.Ebnf('root ::= "a"{20000}').root == "root"  # a budget is no matter of syntax


def test_a_request_with_a_wrong_schema_is_refused_when_it_is_made() -> None:
    for schema, where in (
        ({"type": "strin"}, "#/type"),
        ({"properties": {"a": {"minLength": "3"}}}, "#/properties/a/minLength"),
        ({"unevaluatedItems": False}, "#/unevaluatedItems"),
        ({"$ref": "#/$defs/a"}, "#/$ref"),
    ):
        for given in (schema, lk.JsonSchema(schema)):
            with pytest.raises(GrammarError, match="`json_schema`") as caught:
                lk.SamplingParams(json_schema=given)
            assert caught.value.where == where


def test_a_schema_that_takes_long_to_read_is_left_to_compile_grammar(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compile, "SECONDS_OF_A_CHECK", 1e-9)
    schema = {"properties": {"slow": {"type": "strin"}}}
    assert lk.SamplingParams(json_schema=schema).json_schema.schema == schema


@pytest.mark.parametrize("draft", ["foo", None, 5, object()])
def test_a_wrong_draft_is_refused_when_the_strategy_is_made(draft: Any) -> None:
    assert "`draft`" in message(ValueError, lambda: lk.Speculative(draft=draft))


# Languages without texts


def test_only_the_empty_text_is_refused_for_every_kind() -> None:
    for spec in (lk.Regex(""), lk.Regex("(a{0})*"), lk.Choice([""]), lk.Ebnf('root ::= ""')):
        with pytest.raises(GrammarError, match="empty text"):
            lk.compile_grammar(spec, VOCABULARY)
    for spec in (lk.Regex("a?"), lk.Choice(["", "a"])):
        assert lk.compile_grammar(spec, VOCABULARY).matcher().is_complete


def test_an_empty_regex_is_told_from_one_that_cannot_be_spelled() -> None:
    with pytest.raises(GrammarError, match="no text at all"):
        lk.compile_grammar(lk.Regex(r"(?=a)b"), VOCABULARY)
    with pytest.raises(GrammarError, match="vocabulary can spell"):
        lk.compile_grammar(lk.Regex("ab"), ONLY_A)


WRONG = {"type": "integer", "minimum": 5, "maximum": 3}
NEXT = {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}}, "required": ["next"]}


@pytest.mark.parametrize(
    ("schema", "where", "reason"),
    [
        (False, "#", "is false"),
        (WRONG, "#", "contradict"),
        ({"properties": {"a": WRONG}, "required": ["a"]} | {"type": "object"}, "#/properties/a",
         "contradict"),
        ({"type": "object", "properties": {"a": False}, "required": ["a"]}, "#/properties/a",
         "is false"),
        ({"type": "array", "minItems": 1, "items": {"enum": []}}, "#/items/enum", "is empty"),
        ({"type": "array", "minItems": 2, "prefixItems": [{}, False]}, "#/prefixItems/1",
         "is false"),
        ({"allOf": [{"type": "integer"}, {"anyOf": [WRONG]}]}, "#/allOf/1/anyOf/0", "contradict"),
        ({"anyOf": [False, WRONG]}, "#", "contradict"),
        ({"$ref": "#"}, "#", "only to itself"),
        ({"$ref": "#/$defs/n", "$defs": {"n": NEXT}}, "#/$defs/n", "only to itself"),
    ],
)  # fmt: skip
def test_a_schema_without_values_names_the_deepest_place_and_the_cause(
    schema: Any, where: str, reason: str
) -> None:
    with pytest.raises(GrammarError, match="no value fits") as caught:
        lk.compile_grammar(lk.JsonSchema(schema), VOCABULARY)
    assert caught.value.where == where and reason in str(caught.value)


def test_keywords_that_are_lenient_are_not_blamed() -> None:
    schema = {"enum": [], "type": "object", "properties": {"a": False}, "required": ["a"]}
    with pytest.raises(GrammarError, match="is false") as caught:
        lk.compile_grammar(lk.JsonSchema(schema, lenient={"enum"}), VOCABULARY)
    assert caught.value.where == "#/properties/a"


@pytest.mark.parametrize("name", ["$defs", "definitions"])
def test_definitions_must_be_an_object(name: str) -> None:
    with pytest.raises(GrammarError, match="must be an object whose members are schemas") as caught:
        lk.compile_grammar(lk.JsonSchema({"properties": {"a": {name: 5}}}), VOCABULARY)
    assert caught.value.where == f"#/properties/a/{name}"


# Rows that nothing is left for


def failed(text: bytes, **fields: Any) -> str:
    """The error of a step behind `text`, a new text of the request."""
    params = resolve(
        lk.SamplingParams(**fields), vocab_size=VOCABULARY.size, vocabulary=VOCABULARY,
        eos_token_ids=EOS,
    )  # fmt: skip
    batch = lk.Batch.start([params], [[120]], vocab_size=VOCABULARY.size)
    for token in text:
        batch.commit(torch.tensor([[token]]))
    with pytest.raises(EmptyRowError) as caught:
        batch.plan.sample(torch.zeros(1, VOCABULARY.size), batch.rows())
    return str(caught.value)


def test_a_complete_text_whose_eos_is_banned_says_so() -> None:
    text = failed(b"a", regex="a", min_new_tokens=5)
    assert "the text is complete" in text and "eos" in text
    assert "MinNewTokens (`min_new_tokens`)" in text and "behind 1 new token:" in text


def test_what_masked_the_tokens_of_a_grammar_is_named() -> None:
    text = failed(
        b"", regex="[ab]", logit_bias={97: -float("inf")}, allowed_token_ids=(97, 99, 100),
        bad_words_ids=[[99]],
    )  # fmt: skip
    assert "BadWords" not in text  # it masks nothing that the grammar allows
    assert "AllowedTokenIds (`allowed_token_ids`) and LogitBias (`logit_bias`)" in text
    assert (
        "tokens 97, 98" in text and "min_new_tokens" not in text and "behind 0 new tokens" in text
    )


class Spoils(LogitsProcessor):
    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        return scores.index_fill(1, torch.tensor([3]), float("nan"))


def test_the_processor_that_made_a_nan_is_named() -> None:
    processors = [TopKLogitsWarper(5), Spoils()]
    with pytest.raises(BadLogitsError, match=r"TransformersList: the processor Spoils returned"):
        lk.generate(model(), input_ids=IDS, attention_mask=MASK, logits_processor=processors)
