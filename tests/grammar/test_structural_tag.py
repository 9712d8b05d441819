"""Structural tags: what each format means, where text may go, and how embedded machines run."""

from __future__ import annotations

import json
from typing import Any

import pytest
from toy import SlowMachine, ToyVocabulary, toy_vocabulary

from logitkit.errors import GrammarError
from logitkit.grammar.machine import Call
from logitkit.grammar.spec import StructuralTag
from logitkit.grammar.structural_tag import build

VOCABULARY = toy_vocabulary()
Format = dict[str, Any]


def slow(structure: dict[str, Any] | str, vocabulary: ToyVocabulary = VOCABULARY) -> SlowMachine:
    return SlowMachine(build(StructuralTag(structure), vocabulary.context()))


def of(form: Format) -> SlowMachine:
    return slow({"type": "structural_tag", "format": form})


def const(value: str) -> Format:
    return {"type": "const_string", "value": value}


def tag(begin: str, content: Format, end: str | list[str]) -> Format:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def several(kind: str, *elements: Format) -> Format:
    return {"type": kind, "elements": list(elements)}


def triggered(triggers: list[str], tags: list[Format], **options: Any) -> Format:
    return {"type": "triggered_tags", "triggers": triggers, "tags": tags, **options}


TEXT: Format = {"type": "any_text"}
INTEGER: Format = {"type": "json_schema", "json_schema": {"type": "integer"}}
PARENTHESES: Format = {"type": "grammar", "grammar": 'root ::= "(" root ")" | "x"'}
TAGS = [tag("<f=a>", const("A"), "</f>"), tag("<f=b>", const("B"), "</f>")]


@pytest.mark.parametrize(
    ("form", "accepted", "refused"),
    [
        (const("ab"), ["ab"], ["", "a", "abc"]),
        ({"type": "regex", "pattern": "a+b?"}, ["a", "aab"], ["", "b"]),
        (PARENTHESES, ["x", "((x))"], ["", "((x)"]),
        (INTEGER, ["12", "-3"], ["", "x", "1.5"]),
        (TEXT, ["", "a", "日本\n"], []),
        ({**TEXT, "excludes": ["ab", "é"]}, ["", "aacb", "c"], ["aab", "é", "aé"]),
        (several("sequence", const("a"), INTEGER, const("b")), ["a12b"], ["ab", "12b", "a12"]),
        (several("or", const("a"), INTEGER, const("")), ["a", "7", ""], ["a7"]),
        ({"type": "optional", "content": const("ab")}, ["", "ab"], ["abab"]),
        ({"type": "plus", "content": const("ab")}, ["ab", "abab"], ["", "a"]),
        ({"type": "star", "content": INTEGER}, ["", "1", "12-3"], ["x"]),
        ({"type": "repeat", "min": 1, "max": 2, "content": const("a")}, ["a", "aa"], ["", "aaa"]),
        ({"type": "repeat", "min": 2, "max": -1, "content": INTEGER}, ["12", "1-2"], ["", "1"]),
        (tag("<t>", INTEGER, "</t>"), ["<t>1</t>"], ["<t></t>", "<t>1", "1</t>"]),
        (tag("<t>", INTEGER, ["</t>", "."]), ["<t>1</t>", "<t>1."], ["<t>1"]),
        (several("sequence", TEXT, const("END")), ["END", "aEND", "aENDbEND"], ["", "ENDb"]),
        # Free text at the end of a tag stops at the first `end`.
        (tag("<t>", TEXT, "</t>"), ["<t></t>", "<t>a<</t>"], ["<t>a</t>b</t>", "<t>a"]),
        (tag("<t>", several("sequence", INTEGER, TEXT), ["</t>", "!"]), ["<t>1a!"], ["<t>1!b</t>"]),
        (tag("<t>", several("or", const("q"), TEXT), "</t>"), ["<t>q</t>"], ["<t></t></t>"]),
        (tag("<t>", TEXT, ["", "!"]), ["<t>", "<t>a", "<t>a!"], ["<t>a!b"]),
        (
            {"type": "tags_with_separator", "tags": TAGS, "separator": ","},
            ["", "<f=a>A</f>", "<f=a>A</f>,<f=b>B</f>,<f=b>B</f>"],
            ["<f=a>A</f>,", ",", "<f=a>A</f><f=b>B</f>"],
        ),
        (
            {"type": "tags_with_separator", "tags": TAGS, "separator": ",", "at_least_one": True,
             "stop_after_first": True},
            ["<f=a>A</f>"],
            ["", "<f=a>A</f>,<f=b>B</f>"],
        ),
    ],
)  # fmt: skip
def test_formats_mean_what_they_say(form: Format, accepted: list[str], refused: list[str]) -> None:
    machine = of(form)
    assert [t for t in accepted if not machine.accepts(t.encode())] == []
    assert [t for t in refused if machine.accepts(t.encode())] == []


@pytest.mark.parametrize(
    ("some", "once", "accepted", "refused"),
    [
        (
            False,
            False,
            ["", "x<", "<f", "x<f=a>A</f>y<f=b>B</f>z", "<<f=a>A</f>"],
            ["<f=", "<f=c>"],
        ),
        (False, True, ["", "x", "x<f=a>A</f>"], ["<f=a>A</f>y", "<f=a>A</f><f=b>B</f>"]),
        (True, False, ["<f=a>A</f>", "<f=a>A</f>y<f=b>B</f>"], ["", "x", "x<f=a>A</f>"]),
        (True, True, ["<f=a>A</f>"], ["", "x<f=a>A</f>", "<f=a>A</f>y", "<f=a>A</f><f=b>B</f>"]),
    ],
)
def test_triggered_tags(some: bool, once: bool, accepted: list[str], refused: list[str]) -> None:
    machine = of(triggered(["<f="], TAGS, at_least_one=some, stop_after_first=once))
    assert [t for t in accepted if not machine.accepts(t.encode())] == []
    assert [t for t in refused if machine.accepts(t.encode())] == []
    assert not machine.machine.has_stack  # free text and triggers are a regular language


def test_a_trigger_inside_a_longer_character_run_is_found_by_its_bytes() -> None:
    full = "\uff01"
    machine = of(triggered([full], [tag(full * 3, const("A"), "."), tag(full + "x", TEXT, ".")]))
    for text in (full * 3 + "A.", "日" + full + "xq." + full * 3 + "A.", "\uff02"):
        assert machine.accepts(text.encode())
    for text in (full, full * 2 + "x", full * 3 + "B"):
        assert not machine.accepts(text.encode())
    assert not machine.prefix_alive(b"\xef\xbc\x81y")
    assert not machine.prefix_alive(b"a\xff") and not machine.prefix_alive(b"\xc0\x80")


def test_of_two_triggers_that_end_together_the_longer_counts() -> None:
    machine = of(triggered(["ab", "b"], [tag("ab1", const("A"), "."), tag("b2", const("B"), ".")]))
    assert machine.accepts(b"ab1A.xb2B.") and not machine.prefix_alive(b"ab2")


def test_free_text_of_triggered_tags_ends_with_the_tag_around_it() -> None:
    machine = of(tag("<t>", triggered(["<f="], TAGS, excludes=["#"]), "</t>"))
    assert machine.accepts(b"<t>x<f=a>A</f>y</t>") and machine.accepts(b"<t></t>")
    assert not machine.accepts(b"<t>x</t>y</t>") and not machine.prefix_alive(b"<t>x#")


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 1000},
        "more": {"type": "array", "items": {"$ref": "#"}},
    },
    "required": ["name"],
    "additionalProperties": False,
}
LEGACY = {
    "structures": [
        {"begin": "<tool_call>", "schema": SCHEMA, "end": "</tool_call>"},
        {"begin": "<fn=a>", "schema": {"type": "integer"}, "end": "</fn>"},
    ],
    "triggers": ["<tool_call>", "<fn="],
}


@pytest.mark.parametrize("structure", [LEGACY, json.dumps(LEGACY)])
def test_the_legacy_form_is_triggered_tags_around_schemas(structure: Any) -> None:
    machine = slow(structure)
    call = '<tool_call>{"name": "é", "more": [{"name": ""}, {"name": "x", "more": []}]}</tool_call>'
    for text in ("", "hi", call, f"hi {call} and <fn=a>12</fn>!"):
        assert machine.accepts(text.encode())
    for text in ("<tool_call>", call[:-1], call.replace("name", "nome"), "<fn=a></fn>", "<fn=b>"):
        assert not machine.accepts(text.encode())


def test_bodies_of_a_schema_are_calls_so_their_states_are_shared() -> None:
    machine = slow(LEGACY)
    document = '<tool_call>{"name": "' + "x" * 900
    at = machine.run(document.encode())
    assert at is not None and len(at.stack) >= 1
    calls = [e for e in machine.expansions.values() for m in e.moves if isinstance(m[2], Call)]
    assert calls
    nested = '<tool_call>{"name": "", "more": [' + '{"name": "", "more": [' * 40
    assert machine.prefix_alive(nested.encode())
    before = len(machine.expansions)
    assert machine.prefix_alive((nested + '{"name": "", "more": [' * 40).encode())
    assert len(machine.expansions) == before


def test_two_documents_may_be_read_at_once() -> None:
    """Where bytes fit two embedded machines, both run with their stacks inside the state."""
    first = {"type": "array", "items": {"type": "string", "maxLength": 3}}
    second = {"type": "array", "items": {"type": ["string", "integer"]}, "maxItems": 2}
    form = several(
        "or",
        several("sequence", {"type": "json_schema", "json_schema": first}, const("A")),
        several("sequence", {"type": "json_schema", "json_schema": second}, const("B")),
    )
    machine = of(form)
    both = '["a", "b"]'
    assert machine.accepts(f"{both}A".encode()) and machine.accepts(f"{both}B".encode())
    assert machine.accepts(b'["a", "b", "c"]A') and not machine.prefix_alive(b'["a", "b", "c"]B')
    assert machine.accepts(b'["abcd", 1]B') and not machine.prefix_alive(b'["abcd"]A')


def test_counters_of_two_documents_read_at_once_are_kept_apart() -> None:
    def many(most: int) -> Format:
        items = {"type": "array", "items": {"type": "string"}, "maxItems": most}
        return {"type": "json_schema", "json_schema": items}

    forms = (several("sequence", many(most), const(end)) for most, end in ((700, "A"), (702, "B")))
    machine = of(several("or", *forms))
    for count, ends in ((699, "AB"), (700, "AB"), (701, "B"), (702, "B"), (703, "")):
        document = "[" + ", ".join(['"x"'] * count) + "]"
        found = [end for end in "AB" if machine.accepts((document + end).encode())]
        assert "".join(found) == ends, count


def test_a_regex_with_a_large_bound_goes_on_where_it_may_end() -> None:
    machine = of(several("sequence", {"type": "regex", "pattern": "[a-z]{2,300}"}, INTEGER))
    for length, good in ((1, False), (2, True), (299, True), (300, True), (301, False)):
        assert machine.accepts(b"a" * length + b"12") == good


def test_control_tokens_stand_for_begin_end_and_trigger() -> None:
    machine = slow(LEGACY)
    (call,) = VOCABULARY.controls["<tool_call>"]
    end, other_end = VOCABULARY.controls["</tool_call>"]
    (unrelated,) = VOCABULARY.controls["[INST]"]
    at = machine.run(b"hi <tool")
    assert machine.take(at, unrelated, VOCABULARY) is None
    assert machine.take(at, end, VOCABULARY) is None
    at = machine.take(at, call, VOCABULARY)
    assert at == machine.run(b"<tool_call>")
    at = machine.run(b'{"name": "<tool_call>"}', at)
    assert at is not None and machine.take(at, call, VOCABULARY) is None
    assert machine.take(at, end, VOCABULARY) == machine.take(at, other_end, VOCABULARY)
    assert machine.is_final(machine.take(at, end, VOCABULARY))
    assert machine.is_final(machine.run(b"</tool_call>", at))


def test_a_control_token_inside_a_begin_is_taken_too() -> None:
    form = triggered(["to [INST]"], [tag("to [INST]get<tool_call>", INTEGER, ";")])
    machine = of(form)
    (inst,), (call,) = VOCABULARY.controls["[INST]"], VOCABULARY.controls["<tool_call>"]
    at = machine.run(b"go to ")
    assert machine.take(machine.run(b"go tu "), inst, VOCABULARY) is None
    at = machine.take(at, inst, VOCABULARY)
    assert at == machine.run(b"to [INST]")
    at = machine.take(machine.run(b"get", at), call, VOCABULARY)
    assert machine.is_final(machine.run(b"5;", at))
    assert machine.accepts(b"x to [INST]get<tool_call>5;")


@pytest.mark.parametrize(
    ("structure", "where", "message"),
    [
        ({}, "/", "'format' is missing"),
        ({"type": "other", "format": TEXT}, "/type", "structural_tag"),
        ({"format": TEXT, "extra": 1}, "/extra", "unknown member"),
        ({"format": 3}, "/format", "expected an object"),
        ({"format": {"type": "nothing"}}, "/format/type", "unknown format"),
        ({"format": {"type": "token", "token": 3}}, "/format/type", "not supported"),
        ({"format": {**TEXT, "max_chars": 5}}, "/format/max_chars", "not supported"),
        ({"format": {**TEXT, "max_token": 5}}, "/format/max_token", "unknown member"),
        ({"format": {**TEXT, "excludes": [""]}}, "/format/excludes/0", "not empty"),
        ({"format": {**INTEGER, "style": "qwen_xml"}}, "/format/style", "not supported"),
        ({"format": {**PARENTHESES, "syntax": "lark"}}, "/format/syntax", "not supported"),
        ({"format": several("sequence")}, "/format/elements", "not be empty"),
        ({"format": several("or", TEXT, const(3))}, "/format/elements/1/value", "a string"),  # type: ignore[arg-type]
        ({"format": tag("a", TEXT, {"type": "token"})}, "/format/end", "token as `end`"),  # type: ignore[arg-type]
        ({"format": const("")}, None, "only the empty text"),
        ({"format": triggered(["x"], TAGS)}, "/format/tags/0/begin", "no trigger"),
        ({"format": triggered(["<f=", "y"], TAGS)}, "/format/triggers/1", "no tag begins"),
        ({"format": triggered([""], TAGS)}, "/format/triggers/0", "not empty"),
        ({"format": triggered(["<f="], TAGS, excludes=["f"])}, "/format/triggers/0", "excluded"),
        ({"format": {"type": "repeat", "min": 2, "max": 1, "content": TEXT}}, "/format/max", "min"),
        (
            {"format": tag("a", {"type": "grammar", "grammar": "root ::= b"}, "")},
            "/format/content/grammar, line 1, column 10",
            "'b' is not defined",
        ),
        (
            {"format": tag("a", {"type": "grammar", "grammar": "root ::= root"}, "")},
            "/format/content/grammar",
            "derives no text",
        ),
        ({"format": {"type": "regex", "pattern": "("}}, "/format/pattern", ""),
        ({**LEGACY, "triggers": []}, "/triggers", "not be empty"),
        (
            {"structures": [{"begin": "a", "schema": {"type": "x"}, "end": ""}], "triggers": ["a"]},
            "/structures/0/schema",
            "",
        ),
    ],
)
def test_errors_say_where(structure: Any, where: str | None, message: str) -> None:
    with pytest.raises(GrammarError) as caught:
        slow(structure)
    assert message in str(caught.value)
    found = caught.value.where
    assert found == where or (found is not None and where and found.startswith(where))


def test_formats_nest_to_a_limit() -> None:
    form = const("a")
    for _ in range(120):
        form = {"type": "optional", "content": form}
    with pytest.raises(GrammarError, match="nested 100 deep"):
        of(form)


def test_texts_that_no_token_spells_are_errors() -> None:
    poor = toy_vocabulary(missing=b"Z")
    for form, where in (
        (const("aZ"), "/format/value"),
        (tag("Z", TEXT, ""), "/format/begin"),
        (tag("a", TEXT, ["b", "Z"]), "/format/end"),
    ):
        with pytest.raises(GrammarError, match="0x5A") as caught:
            slow({"format": form}, poor)
        assert caught.value.where == where
