"""What `normalise` refuses: by keyword, value and JSON pointer, within its budget."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import pytest
from normalised import fits, form, read

from logitkit.errors import GrammarError

DRAFT_4 = {"$schema": "http://json-schema.org/draft-04/schema#"}
DRAFT_7 = {"$schema": "http://json-schema.org/draft-07/schema#"}
DRAFT_2020 = {"$schema": "https://json-schema.org/draft/2020-12/schema"}


@pytest.mark.parametrize(
    ("schema", "message", "where"),
    [
        ({"minimum": "3"}, "`minimum` must be a number, not '3'", "#/minimum"),
        ({"minLength": -1}, "`minLength` must be a whole number from 0 on, not -1", "#/minLength"),
        ({"maxItems": 1.5}, "`maxItems` must be a whole number", "#/maxItems"),
        ({"type": "strin"}, "`type` must be one or a list of .*, not 'strin'", "#/type"),
        ({"type": []}, "`type` must be", "#/type"),
        ({"enum": 3}, "`enum` must be a list", "#/enum"),
        ({"required": True}, "`required` must be a list of strings", "#/required"),
        ({"anyOf": []}, "`anyOf` must be a list of at least one schema", "#/anyOf"),
        ({"properties": {"a/b": 3}}, "`a/b` must be a schema", "#/properties/a~1b"),
        ({"items": {"not": 1}}, "`not` must be a schema", "#/items/not"),
        ({"pattern": 5}, "`pattern` must be a regular expression", "#/pattern"),
        ({"multipleOf": 0}, "`multipleOf` must be greater than 0", "#/multipleOf"),
        ({"exclusiveMinimum": 3, **DRAFT_4}, "must be a boolean in draft 4", "#/exclusiveMinimum"),
        ({"exclusiveMinimum": True, **DRAFT_7}, "must be a number", "#/exclusiveMinimum"),
        ({"items": [True], **DRAFT_2020}, "`items` must be a schema in 2020-12", "#/items"),
        ({"const": 1, **DRAFT_4}, "`const` is no keyword of draft 4", "#/const"),
        ({"$schema": "http://example.com/mine"}, "`\\$schema` is", "#/$schema"),
        (
            {"items": {"unevaluatedItems": False}},
            "`unevaluatedItems` cannot be",
            "#/items/unevaluatedItems",
        ),
        ({"$dynamicRef": "#a"}, "`\\$dynamicRef` cannot be enforced", "#/$dynamicRef"),
        ({"$ref": "http://example.com/x"}, "`\\$ref` .* leads outside", "#/$ref"),
        ({"$ref": "#/a/b"}, "there is no 'a' in #", "#/$ref"),
        ({"$ref": "#nowhere"}, "nothing has this anchor", "#/$ref"),
        ({"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "`\\$ref` leads back", "#"),
        (
            {
                "prefixItems": [{"$ref": "#/$defs/a"}],
                "$defs": {"a": {"oneOf": [True, True], "$ref": "#/$defs/a"}},
            },
            "`\\$ref` leads back",
            "#/$defs/a",
        ),
        (
            {
                "properties": {"p": {"allOf": [{"$ref": "#/$defs/a"}]}},
                "$defs": {"a": {"if": {"oneOf": [True, {}], "$ref": "#/$defs/a"}, "else": False}},
            },
            "`\\$ref` leads back",
            "#/$defs/a",
        ),
        ({"type": "string", "format": "regex"}, "`format` 'regex' cannot be enforced", "#/format"),
        (
            {"properties": {"l": {"uniqueItems": True}}},
            "`uniqueItems` can be enforced",
            "#/properties/l/uniqueItems",
        ),
        (
            {"items": {"uniqueItems": True, "type": "array", "items": {"enum": [*range(257)]}}},
            "at most 256 values",
            "#/items/uniqueItems",
        ),
        (
            {"items": {"allOf": [{"not": {"multipleOf": p}} for p in range(3, 29, 2)]}},
            "`multipleOf` names 13 different numbers",
            "#/items",
        ),
        ({"not": {"uniqueItems": True}}, "`not` .*`uniqueItems`", "#/not"),
        (
            {"items": {"minProperties": 2}},
            "`minProperties` 2 .*duplicates",
            "#/items/minProperties",
        ),
        (
            {"properties": {"a": {"not": {"maxProperties": 1}}}},
            "`minProperties` 2",
            "#/properties/a/not",
        ),
    ],
)
def test_errors_name_keyword_value_and_pointer(schema: Any, message: str, where: str) -> None:
    with pytest.raises(GrammarError, match=message) as caught:
        form(schema)
    assert caught.value.where is not None
    assert caught.value.where.startswith(where)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "("},
        {"patternProperties": {"(": True}},
        {"unevaluatedProperties": {"type": "string"}},
        {"$recursiveRef": "#"},
        {"properties": {"\ud800": True}},
        {"const": "\udfff"},
    ],
)
def test_what_cannot_be_enforced_is_refused(schema: Any) -> None:
    with pytest.raises(GrammarError):
        form(schema)


def test_keywords_for_other_types_do_not_refuse() -> None:
    normal = form({"type": "integer", "format": "regex", "uniqueItems": True, "pattern": "(?<=a)b"})
    assert fits(normal, read("3"))


def test_lenient_ignores_exactly_the_named_keywords() -> None:
    schema = {"type": "array", "uniqueItems": True, "maxItems": 2}
    normal = form(schema, lenient={"uniqueItems"})
    assert fits(normal, read("[1,1]"))
    assert not fits(normal, read("[1,1,1]"))
    assert fits(form({"minProperties": 2}, lenient={"minProperties"}), {})
    with pytest.raises(GrammarError, match="`lenient` names 'uniqItems'"):
        form(schema, lenient={"uniqItems"})


def test_formats_without_a_language_are_annotations_on_request() -> None:
    normal = form({"type": "string", "format": "regex"}, strict_formats=False)
    assert fits(normal, "(")
    enforced = form({"type": "string", "format": "date"}, strict_formats=False)
    assert not fits(enforced, "(")


def test_the_complement_of_a_format_leaves_doubtful_strings_out() -> None:
    normal = form({"type": "string", "not": {"format": "hostname"}})
    # Whether a label like `xn--a` is one no regular language tells.
    assert [fits(normal, text) for text in ("a.b", "-", "xn--a")] == [False, True, False]


def nested(keyword: str, depth: int, inner: Any) -> str:
    """The text of `{keyword: ...}` around `inner`; lists for the keywords that take them."""
    left, right = ("[", "]") if keyword.endswith("Of") else ("", "")
    return f'{{"{keyword}":{left}' * depth + json.dumps(inner) + f"{right}}}" * depth


def one_of(depth: int) -> Any:
    if not depth:
        return {"type": "integer"}
    inner = one_of(depth - 1)
    return {"oneOf": [{"type": "object", "properties": {n: inner}, "required": [n]} for n in "ab"]}


def pair(i: int) -> Any:
    return {"properties": {f"a{i}": {"const": i}, f"b{i}": {"const": i}}}


def chain(length: int, link: Any) -> Any:
    links = {f"a{i}": link(f"#/$defs/a{i + 1}") for i in range(length)}
    return {"$ref": "#/$defs/a0", "$defs": {**links, f"a{length}": {"type": "null"}}}


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(one_of(12), id="nested oneOf"),
        pytest.param(nested("not", 300, {"type": "null"}), id="nested not"),
        pytest.param(nested("allOf", 300, {"type": "null"}), id="nested allOf"),
        pytest.param(nested("items", 900, {"type": "null"}), id="nested items"),
        pytest.param(chain(5000, lambda to: {"$ref": to}), id="chain of references"),
        pytest.param(chain(60, lambda to: {"allOf": [{"$ref": to}] * 10}), id="reference bomb"),
        pytest.param(chain(60, lambda to: {"prefixItems": [{"$ref": to}] * 10}), id="wide arrays"),
        pytest.param({"not": {"anyOf": [pair(i) for i in range(20)]}}, id="not anyOf"),
        pytest.param({"enum": [f"{i} of many" for i in range(50_000)]}, id="large enum"),
        pytest.param(
            {"type": "array", "minItems": 10**9, "minContains": 10**9, "contains": {}},
            id="large counts",
        ),
        pytest.param({"not": {"$ref": "#"}}, id="paradox"),
    ],
)
def test_hard_schemas_are_answered_or_refused_in_time(schema: Any) -> None:
    began = time.perf_counter()
    with contextlib.suppress(GrammarError):
        form(schema, seconds=0.5)
    # What is beyond the budget is for reading the schema and for a busy machine.
    assert time.perf_counter() - began < 2
