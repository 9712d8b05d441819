"""Specs, and `compile_grammar`: what is kept, what is shared, and what is refused."""

from __future__ import annotations

import dataclasses
import pickle
import sys
import threading
import time
import types
from typing import Any

import pytest
from toy import toy_vocabulary
from toy_machines import words
from typing_extensions import TypedDict

from logitkit.errors import GrammarError
from logitkit.grammar import compile as compile_module
from logitkit.grammar.compile import clear_cache, compile_grammar, compile_grammars
from logitkit.grammar.machine import Budget, Context, Machine, check_time, is_timed
from logitkit.grammar.spec import Choice, Ebnf, JsonSchema, Regex, Spec, StructuralTag

VOCABULARY = toy_vocabulary()


@dataclasses.dataclass
class Point:
    x: int


class Named(TypedDict):
    name: str


class Builder(types.ModuleType):
    """A front end that takes `Choice` and counts what it built."""

    def __init__(self) -> None:
        super().__init__("toy_front_end")
        self.built: list[tuple[Spec, Context]] = []

    def build(self, spec: Choice, context: Context) -> Machine:
        self.built.append((spec, context))
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            check_time()
        if spec.options == ("wrong",):
            raise GrammarError("this is wrong", "line 1")
        if spec.options == ("empty",):
            return words()
        return words(*(option.encode() for option in spec.options))


@pytest.fixture
def front_end(monkeypatch: pytest.MonkeyPatch) -> Builder:
    builder = Builder()
    monkeypatch.setitem(sys.modules, "toy_front_end", builder)
    monkeypatch.setitem(compile_module.BUILDERS, Choice, ("toy_front_end", "build"))
    clear_cache()
    return builder


def test_equal_questions_get_the_same_grammar(front_end: Builder) -> None:
    first = compile_grammar(Choice(["a", "ab"]), VOCABULARY)
    assert compile_grammar(Choice(("a", "ab")), toy_vocabulary()) is first
    assert compile_grammar(Choice(["ab", "a"]), VOCABULARY) is not first
    assert compile_grammar(Choice(["a", "ab"]), toy_vocabulary(size_over=40)) is not first
    assert compile_grammar(Choice(["a", "ab"]), VOCABULARY, Budget(states=7)) is not first
    assert len(front_end.built) == 4
    assert front_end.built[0][1].horizon == 300 and all(front_end.built[0][1].alphabet)
    assert first.matcher().accept(VOCABULARY.tokenize(b"a")[0])
    assert first.program.expanded <= 2


def test_threads_that_ask_the_same_wait_for_one_answer(front_end: Builder) -> None:
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append(compile_grammar(Choice(["q"]), VOCABULARY)))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(front_end.built) == 1 and len(found) == 6 and len(set(map(id, found))) == 1


def test_several_at_once_keep_their_order(front_end: Builder) -> None:
    specs = [Choice([text]) for text in ("a", "b", "a", "c")]
    grammars = compile_grammars(specs, VOCABULARY)
    assert [grammar.spec for grammar in grammars] == specs
    assert grammars[0] is grammars[2] and compile_grammars([], VOCABULARY) == []
    with pytest.raises(GrammarError, match="this is wrong"):
        compile_grammars([Choice(["a"]), Choice(["wrong"])], VOCABULARY)


def test_errors_are_raised_every_time_and_not_kept(front_end: Builder) -> None:
    for options, message in ((["wrong"], r"this is wrong \(at line 1\)"), (["empty"], "no text")):
        for _ in range(2):
            with pytest.raises(GrammarError, match=message):
                compile_grammar(Choice(options), VOCABULARY)
    with pytest.raises(GrammarError, match=r"needs more than `seconds`=0.001"):
        compile_grammar(Choice(["slow"]), VOCABULARY, Budget(seconds=0.001))
    assert len(front_end.built) == 5 and not compile_module._running


def test_the_clock_runs_while_compiling_only(front_end: Builder) -> None:
    compile_grammar(Choice(["late"]), VOCABULARY, Budget(seconds=0.2))
    assert not is_timed()
    with pytest.raises(GrammarError, match="this is wrong"):
        compile_grammar(Choice(["wrong"]), VOCABULARY, Budget(seconds=0.2))
    assert not is_timed()


def test_the_cache_drops_what_was_used_longest_ago(
    front_end: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_module, "COUNTED_EVERY", 1)
    first = compile_grammar(Choice(["a"]), VOCABULARY)
    monkeypatch.setattr(compile_module, "CACHE_BYTES", int(first.nbytes * 2.5))
    for text in "bac":
        compile_grammar(Choice([text]), VOCABULARY)
    assert compile_grammar(Choice(["a"]), VOCABULARY) is first
    assert len(front_end.built) == 3
    compile_grammar(Choice(["b"]), VOCABULARY)
    assert len(front_end.built) == 4


def test_only_specs_are_taken() -> None:
    with pytest.raises(GrammarError, match=r"`spec` is of the type str; give one of lk.Regex"):
        compile_grammar("a+", VOCABULARY)  # type: ignore[arg-type]


def test_schemas_of_all_kinds_become_plain_json() -> None:
    plain = {"type": "object", "properties": {"b": {}, "a": {"minimum": 1.5}}}
    text = '{"type": "object", "properties": {"b": {}, "a": {"minimum": 1.50}}}'
    assert JsonSchema(text).schema == plain
    assert list(JsonSchema(text).schema["properties"]) == ["b", "a"]
    assert JsonSchema(text) == JsonSchema(plain) and hash(JsonSchema(text))
    assert JsonSchema(plain) != JsonSchema(plain, whitespace="compact")
    swapped = {"type": "object", "properties": {"a": {"minimum": 1.5}, "b": {}}}
    assert JsonSchema(swapped) != JsonSchema(plain)
    assert JsonSchema("$$ANY$$").schema == {"type": "object"}
    assert JsonSchema("true").schema is True and JsonSchema(False).schema is False
    assert JsonSchema(Point).schema["properties"]["x"]["type"] == "integer"
    assert JsonSchema(Named).schema["required"] == ["name"]
    spec = JsonSchema(plain, lenient={"not"})
    plain["type"] = "changed"
    assert spec.schema["type"] == "object" and pickle.loads(pickle.dumps(spec)) == spec


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: JsonSchema("{"), "`schema` is not JSON: .*line 1, column 2"),
        (lambda: JsonSchema("[]"), "a schema is an object or a bool"),
        (lambda: JsonSchema('{"a": 1, "a": 2}'), "the member 'a' twice"),
        (lambda: JsonSchema({"const": float("nan")}), "not JSON"),
        (lambda: JsonSchema('{"const": NaN}'), "holds NaN"),
        (lambda: JsonSchema('{"const": 0.12345678901234567891}'), "more digits than"),
        (lambda: JsonSchema('{"const": 1e999}'), "more digits than"),
        (lambda: JsonSchema("[" * 100_000), "nested too deeply"),
        (lambda: JsonSchema({}, whitespace="wide"), "`whitespace` must be one of"),
        (lambda: JsonSchema({}, whitespace=-1), "`whitespace` must be one of"),
        (lambda: JsonSchema({}, lenient="not"), "`lenient` must be a set"),
        (lambda: Regex(b"a"), "`pattern` must be a str, not bytes"),
        (lambda: Regex("a\ud800"), "lone surrogate at index 1"),
        (lambda: Regex("a", dialect="perl"), "`dialect` must be one of"),
        (lambda: Choice("abc"), "sequence of str, not str"),
        (lambda: Choice([]), "at least one"),
        (lambda: Choice(["a", 1]), r"`options\[1\]` must be a str"),
        (lambda: Ebnf("root ::= a", root=""), "must name a rule"),
        (lambda: StructuralTag([1]), "must be a JSON object"),
    ],
)
def test_wrong_specs_are_refused_where_they_are_made(make: Any, message: str) -> None:
    with pytest.raises(GrammarError, match=message):
        make()


def test_a_spec_is_frozen_and_says_what_it_is() -> None:
    spec = Regex("a+", dialect="ecma")
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.pattern = "b"  # type: ignore[misc]
    assert Regex("a+") != spec and spec.identity.startswith("Regex:")
    assert StructuralTag('{"a": 1}') == StructuralTag({"a": 1})
    assert Ebnf('r ::= ""\ns ::= r', root="r") != Ebnf('r ::= ""\ns ::= r', root="s")
