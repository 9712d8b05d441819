"""What once broke: schemas that accepted what is no JSON, hung, or raised an untyped error."""

from __future__ import annotations

import itertools
import json
import time
from random import Random
from typing import Any

import pytest
from toy import SlowMachine

from logitkit.errors import GrammarError
from logitkit.grammar import json_schema
from logitkit.grammar.json_schema import types as t
from logitkit.grammar.json_schema.arrays import ArrayPlan
from logitkit.grammar.machine import Budget, Context
from logitkit.grammar.spec import JsonSchema


def machine(schema: Any, seconds: float = 10.0) -> SlowMachine:
    budget = Budget(seconds=seconds)
    budget.start()
    return SlowMachine(json_schema.build(JsonSchema(schema), Context(16, (True,) * 256, budget)))


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
