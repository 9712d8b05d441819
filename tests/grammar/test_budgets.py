"""What a grammar may cost: hostile ones are answered or refused in time, at compiling and after."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from toy import toy_vocabulary
from toy_machines import words

import logitkit as lk
from logitkit.errors import GrammarError
from logitkit.grammar import machine as machine_module
from logitkit.grammar.compile import compile_grammar
from logitkit.grammar.ebnf import returns
from logitkit.grammar.machine import Budget, Expansion, Key, check_time, is_timed
from logitkit.grammar.matcher import CompiledGrammar
from logitkit.grammar.spec import Spec
from logitkit.grammar.strings import match

VOCABULARY = toy_vocabulary()
NOISE = 1.0  # seconds that a request may take beyond its budget: collected garbage, a slow machine
MEGABYTES = 500


def optional_classes(count: int, first: str = "\u4e00") -> str:
    return "".join(f"[^{chr(ord(first) + i)}]?" for i in range(count))


def doubling(depth: int) -> lk.Ebnf:
    """Each rule is two of the next; the last one may be empty."""
    rules = "".join(f"r{i} ::= r{i + 1} r{i + 1}\n" for i in range(depth))
    return lk.Ebnf(f'root ::= r0\n{rules}r{depth} ::= "a"|""')


def chain_of_rules(count: int) -> lk.Ebnf:
    rules = "".join(f'r{i} ::= "a" r{i + 1}\n' for i in range(count))
    return lk.Ebnf(f'root ::= r0\n{rules}r{count} ::= "b"')


def overlapping_patterns(count: int) -> lk.JsonSchema:
    patterns = {f"{i}.*x": {"type": "integer", "minimum": i} for i in range(count)}
    return lk.JsonSchema({"type": "object", "patternProperties": patterns})


def nested_one_of(depth: int, wrap: Callable[[Any, int], list[Any]]) -> lk.JsonSchema:
    schema: Any = {"type": "integer"}
    for level in range(depth):
        schema = {"oneOf": wrap(schema, level)}
    return lk.JsonSchema(schema)


def reference_bomb(depth: int, link: Callable[[dict[str, Any]], dict[str, Any]]) -> lk.JsonSchema:
    """Definitions each of which names the next one twice."""
    defs = {f"a{i}": link({"$ref": f"#/$defs/a{i + 1}"}) for i in range(depth)}
    return lk.JsonSchema({"$ref": "#/$defs/a0", "$defs": {**defs, f"a{depth}": {"type": "null"}}})


def required_members(count: int) -> lk.JsonSchema:
    names = [f"p{i}" for i in range(count)]
    members = {name: {"type": "integer"} for name in names}
    return lk.JsonSchema({"type": "object", "properties": members, "required": names})


def many_tags(count: int) -> lk.StructuralTag:
    content = {"type": "json_schema", "json_schema": {"type": "object"}}
    tags = [
        {"type": "tag", "begin": f"<f{i}>", "content": content, "end": "</f>"} for i in range(count)
    ]
    structure = {"type": "triggered_tags", "triggers": ["<f"], "tags": tags}
    return lk.StructuralTag({"type": "structural_tag", "format": structure})


def twice(inner: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"l": inner, "r": inner}, "required": ["l", "r"]}


HOSTILE: dict[str, Callable[[], Spec]] = {
    "300 optional classes": lambda: lk.Regex(optional_classes(300)),
    "5000 optional classes": lambda: lk.Regex(optional_classes(5000)),
    "optional ASCII classes": lambda: lk.Regex(optional_classes(26, "a") * 12),
    "optional classes in a schema": lambda: lk.JsonSchema({"pattern": optional_classes(300)}),
    "exponential automaton": lambda: lk.Regex("(a|b)*a(a|b){30}"),
    "60000 groups in a regex": lambda: lk.Regex("(" * 49_000 + "a" + ")" * 49_000),
    "60000 groups in EBNF": lambda: lk.Ebnf("root ::= " + "(" * 60_000 + '"a"' + ")" * 60_000),
    "ambiguous rules 16": lambda: doubling(16),
    "ambiguous rules 60": lambda: doubling(60),
    "60000 rules": lambda: chain_of_rules(60_000),
    "patternProperties": lambda: overlapping_patterns(50),
    "oneOf over lengths": lambda: nested_one_of(
        12, lambda inner, level: [inner, {"type": "string", "minLength": level}]
    ),
    "oneOf over objects": lambda: nested_one_of(
        8, lambda inner, _: [inner, {"properties": {"a": inner}}, {"items": inner}]
    ),
    "references that double allOf": lambda: reference_bomb(
        60, lambda inner: {"allOf": [inner, inner]}
    ),
    "references that double anyOf": lambda: reference_bomb(
        60, lambda inner: {"anyOf": [inner, {"type": "array", "items": inner}]}
    ),
}  # fmt: skip

LARGE: dict[str, Callable[[], Spec]] = {
    "maxLength": lambda: lk.JsonSchema({"type": "string", "maxLength": 10**9}),
    "maxItems": lambda: lk.JsonSchema({"items": {"type": "integer"}, "maxItems": 10**9}),
    "80000 strings": lambda: lk.JsonSchema({"enum": [f"value {i:018d}" for i in range(80_000)]}),
    "30000 members": lambda: required_members(30_000),
    "2000 tags": lambda: many_tags(2_000),
    "references that double members": lambda: reference_bomb(60, twice),
}


def measured(ask: Callable[[], object]) -> tuple[float, GrammarError | None]:
    """The processor seconds of a question, and the error that it ended with."""
    began, error = time.thread_time(), None
    try:
        ask()
    except GrammarError as raised:
        error = raised
    return time.thread_time() - began, error


def peak() -> float:
    """The largest memory of this process so far, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    compile_grammar(lk.Regex("ab"), VOCABULARY).matcher().mask()


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_grammars_are_answered_or_refused_in_time(name: str) -> None:
    spec, before, seconds = HOSTILE[name](), peak(), 0.4
    made: list[CompiledGrammar] = []
    took, error = measured(
        lambda: made.append(compile_grammar(spec, VOCABULARY, Budget(seconds=seconds)))
    )
    assert took < seconds + NOISE
    if made:
        took, error = measured(lambda: made[0].matcher().mask())
        assert took < seconds + NOISE
    if error is not None:
        assert any(f"`{budget}`=" in str(error) for budget in ("seconds", "nesting", "states"))
    assert peak() - before < MEGABYTES
    # Whatever happened, the arena serves others.
    other = compile_grammar(lk.Choice(["a", name]), VOCABULARY).matcher()
    assert np.count_nonzero(other.mask().numpy())


def test_a_union_of_many_patterns_is_made_or_refused_in_time() -> None:
    def spec(count: int) -> Spec:
        patterns = [{"type": "string", "pattern": f"^a{i}[bc]$"} for i in range(count)]
        return lk.JsonSchema({"anyOf": patterns})

    took, error = measured(lambda: compile_grammar(spec(6000), VOCABULARY, Budget(seconds=0.4)))
    assert took < 0.4 + NOISE
    took, error = measured(lambda: compile_grammar(spec(5001), VOCABULARY, Budget(seconds=60)))
    assert error is not None and "more than 5000 others" in str(error) and error.where == "#"
    assert took < 5


@pytest.mark.parametrize("name", LARGE)
def test_large_grammars_are_answered_in_time(name: str) -> None:
    spec, before = LARGE[name](), peak()
    took, error = measured(lambda: compile_grammar(spec, VOCABULARY).matcher().mask())
    assert error is None and took < 2.0 + NOISE
    assert peak() - before < MEGABYTES


def test_an_error_names_the_budget_the_keyword_and_the_place() -> None:
    with pytest.raises(GrammarError) as caught:
        schema = {"properties": {"a": overlapping_patterns(50).schema}}
        compile_grammar(lk.JsonSchema(schema), VOCABULARY, Budget(seconds=0.1))
    message = str(caught.value)
    assert "`patternProperties`" in message and "`seconds`=0.1" in message
    assert "budget=Budget(seconds=...)" in message
    assert message.endswith("(at #/properties/a/patternProperties)")


class Slow:
    """Expands for `seconds` at every state but the start, as long as `slow` is set."""

    start: Key = 0
    has_stack = False
    slow = True

    def expand(self, key: Key) -> Expansion:
        assert isinstance(key, int)
        end = time.thread_time() + 0.15
        while key and self.slow and time.thread_time() < end:
            check_time()
        return Expansion([(97, 97, machine_module.Step(key + 1))], final=True)

    def resume(self, site: Key, tag: Key) -> Key | None:
        raise AssertionError

    def land(self, key: Key, counter: int) -> tuple[Key, int]:
        raise AssertionError


def test_every_request_has_the_whole_time_and_no_more() -> None:
    slow = Slow()
    grammar = CompiledGrammar(slow, VOCABULARY, Budget(seconds=0.25))
    matcher = grammar.matcher()
    token = VOCABULARY.tokenize(b"a")[0]
    for _ in range(3):  # 0.15 s each
        assert matcher.accept(token)
    for _ in range(2):  # many states at once: too long, however often it is asked
        took, error = measured(matcher.mask)
        assert error is not None and "`seconds`=0.25" in str(error) and took < 0.25 + NOISE
    assert not machine_module.is_timed()
    assert grammar.warm() is False and grammar.table() is None
    slow.slow = False
    assert np.count_nonzero(matcher.mask().numpy())


def test_a_slow_grammar_holds_up_no_other_compilation() -> None:
    entered, leave = threading.Event(), threading.Event()

    class Waiting(Slow):
        def expand(self, key: Key) -> Expansion:
            entered.set()
            assert leave.wait(20)
            return Expansion([(97, 97, machine_module.Step(1))], final=True)

    done = threading.Event()

    def compile_another() -> None:
        CompiledGrammar(words(b"ab"), VOCABULARY, Budget()).matcher().mask()
        done.set()

    first = threading.Thread(target=CompiledGrammar, args=(Waiting(), VOCABULARY, Budget()))
    first.start()
    assert entered.wait(20)
    second = threading.Thread(target=compile_another)
    second.start()
    try:
        assert done.wait(10)
    finally:
        leave.set()
        first.join()
        second.join()


ASKED_AGAIN: dict[str, Spec] = {
    "regex": lk.Regex(r"(?!ab)[a-z]{0,40}(a|b)?x|\d{20,30}"),
    "ambiguous": lk.Ebnf('root ::= root root | "a" | "(" root ")" | e\ne ::= e "+" e | "1"'),
    "schema": lk.JsonSchema(
        {"patternProperties": {"^a": {"type": "integer"}, "b$": {"maxLength": 3}}}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ASKED_AGAIN)
def test_a_question_that_was_cut_short_is_answered_right_when_it_is_asked_again(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = ASKED_AGAIN[name]
    texts = [b"", b"a", b"(", b'{"', b'{"a', b"1", b"12345678"]
    right = compile_grammar(spec, VOCABULARY, Budget(seconds=60.0))
    grammar = compile_grammar(spec, VOCABULARY, Budget(seconds=61.0))
    left, cuts = [0], 0

    def look(clock: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            clock.budget.exceeded("seconds", 0.0)

    def ask(text: bytes) -> np.ndarray[Any, Any] | None:
        matcher = grammar.matcher()
        if not all(matcher.accept(token) for token in VOCABULARY.tokenize(text)):
            return None
        return matcher.mask().numpy().copy()

    for text in texts:
        matcher = right.matcher()
        fits = all(matcher.accept(token) for token in VOCABULARY.tokenize(text))
        wanted = matcher.mask().numpy().copy() if fits else None
        grammar.budget.seconds = 1e-9  # so that every check of the time looks
        steps = 0
        with monkeypatch.context() as patch:
            patch.setattr(machine_module._Clock, "look", look)
            patch.setattr(returns, "_CHECKED_EVERY", 1)
            patch.setattr(match, "CHECKED_EVERY", 1)
            while True:
                left[0] = steps
                try:
                    found = ask(text)
                    break
                except GrammarError:
                    cuts += 1
                    steps += 1 + steps // 4
        assert (found is None) == (wanted is None)
        if found is not None and wanted is not None:
            np.testing.assert_array_equal(found, wanted)
    assert cuts > 10


def test_a_clock_whose_owner_was_left_by_an_interrupt_runs_no_more() -> None:
    kept = Budget(seconds=0.001).running()  # its own end would stop the clock

    def left() -> None:
        kept.__enter__()
        assert is_timed()

    left()
    assert not is_timed()
    assert compile_grammar(lk.Choice(["never", "late"]), VOCABULARY).matcher().mask() is not None
