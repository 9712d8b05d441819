"""`build` on whole schemas: real ones with their instances, and documents made at random."""

from __future__ import annotations

import json
import lzma
from random import Random
from typing import Any

import pytest

from logitkit.errors import GrammarError
from logitkit.grammar.json_schema import build
from logitkit.grammar.json_schema.normalise import normalise
from logitkit.grammar.machine import Budget
from logitkit.grammar.spec import JsonSchema
from tests.grammar.json_walks import context, document
from tests.grammar.normalised import fits, read
from tests.grammar.shared_data import shared
from tests.grammar.toy import SlowMachine

SCHEMAS: dict[str, Any] = {
    "person": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 8},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "tags": {"type": "array", "items": {"enum": ["a", "b", 3]}, "maxItems": 3},
        },
        "required": ["name", "age"],
    },
    "closed": {
        "type": "object",
        "properties": {"price": {"type": "number", "multipleOf": 0.25, "exclusiveMinimum": 0}},
        "patternProperties": {"^x-": {"type": "boolean"}, "y$": {"type": ["boolean", "null"]}},
        "additionalProperties": False,
        "minProperties": 1,
    },
    "tree": {
        "type": "object",
        "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "v": {"const": {"q": [1]}}},
        "required": ["v"],
        "additionalProperties": False,
    },
    "union": {
        "oneOf": [
            {"properties": {"kind": {"const": "a"}, "n": {"type": "integer"}}, "required": ["n"]},
            {"properties": {"kind": {"const": "b"}, "s": {"format": "date"}}, "required": ["s"]},
        ],
        "type": "object",
        "required": ["kind"],
    },
    "dependent": {
        "type": "object",
        "properties": {"card": {"type": "integer"}, "address": {"type": "null"}, "c": {}},
        "dependentRequired": {"card": ["address"]},
        "maxProperties": 3,
        "propertyNames": {"maxLength": 7},
    },
    "contains": {
        "type": "array",
        "prefixItems": [{"type": "string"}, True],
        "items": {"type": ["integer", "null"]},
        "contains": {"type": "integer", "minimum": 5},
        "minContains": 2,
        "maxContains": 3,
        "maxItems": 6,
    },
    "unique": {"type": "array", "items": {"enum": [1, 2, "z", None]}, "uniqueItems": True},
    "not": {"type": ["object", "integer"], "not": {"properties": {"a": {"type": "string"}}}},
}


def machine(schema: Any, **options: Any) -> SlowMachine:
    return SlowMachine(build(JsonSchema(schema, **options), context()))


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_document_that_is_written_is_valid(name: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = SCHEMAS[name]
    form = normalise(JsonSchema(schema), Budget())
    validator = jsonschema.Draft202012Validator(
        schema, format_checker=jsonschema.FormatChecker(["date"])
    )
    slow = machine(schema)
    random = Random(name)
    for length in (0, 0, 5, 10, 20, 20, 40, 40, 80, 120):
        text = document(slow, random, length)
        assert slow.accepts(text.encode())
        assert fits(form, read(text)), text
        assert validator.is_valid(json.loads(text)), text


def test_documents_with_an_indent_are_spelled_as_json_dumps_does() -> None:
    item = {"enum": ["x", 1, {}, [], {"y": [None]}]}
    properties = {"a": {"type": "array", "items": item, "maxItems": 3}, "b": {"$ref": "#"}}
    slow = machine(
        {"type": "object", "properties": properties, "additionalProperties": False}, whitespace=2
    )
    random = Random(5)
    for length in (0, 0, 10, 10, 20, 40, 60, 80, 100, 200):
        text = document(slow, random, length)
        assert json.dumps(json.loads(text), indent=2) == text


def test_any_object_mode() -> None:
    slow = machine("$$ANY$$")
    assert slow.accepts(b'{"a": [1, {"b": "c"}], "d": null}')
    assert not slow.prefix_alive(b"[") and not slow.prefix_alive(b"1")


def test_an_unsatisfiable_schema_is_refused() -> None:
    with pytest.raises(GrammarError):
        machine({"type": "string", "enum": [1]})


@pytest.mark.parametrize(
    ("name", "count"),
    [("core300", 60), ("dev700", 60), ("corner_dev", 120)],
)
def test_real_instances_are_judged_right(name: str, count: int) -> None:
    """No invalid instance is accepted, and hardly a valid one refused (refusals are counted apart).

    Run on the whole of the files by `tests.benchmarks.maskbench`.
    """
    path = shared(f"maskbench_{name}.jsonl.xz")
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    # Small schemas, so that the test is quick; their order in the file is random.
    rows = [row for row in rows if len(json.dumps(row["schema"])) < 4000][:count]
    wrong: list[str] = []
    late: list[str] = []
    refused = 0
    for row in rows:
        try:
            slow = machine(row["schema"])
        except GrammarError:
            refused += 1
            continue
        for test in row["tests"]:
            text = json.dumps(test["data"], ensure_ascii=False)
            if slow.accepts(text.encode()) != test["valid"]:
                (late if test["valid"] else wrong).append(f"{row['id']}: {text[:80]}")
    assert wrong == []
    assert len(late) <= 2, late
    assert refused <= count // 20 + 2
