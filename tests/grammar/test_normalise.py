"""Small schemas and the normal form that each must have, keyword by keyword."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from normalised import fits, form, read

from logitkit.grammar import strings
from logitkit.grammar.json_schema.types import (
    ANYTHING,
    NEVER,
    Array,
    Boolean,
    Contains,
    Literal,
    Null,
    Number,
    Object,
    String,
    Type,
)

D = Decimal
ALL = (Null(), Boolean(), Number(False), String(strings.ANY), Array(), Object())
DRAFT_4 = {"$schema": "http://json-schema.org/draft-04/schema#"}
DRAFT_7 = {"$schema": "http://json-schema.org/draft-07/schema#"}


def alternatives(schema: Any, **options: Any) -> tuple[Type, ...]:
    normal = form(schema, **options)
    return normal.alternatives(normal.root)


SCALARS: list[tuple[Any, tuple[Type, ...]]] = [
    (True, ALL),
    ({}, ALL),
    ({"title": "x", "x-unknown": 3, "default": 1}, ALL),
    ({"type": "null"}, (Null(),)),
    ({"type": ["integer", "boolean"]}, (Number(True), Boolean())),
    ({"type": ["integer", "number"]}, (Number(False),)),
    (
        {"type": "number", "minimum": 1, "exclusiveMaximum": 2.5},
        (Number(False, D(1), D("2.5"), False, True),),
    ),
    ({"type": "number", "minimum": 3, "exclusiveMinimum": 3}, (Number(False, D(3), None, True),)),
    (
        {"type": "number", "minimum": 3, "exclusiveMinimum": True},
        (Number(False, D(3), None, True),),
    ),
    ({"type": "integer", "minimum": 2**70}, (Number(True, D(2**70)),)),
    ({"type": "number", "multipleOf": 0.01}, (Number(False, multiple_of=D("0.01")),)),
    (
        {"allOf": [{"multipleOf": 0.6}, {"multipleOf": 0.4}], "type": "number"},
        (Number(False, multiple_of=D("1.2")),),
    ),
    ({"type": "string", "minLength": 2, "maxLength": 3}, (String(strings.length(2, 3)),)),
    ({"type": "string", "format": "int32"}, (String(strings.ANY),)),
    ({"not": {"type": ["string", "object", "array", "null"]}}, (Boolean(), Number(False))),
    ({"not": {"not": {"type": "null"}}}, (Null(),)),
    ({"type": "boolean", "not": {"const": True}}, (Boolean(frozenset({False})),)),
    (
        {"type": "number", "not": {"type": "integer"}},
        (Number(False, not_multiples=frozenset({D(1)})),),
    ),
    (
        {"type": "integer", "not": {"enum": [1, 2.0, "a"]}},
        (Number(True, excluded=frozenset({D(1), D(2)})),),
    ),
    ({"type": "integer", "not": {"minimum": 3}}, (Number(True, None, D(3), False, True),)),
    ({"type": "string", "not": {"const": "a"}}, (String(~strings.literal("a")),)),
    (
        {"oneOf": [{"type": "integer"}, {"type": "number"}]},
        (Number(False, not_multiples=frozenset({D(1)})),),
    ),
    ({"anyOf": [{"type": "null"}, False, {"type": "null"}]}, (Null(),)),
    ({"if": {"type": "integer"}, "then": {"minimum": 5}, "else": False}, (Number(True, D(5)),)),
]


def test_a_pattern_becomes_its_language() -> None:
    # Compiled here: languages of patterns are equal only as long as the pattern is remembered.
    found = alternatives({"type": "string", "pattern": "^a"})
    assert found == (String(strings.pattern("^a")),)


@pytest.mark.parametrize(("schema", "expected"), SCALARS)
def test_scalar_keywords_become_these_types(schema: Any, expected: tuple[Type, ...]) -> None:
    assert alternatives(schema) == expected


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"enum": [1, "a", 1.0, None, True]}, ["1", '"a"', "null", "true"]),
        ({"const": {"b": [1.50, "é\n"], "a": 0.1}}, ['{"b":[1.5,"é\\n"],"a":0.1}']),
        ({"enum": [1, 1.5, "1"], "type": "integer"}, ["1"]),
        ({"enum": [3.0], "type": "integer", **DRAFT_4}, ["3"]),
        ({"enum": ["a", "bb", 7], "minLength": 2, "minimum": 7}, ['"bb"', "7"]),
        (
            {"enum": [{"a": 1}, {"a": "x"}, []], "properties": {"a": {"type": "string"}}},
            ['{"a":"x"}', "[]"],
        ),
        ({"enum": [[1, 1], [1, 2]], "uniqueItems": True}, ["[1,2]"]),
        ({"enum": [1, 2, 3], "const": 2.0}, ["2"]),
        ({"allOf": [{"enum": [1, 2]}, {"enum": [{}, 2, 3]}]}, ["2"]),
        ({"enum": [1, 2, 3], "not": {"const": 2}}, ["1", "3"]),
        ({"enum": [1, 2, 3], "oneOf": [{"minimum": 2}, {"maximum": 2}]}, ["1", "3"]),
        ({"enum": [6, 7], "multipleOf": 0.7}, ["7"]),
        ({"enum": [1e308, 1e16, 5e-7]}, ["1e308", "10000000000000000", "0.0000005"]),
        ({"type": "boolean", "enum": [False]}, ["false"]),
    ],
)
def test_listed_values_are_asked_about_their_siblings(schema: Any, expected: list[str]) -> None:
    assert alternatives(schema) == tuple(map(Literal, expected))


def test_true_is_not_one_and_zero_is_not_false() -> None:
    assert alternatives({"enum": [1, True, 0, False]}) == tuple(
        map(Literal, ["1", "true", "0", "false"])
    )
    with pytest.raises(ValueError, match="no value fits"):
        form({"const": 1, "type": "boolean"})


ARRAYS: list[tuple[Any, Array]] = [
    ({"minItems": 1, "maxItems": 2.0}, Array(min_items=1, max_items=2)),
    ({"items": False}, Array(rest=NEVER, max_items=0)),
    ({"prefixItems": [True], "items": False}, Array((ANYTHING,), NEVER, max_items=1)),
    ({"items": [True], "additionalItems": False}, Array((ANYTHING,), NEVER, max_items=1)),
    ({"additionalItems": False}, Array()),
    ({"uniqueItems": True, "maxItems": 1}, Array(max_items=1)),
    ({"contains": True, "minContains": 2}, Array(contains=(Contains(ANYTHING, 2),))),
    ({"contains": True, "minContains": 0}, Array()),
    ({"maxItems": 3, "allOf": [{"minItems": 1}, {"maxItems": 2}]}, Array(min_items=1, max_items=2)),
    ({"not": {"maxItems": 2}}, Array(min_items=3)),
    ({"not": {"contains": True}}, Array(rest=NEVER, max_items=0)),
]


@pytest.mark.parametrize(("schema", "expected"), ARRAYS)
def test_array_keywords_become_this_array(schema: Any, expected: Array) -> None:
    assert alternatives({"type": "array", **schema}) == (expected,)


def test_unique_items_are_spelled_out() -> None:
    normal = form({"type": "array", "uniqueItems": True, "items": {"type": ["boolean", "null"]}})
    (array,) = normal.alternatives(normal.root)
    assert isinstance(array, Array)
    assert (array.unique, array.max_items) == (True, 3)
    assert set(normal.alternatives(array.rest)) == {
        Literal("true"),
        Literal("false"),
        Literal("null"),
    }


def test_max_contains_brings_the_complement() -> None:
    normal = form({"type": "array", "contains": {"type": "null"}, "maxContains": 1})
    (array,) = normal.alternatives(normal.root)
    assert isinstance(array, Array)
    (contains,) = array.contains
    assert contains.rest is not None
    assert normal.alternatives(contains.node) == (Null(),)
    assert normal.alternatives(contains.rest) == ALL[1:]
    assert normal.both(contains.node, contains.rest) == NEVER


def test_an_array_that_cannot_hold_what_it_must_contain_is_empty() -> None:
    with pytest.raises(ValueError, match="no value fits"):
        form({"type": "array", "items": {"type": "string"}, "contains": {"type": "null"}})
    with pytest.raises(ValueError, match="no value fits"):
        form({"type": "array", "minContains": 3, "contains": {}, "maxItems": 2})
    with pytest.raises(ValueError, match="no value fits"):
        form(
            {
                "type": "array",
                "minItems": 3,
                "items": {"const": 1},
                "contains": {"const": 1},
                "maxContains": 2,
            }
        )


@pytest.mark.parametrize(
    ("draft", "beside"),
    [(DRAFT_4, False), (DRAFT_7, False), ({}, True)],
)
def test_siblings_of_a_reference_count_from_2019_on(draft: dict[str, Any], beside: bool) -> None:
    normal = form(
        {
            "properties": {"a": {"$ref": "#/$defs/x", "minimum": 5}},
            "$defs": {"x": {"type": "integer"}},
            **draft,
        }
    )
    assert fits(normal, read('{"a":9}'))
    assert fits(normal, read('{"a":1}')) is not beside


@pytest.mark.parametrize(
    "reference",
    ["#/$defs/a~1b~0c%25", "#here", "http://x.y/sub.json#/$defs/n", "sub.json#/$defs/n"],
)
def test_references_resolve_by_pointer_anchor_and_identifier(reference: str) -> None:
    schema = {
        "$id": "http://x.y/root.json",
        "type": "array",
        "items": {"$ref": reference},
        "$defs": {
            "a/b~c%": {"type": "null"},
            "anchored": {"$anchor": "here", "type": "null"},
            "sub": {
                "$id": "sub.json",
                "$defs": {"n": {"$ref": "#/$defs/m"}, "m": {"type": "null"}},
            },
        },
    }
    normal = form(schema)
    assert fits(normal, [None])
    assert not fits(normal, read("[1]"))


def test_a_recursive_schema_is_finite() -> None:
    normal = form(
        {"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": False}
    )
    assert fits(normal, read('{"next":{"next":{}}}'))
    assert not fits(normal, read('{"next":{"next":{"nxt":{}}}}'))


@pytest.mark.parametrize(
    "schema",
    [
        False,
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
        {"type": "integer", "minimum": 3, "maximum": 2},
        {"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 4},
        {"type": "integer", "multipleOf": 5, "minimum": 11, "maximum": 14},
        {"type": "number", "minimum": 1, "maximum": 1, "not": {"const": 1.0}},
        {"type": "string", "minLength": 3, "maxLength": 2},
        {"type": "string", "pattern": "^a$", "minLength": 2},
        {"type": "string", "allOf": [{"const": "a"}, {"const": "b"}]},
        {"enum": []},
        {"not": {}},
        {"allOf": [{"type": "string"}, {"type": "null"}]},
        {"oneOf": [{"type": "null"}, {"type": "null"}]},
    ],
)
def test_a_schema_that_nothing_fits_is_an_error(schema: Any) -> None:
    with pytest.raises(ValueError, match="no value fits"):
        form(schema)


def test_an_empty_alternative_is_dropped() -> None:
    schema = {"anyOf": [{"type": "string", "minLength": 2, "maxLength": 1}, {"type": "null"}]}
    assert alternatives(schema) == (Null(),)
