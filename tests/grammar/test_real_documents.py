"""The demo model writes documents under bounded schemas: every finished one is valid."""

from __future__ import annotations

import json
from typing import Any

import pytest

import logitkit as lk

jsonschema = pytest.importorskip("jsonschema", reason="the oracle: pip install '.[test]'")

NAME = {"type": "string", "minLength": 1, "maxLength": 10}
SCHEMAS: list[dict[str, Any]] = [
    {"type": "integer", "minimum": -50, "maximum": 1200},
    {"type": "number", "minimum": 0.5, "maximum": 2.25, "multipleOf": 0.25},
    {"enum": ["red", 7, None, {"a": [1]}]},
    {"type": "string", "pattern": "^[A-Z][a-z]{2,5}$"},
    {"type": "string", "format": "date"},
    {"type": "string", "format": "uuid"},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 4},
    {"type": "array", "items": {"enum": [1, 2, 3]}, "uniqueItems": True, "maxItems": 3},
    {"type": "array", "prefixItems": [{"const": "x"}, {"type": "null"}], "items": False},
    {
        "type": "object",
        "properties": {"name": NAME, "age": {"type": "integer", "minimum": 0, "maximum": 120}},
        "required": ["name"],
        "additionalProperties": False,
    },
    {
        "type": "object",
        "properties": {"a": {"type": "boolean"}, "b": {"enum": ["u", "v"]}},
        "additionalProperties": False,
        "minProperties": 1,
    },
    {
        "type": "object",
        "patternProperties": {"^k[0-9]$": {"type": "integer", "minimum": 0, "maximum": 9}},
        "additionalProperties": False,
        "maxProperties": 2,
    },
    {"anyOf": [{"type": "null"}, {"type": "integer", "minimum": 0, "maximum": 9}]},
    {"oneOf": [{"const": "a"}, {"type": "array", "items": {"const": 0}, "maxItems": 2}]},
    {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 40}, {"multipleOf": 4}]},
    {"type": "string", "maxLength": 6, "not": {"enum": ["a", "b"]}},
    {
        "type": "object",
        "properties": {"kind": {"enum": ["n", "s"]}, "value": {}},
        "required": ["kind", "value"],
        "additionalProperties": False,
        "if": {"properties": {"kind": {"const": "n"}}},
        "then": {"properties": {"value": {"type": "integer", "minimum": 1, "maximum": 3}}},
        "else": {"properties": {"value": {"type": "string", "maxLength": 4}}},
    },
    {
        "$ref": "#/$defs/tree",
        "$defs": {
            "tree": {
                "type": "object",
                "properties": {
                    "v": {"type": "integer", "minimum": 0, "maximum": 9},
                    "next": {"type": "array", "items": {"$ref": "#/$defs/leaf"}, "maxItems": 2},
                },
                "required": ["v", "next"],
                "additionalProperties": False,
            },
            "leaf": {"type": "object", "additionalProperties": False},
        },
    },
    {
        "type": "object",
        "properties": {"x": {"type": "boolean"}, "y": {"type": "boolean"}},
        "dependentRequired": {"x": ["y"]},
        "additionalProperties": False,
    },
    {"type": "array", "items": {"enum": [0, 5]}, "contains": {"const": 5}, "maxItems": 3},
]


def documents(smollm2: Any, temperature: float, count: int) -> int:
    """Write `count` documents of each schema, in batches of 8 different ones; how many ended."""
    model, tokenizer = smollm2
    wanted = [(i, seed) for seed in range(count) for i in range(len(SCHEMAS))]
    finished = 0
    for begin in range(0, len(wanted), 8):
        some = wanted[begin : begin + 8]
        inputs = tokenizer(["Here is some JSON:"] * len(some), return_tensors="pt")
        params = [
            lk.SamplingParams(
                temperature=temperature, sampling_seed=100 * seed + i, max_new_tokens=80,
                json_schema=lk.JsonSchema(SCHEMAS[i], whitespace="compact"),
            )
            for i, seed in some
        ]  # fmt: skip
        out = lk.generate(
            model, **inputs, params=params, tokenizer=tokenizer, return_dict_in_generate=True
        )
        for (i, _), text, reason in zip(some, out.texts, out.finish_reasons, strict=True):
            if reason != "eos":
                continue
            validator = jsonschema.Draft202012Validator(
                SCHEMAS[i], format_checker=jsonschema.FormatChecker()
            )
            validator.validate(json.loads(text))
            finished += 1
    return finished


@pytest.mark.network
def test_the_model_writes_valid_documents_in_batches_of_different_grammars(smollm2: Any) -> None:
    assert documents(smollm2, 1.0, count=1) >= 18


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_two_hundred_documents_are_valid(smollm2: Any, temperature: float) -> None:
    assert documents(smollm2, temperature, count=5) >= 95
