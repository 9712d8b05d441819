"""Likely documents: what `warm` goes through first, and that the rows are there afterwards."""

from __future__ import annotations

import json
from typing import Any

import pytest

from logitkit.grammar import JsonSchema, compile_grammar
from logitkit.grammar.likely import LikelyTexts
from logitkit.grammar.matcher import CompiledGrammar
from logitkit.grammar.vocabulary import Vocabulary
from logitkit.grammar.warm import Warming

PAIRS = ('{"', '":', '",', ' "', '"}', '"]', '["', '"name', "example", "text", "\n  ")
VOCABULARY = Vocabulary(
    [b"", *(bytes([byte]) for byte in range(256)), *(pair.encode() for pair in PAIRS)], 0
)


def grammar_of(schema: Any) -> CompiledGrammar:
    return compile_grammar(JsonSchema(schema), VOCABULARY)


def texts_of(schema: Any) -> list[str]:
    """The whole texts."""
    grammar = grammar_of(schema)
    texts = LikelyTexts(grammar.arena, grammar.start, grammar.spec.schema)
    whole = [visit for visit in texts if visit.at == grammar.start and visit not in texts._beside]
    return [visit.text.decode() for visit in whole]


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0},
        "kind": {"enum": ["a", "b"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "code": {"type": "string", "pattern": "^[0-9]{3}-z$"},
    },
    "required": ["kind", "name"],
}


def test_the_first_text_has_every_member_in_declared_order() -> None:
    first = texts_of(PERSON)[0]
    assert first.startswith(
        '{"name": "example text", "age": 42, "kind": "a", "tags": ["example text", "example text"]'
    )
    document = json.loads(first)
    assert list(document) == ["name", "age", "kind", "tags", "code"]
    assert document["code"][3:] == "-z" and document["code"][:3].isdigit()


def test_other_texts_leave_out_take_turns_and_space_otherwise() -> None:
    texts = texts_of(PERSON)
    assert '{"name": "example text", "kind": "a"}' in texts
    assert any('"kind": "b"' in text for text in texts)
    assert any('{"name":"example text","age":42,"kind":"a"' in text for text in texts)
    assert any('{\n  "name": "example text",\n  "age": 42,' in text for text in texts)


SCHEMAS: dict[str, Any] = {
    "anything": True,
    "numbers": {"type": ["number", "null"], "exclusiveMinimum": 1.5, "maximum": 9},
    "tuple": {"type": "array", "prefixItems": [{"const": 1}, {"type": "boolean"}], "minItems": 2},
    "alternatives": {"anyOf": [{"type": "integer"}, {"required": ["x"], "type": "object"}]},
    "all of": {"allOf": [{"properties": {"a": {"const": 1}}}, {"required": ["a"]}]},
    "tree": {
        "$ref": "#/$defs/node",
        "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
    },
    "patterns of names": {
        "type": "object", "patternProperties": {"^x[0-9]$": {"type": "null"}},
        "additionalProperties": False,
    },
    "names beyond ascii": {"type": "object", "properties": {"caf\u00e9": {"const": "\u00fc"}}},
    "lengths": {"type": "string", "minLength": 20, "maxLength": 25},
    "date": {"type": "string", "format": "date"},
    "list of types": {"oneOf": [{"type": ["string"]}, {"type": ["null", "integer"]}]},
}  # fmt: skip


@pytest.mark.parametrize("name", SCHEMAS)
def test_texts_are_taken_by_the_grammar(name: str) -> None:
    grammar, texts = grammar_of(SCHEMAS[name]), texts_of(SCHEMAS[name])
    assert texts[0]
    complete = 0
    for text in texts:
        matcher = grammar.matcher()
        assert all(map(matcher.accept, VOCABULARY.tokenize(text.encode()))), text
        complete += matcher.is_complete
    assert complete >= 1


def test_a_text_that_gets_stuck_is_used_as_far_as_it_got() -> None:
    # Only "aaaa..." is long enough to be out of the search's reach.
    schema = {
        "type": "object", "properties": {"a": {"const": 1}, "b": {"pattern": "^(x.{3}y){200}$",
        "type": "string"}}, "required": ["a", "b"], "additionalProperties": False,
    }  # fmt: skip
    assert texts_of(schema)[0].startswith('{"a": 1')


def test_references_in_a_circle_come_to_an_end() -> None:
    schema = {"anyOf": [{"type": "array", "items": {"$ref": "#"}}, {"$ref": "#/anyOf/0"}]}
    assert all(len(text) < 10_000 for text in texts_of(schema))


def test_time_that_is_over_cuts_a_text_short() -> None:
    grammar = grammar_of(PERSON)
    texts = LikelyTexts(grammar.arena, grammar.start, grammar.spec.schema)
    texts.cut_at(0.0)
    assert next(iter(texts)).text in (b"", b"{")


def test_after_warming_usual_documents_need_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logitkit.grammar.warm.LIKELY_SECONDS", 60.0)
    monkeypatch.setattr("logitkit.grammar.warm.SPARE_SECONDS", 60.0)
    monkeypatch.setattr(Warming, "run", lambda *_: False)
    grammar = grammar_of(PERSON)
    assert grammar.warm(seconds=60.0) is False
    built = grammar.arena._masks._build
    missing = []

    def build(*configuration: int) -> int:
        missing.append(configuration)
        return built(*configuration)

    monkeypatch.setattr(grammar.arena._masks, "_build", build)
    for document in (
        {"name": "Ada", "age": 36, "kind": "b", "tags": ["x", "y"]},
        {"name": "Bob", "kind": "a"},
    ):
        matcher = grammar.matcher()
        for token in VOCABULARY.tokenize(json.dumps(document).encode()):
            matcher.mask()
            assert matcher.accept(token)
    assert not missing
    monkeypatch.setattr(grammar.arena._masks, "_build", built)


def test_warming_goes_on_where_it_stopped() -> None:
    grammar = grammar_of({"type": "object", "properties": {"a": {"enum": [1, 2]}},
                          "required": ["a"], "additionalProperties": False})  # fmt: skip
    assert grammar.warm(seconds=0.0) is False
    assert grammar.warm(states=1) is False
    assert grammar.warm(seconds=60.0, row_bytes=0) is False
    assert grammar.warm(seconds=60.0) is True
    assert grammar.warm() is True


@pytest.mark.parametrize("limit", [{"seconds": float("nan")}, {"seconds": "1"}, {"states": -1}])
def test_limits_that_are_no_numbers_from_zero_are_refused(limit: dict[str, Any]) -> None:
    (name,) = limit
    with pytest.raises(ValueError, match=f"`{name}` is"):
        grammar_of(True).warm(**limit)
