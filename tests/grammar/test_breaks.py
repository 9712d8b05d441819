"""What once broke: schemas that accepted what is no JSON, hung, or raised an untyped error."""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import json
import os
import sys
import time
from random import Random
from types import FrameType
from typing import Any

import numpy as np
import pytest
from toy import SlowMachine, ToyVocabulary, toy_vocabulary
from toy_machines import words

from logitkit.errors import GrammarError
from logitkit.grammar import json_schema
from logitkit.grammar.arena import Arena
from logitkit.grammar.compile import BUILDERS
from logitkit.grammar.json_schema import types as t
from logitkit.grammar.json_schema.arrays import ArrayPlan
from logitkit.grammar.machine import Budget, Context
from logitkit.grammar.matcher import CompiledGrammar, Matcher
from logitkit.grammar.spec import Ebnf, JsonSchema, Spec, StructuralTag


def machine(schema: Any, seconds: float = 10.0) -> SlowMachine:
    budget = Budget(seconds=seconds)
    context = Context(16, (True,) * 256, budget)
    with budget.running():
        return SlowMachine(json_schema.build(JsonSchema(schema), context))


NUMBERS = (
    {"maximum": 100},
    {"exclusiveMaximum": 1000},
    {"maximum": 37},
    {"minimum": -100, "maximum": 2010},
    {"maximum": 120, "multipleOf": 0.5},
    {"maximum": 1000, "not": {"multipleOf": 7}},
    {"not": {"enum": [10, 205, 11.5]}},
    {"not": {"minimum": 10}},
)


@pytest.mark.parametrize("schema", NUMBERS, ids=json.dumps)
def test_a_number_never_ends_with_its_point(schema: dict[str, Any]) -> None:
    slow = machine({"type": "number"} | schema)
    for sign, whole in itertools.product(("", "-"), range(250)):
        assert not slow.accepts(f"{sign}{whole}.".encode())
        # What a point may follow, digits may follow: no dead ends either.
        after = slow.run(f"{sign}{whole}.".encode())
        assert after is None or slow.alive_bytes(after)


def test_a_number_beyond_float64_is_read_or_refused_by_name() -> None:
    for keyword in ("minimum", "maximum", "multipleOf", "const"):
        for digits in (400, 4000):
            try:
                machine({keyword: 10**digits})
            except GrammarError as error:
                assert keyword in str(error)
    slow = machine({"type": "integer", "minimum": 10**400})
    assert slow.accepts(b"1" + b"0" * 400)
    assert not slow.accepts(b"9" * 400)


class Nodes:
    """Sets of kinds of items as nodes: bit k of a node is set where kind k fits it."""

    def alive(self, node: int) -> bool:
        return node != 0

    def both(self, first: int, second: int) -> int:
        return first & second

    def literals(self, node: int) -> tuple[int, ...]:
        raise AssertionError(node)


def finishes(array: t.Array, kinds: int) -> bool:
    """Whether some array fits, by trying all, up to a length that is enough for these tests."""
    seen = {(0,) * len(array.contains)}
    last = 12 if array.max_items is None else array.max_items
    for length in range(last + 1):
        if length >= array.min_items and any(
            all(
                want.minimum <= n and (want.maximum is None or n <= want.maximum)
                for n, want in zip(counts, array.contains, strict=True)
            )
            for counts in seen
        ):
            return True
        node = array.prefix[length] if length < len(array.prefix) else array.rest
        seen = {
            tuple(
                n + (want.node >> kind & 1) for n, want in zip(counts, array.contains, strict=True)
            )
            for counts in seen
            for kind in range(kinds)
            if node >> kind & 1
        }
    return False


@pytest.mark.parametrize("few", range(1, 14))
def test_two_arrays_at_once_end_at_their_own_bounds(few: int) -> None:
    # The bounds of the other one are far away for a vocabulary of tokens of up to 16 bytes.
    many = {"items": {"type": "integer"}, "minItems": 38, "maxItems": 40}
    slow = machine({"type": "array", "anyOf": [{"items": {"const": 0}, "maxItems": few}, many]})
    for count in range(43):
        text = ",".join(["0"] * count)
        assert slow.accepts(f"[{text}]".encode()) == (count <= few or 38 <= count <= 40)


@pytest.mark.parametrize(
    "array",
    [
        {"contains": {"minimum": 1}, "maxContains": 0, "minItems": 3},
        {"contains": {"minimum": 1}, "minContains": 3, "maxContains": 2},
    ],
    ids=json.dumps,
)
def test_a_key_whose_array_has_no_value_never_comes(array: dict[str, Any]) -> None:
    slow = machine({"patternProperties": {"^b": {"type": "array"} | array}})
    assert not slow.prefix_alive(b'{"b"')
    assert slow.accepts(b'{"a":1}')


def test_an_array_with_contains_lives_where_some_array_fits() -> None:
    random, kinds, lives = Random(5), 3, 0
    for _ in range(3000):
        every = (1 << kinds) - 1
        wants = []
        for _ in range(random.choice((1, 1, 2, 3))):
            node, least = random.randint(0, every), random.randint(0, 4)
            if random.random() < 0.5:
                wants.append(t.Contains(node, least))
            else:
                most = least + random.randint(-1, 2)
                wants.append(t.Contains(node, least, max(0, most), every & ~node))
        array = t.Array(
            tuple(random.randint(0, every) for _ in range(random.randint(0, 2))),
            random.randint(0, every),
            random.randint(0, 4),
            random.choice((None, None, random.randint(0, 7))),
            contains=tuple(wants),
        )
        wanted = finishes(array, kinds)
        lives += wanted
        assert ArrayPlan(array, Nodes()).alive == wanted, array
    assert 500 < lives < 2500


BOMBS: dict[str, Any] = {
    "contains": {"type": "array", "contains": {"type": "integer"}, "minContains": 10**9},
    "contains, bounded": {
        "type": "array", "contains": {"type": "integer"}, "minContains": 10**9,
        "maxContains": 10**9, "minItems": 10**9, "maxItems": 2 * 10**9,
    },
    "patternProperties": {
        "patternProperties": {f"a.*{i}": {"type": "integer", "minimum": i} for i in range(20)}
    },
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_read_or_refused_in_time(name: str) -> None:
    start = time.process_time()
    try:
        slow = machine({"$schema": "https://json-schema.org/draft/2020-12/schema"} | BOMBS[name], 1)
        assert slow.prefix_alive(b"[1,2,")
    except GrammarError as error:
        assert "seconds" in str(error)
    assert time.process_time() - start < 5


INTERRUPTED: dict[str, Spec] = {
    "members": JsonSchema(
        {
            "type": "object",
            "properties": {
                "a": {"type": "array", "items": {"type": "integer", "maximum": 30}, "maxItems": 3},
                "b": {"anyOf": [{"enum": ["x", [1], {"k": 2}]}, {"$ref": "#"}]},
            },
            "patternProperties": {"^z": {"type": "boolean"}},
            "required": ["a"],
        }
    ),
    "ebnf": Ebnf('root ::= "(" root* ")" | word "}"\nword ::= [a-c]{1,30} | word ","'),
    "tag": StructuralTag(
        {
            "format": {
                "type": "triggered_tags",
                "triggers": ["<"],
                "tags": [
                    {
                        "begin": "<tool_call>",
                        "content": {"type": "json_schema", "json_schema": {"type": "array"}},
                        "end": "</tool_call>",
                    },
                ],
            }
        }
    ),
}
TEXTS = {
    "members": '{"a": [1, 12], "b": {"a": [30], "b": [1]}, "z": true}',
    "ebnf": "((ab,,}c}())())",
    "tag": "a b <tool_call>[[1],",
}


class Interrupts:
    """Raises in the `n`-th line of the grammars' own code that runs inside `with`; with `only`
    in that of one function."""

    def __init__(self, n: int, only: str = "") -> None:
        self.left, self.only = n, only

    def __enter__(self) -> Interrupts:
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if f"{os.sep}grammar{os.sep}" not in frame.f_code.co_filename:
            return None
        if event == "line" and self.only in ("", frame.f_code.co_name):
            self.left -= 1
            if not self.left:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self._trace


def row(matcher: Matcher) -> set[int]:
    bits = np.unpackbits(matcher.mask().numpy().view(np.uint8), bitorder="little")
    return set(np.flatnonzero(bits).tolist())


def read(grammar: CompiledGrammar, tokens: list[int]) -> list[set[int]]:
    """The masks along a text."""
    matcher = grammar.matcher()
    masks = [row(matcher)]
    for token in tokens:
        assert matcher.accept(token), token
        masks.append(row(matcher))
    return masks


@pytest.mark.parametrize("name", INTERRUPTED)
def test_an_interrupt_leaves_the_grammar_as_good_as_new(name: str) -> None:
    vocabulary = toy_vocabulary()
    tokens = vocabulary.tokenize(TEXTS[name].encode())
    budget = Budget()
    machine_of = functools.partial(
        importlib.import_module(BUILDERS[type(INTERRUPTED[name])][0]).build,
        INTERRUPTED[name],
    )

    def compiled() -> CompiledGrammar:
        return CompiledGrammar(machine_of(vocabulary.context(budget)), vocabulary, budget)

    wanted = read(compiled(), tokens)
    random, interrupted = Random(name), 0
    for _ in range(40):
        grammar = compiled()
        with contextlib.suppress(KeyboardInterrupt), Interrupts(random.randint(1, 4000)):
            read(grammar, tokens)
            interrupted -= 1
        interrupted += 1
        assert read(grammar, tokens) == wanted
    assert interrupted > 10


def test_an_interrupt_while_rows_move_to_a_new_store_reads_no_wrong_row() -> None:
    texts = [f"{i:03d}".encode() for i in Random(0).sample(range(1000), 300)]
    vocabulary = ToyVocabulary([b"", *(bytes([48 + i]) for i in range(10)), *texts])
    machine = words(*texts)
    slow, random, interrupted = SlowMachine(machine), Random(1), 0
    arena = Arena(vocabulary, row_bytes=0)  # room for 64 rows
    start = arena.start(arena.add(machine, Budget()))
    at = [b"", *{text[:n] for text in texts for n in (1, 2)}]
    rows = [start[None]]
    for prefix in at[1:]:
        row = start[None]
        for byte in prefix:
            row = arena.advance(row, np.array([byte - 47]))
        rows.append(row)
    wanted = [slow.allowed(slow.run(prefix) or slow.start, vocabulary) for prefix in at]
    for _ in range(150):
        for i in random.sample(range(len(at)), 70):
            try:
                with Interrupts(1 + random.randrange(40), only="_renew_store"):
                    arena.masks(rows[i])
            except KeyboardInterrupt:
                interrupted += 1
            store, ids = arena.masks(rows[i])
            bits = np.unpackbits(store.data[ids[0]].view(np.uint8), bitorder="little")
            assert set(np.flatnonzero(bits).tolist()) == wanted[i]
    assert interrupted > 10
