"""Objects in the normal form: members, their order, presence, patterns, and complements."""

from __future__ import annotations

from typing import Any

import pytest
from normalised import fits, form, read

from logitkit.grammar import strings
from logitkit.grammar.json_schema.types import ANYTHING, NEVER, Boolean, Null, Object


def objects(schema: Any) -> list[Object]:
    normal = form({"type": "object", **schema})
    found = normal.alternatives(normal.root)
    assert all(isinstance(item, Object) for item in found)
    return [item for item in found if isinstance(item, Object)]


def only(schema: Any) -> Object:
    (found,) = objects(schema)
    return found


def names(obj: Object) -> list[str]:
    return [name for name, _ in obj.properties]


def accepts(schema: Any, *texts: str) -> list[bool]:
    normal = form({"type": "object", **schema})
    return [fits(normal, read(text)) for text in texts]


def test_declared_names_come_first_then_required_ones() -> None:
    schema = {"required": ["z", "b", "y"], "properties": {"b": True, "a": True}}
    assert names(only(schema)) == ["b", "a", "z", "y"]


def test_members_of_merged_schemas_keep_their_order() -> None:
    schema = {
        "properties": {"own": True},
        "allOf": [{"properties": {"c": True, "own": True, "a": True}}, {"required": ["x", "b"]}],
        "anyOf": [{"properties": {"b": True, "a": True}}],
    }
    assert names(only(schema)) == ["own", "c", "a", "b", "x"]


def test_an_optional_member_without_values_is_forbidden_and_a_required_one_empties() -> None:
    assert only({"properties": {"a": {"not": {}}, "b": True}}).properties == (
        ("a", NEVER),
        ("b", ANYTHING),
    )
    with pytest.raises(ValueError, match="no value fits"):
        form({"type": "object", "properties": {"a": False}, "required": ["a"]})


def test_a_member_that_must_contain_itself_is_forbidden() -> None:
    schema = {
        "properties": {"a": {"$ref": "#/$defs/endless"}},
        "$defs": {
            "endless": {
                "type": "object",
                "properties": {"a": {"$ref": "#/$defs/endless"}},
                "required": ["a"],
            }
        },
    }
    assert only(schema).properties == (("a", NEVER),)


def test_patterns_join_the_members_that_they_match() -> None:
    normal = form(
        {
            "type": "object",
            "properties": {"ab": {"type": ["null", "string"]}},
            "patternProperties": {"^a": {"type": ["null", "boolean"]}},
        }
    )
    (obj,) = normal.alternatives(normal.root)
    assert isinstance(obj, Object)
    assert normal.alternatives(dict(obj.properties)["ab"]) == (Null(),)
    assert normal.alternatives(normal.other(obj, frozenset({0}))) == (Null(), Boolean())
    assert normal.other(obj, frozenset()) == ANYTHING


def test_additional_properties_of_one_schema_reach_the_patterns_of_another() -> None:
    schema = {
        "allOf": [
            {
                "patternProperties": {"^a": {"type": "integer"}},
                "additionalProperties": {"type": "string"},
            },
            {
                "patternProperties": {"b$": {"minimum": 3}},
                "additionalProperties": {"maximum": 9, "maxLength": 1},
            },
        ]
    }
    # a: integer up to 9; b: string; ab: integer from 3; others: string of one character
    texts = ('{"a":9}', '{"a":10}', '{"b":"xx"}', '{"b":5}', '{"ab":3}', '{"ab":2}')
    assert accepts(schema, *texts) == [True, False, True, False, True, False]
    assert accepts(schema, '{"c":"x"}', '{"c":"xx"}', '{"c":1}') == [True, False, False]


def test_a_member_that_one_schema_declares_follows_the_others_of_the_other() -> None:
    open_one, closed = {"properties": {"a": True}}, {"additionalProperties": {"type": "integer"}}
    for both in ([open_one, closed], [closed, open_one]):
        assert accepts({"allOf": both}, '{"a":1}', '{"a":"x"}', '{"b":"x"}') == [True, False, False]
    strict = {"properties": {"b": True}, "additionalProperties": False}
    for both in ([open_one, strict], [strict, open_one]):
        assert accepts({"allOf": both}, '{"b":1}', '{"a":1}') == [True, False]


def test_property_names_forbid_declared_members_too() -> None:
    obj = only({"properties": {"a": True, "bb": True}, "propertyNames": {"maxLength": 1}})
    assert obj.properties == (("a", ANYTHING), ("bb", NEVER))
    assert obj.names == strings.length(0, 1)
    with pytest.raises(ValueError, match="no value fits"):
        form({"type": "object", "required": ["bb"], "propertyNames": {"maxLength": 1}})


def test_dependencies_become_clauses() -> None:
    assert only({"dependentRequired": {"a": ["b", "c"]}}).clauses == (
        frozenset({("a", False), ("b", True)}),
        frozenset({("a", False), ("c", True)}),
    )
    forced = only({"dependentRequired": {"a": ["b"], "b": ["c"]}, "required": ["a"]})
    assert forced.required == {"a", "b", "c"}
    assert forced.clauses == ()
    assert only({"dependencies": {"a": ["b"]}, "properties": {"b": False}}).properties == (
        ("b", NEVER),
        ("a", NEVER),
    )


def test_a_dependent_schema_counts_where_its_member_is() -> None:
    for keyword in ("dependentSchemas", "dependencies"):
        schema = {keyword: {"a": {"properties": {"b": {"type": "null"}}, "required": ["b"]}}}
        assert accepts(schema, "{}", '{"b":1}', '{"a":1}', '{"a":1,"b":1}', '{"a":1,"b":null}') == [
            True, True, False, False, True,
        ]  # fmt: skip


def test_required_alternatives_become_one_object_with_a_clause() -> None:
    obj = only(
        {"anyOf": [{"required": ["a", "b"]}, {"required": ["a", "c"]}], "properties": {"a": True}}
    )
    assert obj.required == {"a"}
    assert obj.clauses == (frozenset({("b", True), ("c", True)}),)


def test_one_of_required_names_forbids_the_other() -> None:
    found = objects({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]})
    assert [(obj.required, dict(obj.properties)) for obj in found] == [
        (frozenset({"a"}), {"a": ANYTHING, "b": NEVER}),
        (frozenset({"b"}), {"a": NEVER, "b": ANYTHING}),
    ]


def test_one_of_with_a_discriminator_needs_no_complement() -> None:
    options = [
        {"properties": {"kind": {"const": kind}, kind: True}, "required": ["kind"]}
        for kind in "xyz"
    ]
    found = objects({"oneOf": options})
    assert [names(obj) for obj in found] == [["kind", "x"], ["kind", "y"], ["kind", "z"]]


def test_not_reaches_members_and_their_absence() -> None:
    schema = {
        "not": {"required": ["a"], "properties": {"a": {"type": "null"}, "b": {"type": "null"}}}
    }
    assert accepts(schema, '{"a":null}', "{}", '{"a":1}', '{"a":null,"b":1}') == [
        False,
        True,
        True,
        True,
    ]


def test_not_reaches_undeclared_members() -> None:
    schema = {
        "properties": {"d": True},
        "not": {"properties": {"a": True}, "additionalProperties": {"type": "null"}},
    }
    texts = ("{}", '{"a":1}', '{"x":null}', '{"x":1}', '{"d":1}', '{"d":null}')
    assert accepts(schema, *texts) == [False, False, False, True, True, False]
    by_declared, by_other = objects(schema)
    assert by_declared.required == {"d"} and not by_declared.some
    ((language, _),) = by_other.some
    assert [strings.matches(language, name) for name in ("a", "d", "x")] == [False, False, True]


def test_not_of_listed_names_asks_for_one_of_them() -> None:
    found = objects({"not": {"propertyNames": {"not": {"enum": ["p", "q"]}}}})
    assert [obj.required for obj in found] == [{"p"}, {"q"}]
    assert not any(obj.some for obj in found)


def test_not_of_a_literal_object() -> None:
    schema = {"not": {"const": {"a": 1, "b": [2]}}}
    texts = (
        '{"a":1,"b":[2]}',
        '{"b":[2],"a":1}',
        '{"a":1}',
        '{"a":1,"b":[2],"c":0}',
        '{"a":1,"b":[3]}',
    )
    assert accepts(schema, *texts) == [False, False, True, True, True]


def test_min_properties_counts_one_undeclared_member() -> None:
    assert only({"minProperties": 1}).min_properties == 1
    assert only({"minProperties": 2, "required": ["a"]}).min_properties == 2
    closed = {"properties": {"a": True, "b": True}, "additionalProperties": False}
    assert only({"minProperties": 2, **closed}).min_properties == 2
    with pytest.raises(ValueError, match="no value fits"):
        form({"type": "object", "minProperties": 3, **closed})


def test_a_recursive_choice_with_overlap_is_exact() -> None:
    schema = {
        "oneOf": [
            {"required": ["next"], "properties": {"next": {"$ref": "#"}}},
            {"required": ["value"], "properties": {"value": {"type": "integer"}}},
        ]
    }
    texts = (
        '{"value":1}',
        '{"next":{"value":1}}',
        '{"next":{"value":1},"value":1}',
        '{"next":{},"value":1}',
        '{"next":{}}',
    )
    assert accepts(schema, *texts) == [True, True, False, True, False]
