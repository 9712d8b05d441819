"""An independent, slow reading of the normal form: does a value fit a node?

Used as an oracle by the tests of `normalise`; it knows only what `types` promises.
"""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

from logitkit.grammar import strings
from logitkit.grammar.json_schema import types as t
from logitkit.grammar.json_schema.normalise import NormalForm, normalise
from logitkit.grammar.machine import Budget
from logitkit.grammar.spec import JsonSchema


def form(schema: Any, seconds: float = 2.0, **options: Any) -> NormalForm:
    """The normal form of a schema, in at most so many seconds."""
    budget = Budget(seconds=seconds)
    with budget.running():
        return normalise(JsonSchema(schema, **options), budget)


def read(text: str) -> Any:
    """JSON text with exact numbers."""
    return json.loads(text, parse_float=Decimal, parse_int=Decimal)


def fits(schema: t.Schema, value: Any, node: t.Node | None = None, ordered: bool = False) -> bool:
    """Whether `value` (as `read` gives it) is one of the values of `node` (default: the root).

    `ordered`: members must stand in the declared order, others behind them.
    """
    node = schema.root if node is None else node
    return any(_is(schema, value, item, ordered) for item in schema.alternatives(node))


def _is(schema: t.Schema, value: Any, item: t.Type, ordered: bool) -> bool:
    if isinstance(item, t.Literal):
        return _same(read(item.text), value, ordered)
    if value is None:
        return isinstance(item, t.Null)
    if isinstance(value, bool):
        return isinstance(item, t.Boolean) and value in item.values
    if isinstance(value, Decimal):
        return isinstance(item, t.Number) and _in_range(value, item)
    if isinstance(value, str):
        return isinstance(item, t.String) and strings.matches(item.language, value)
    if isinstance(value, list):
        return isinstance(item, t.Array) and _is_array(schema, value, item, ordered)
    return isinstance(item, t.Object) and _is_object(schema, value, item, ordered)


def _same(a: Any, b: Any, ordered: bool) -> bool:
    if isinstance(a, bool) or isinstance(b, bool) or type(a) is not type(b):
        return a is b
    if isinstance(a, list):
        return len(a) == len(b) and all(_same(x, y, ordered) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        if a.keys() != b.keys() or (ordered and list(a) != list(b)):
            return False
        return all(_same(a[name], b[name], ordered) for name in a)
    return bool(a == b)


def _in_range(value: Decimal, item: t.Number) -> bool:
    x = Fraction(value)
    if item.minimum is not None and (x, not item.exclusive_minimum) < (Fraction(item.minimum), 1):
        return False
    if item.maximum is not None and (x, item.exclusive_maximum) > (Fraction(item.maximum), 0):
        return False
    if item.integer and x.denominator != 1:
        return False
    if item.multiple_of is not None and (x / Fraction(item.multiple_of)).denominator != 1:
        return False
    if any((x / Fraction(step)).denominator == 1 for step in item.not_multiples):
        return False
    return value not in item.excluded


def _is_array(schema: t.Schema, value: list[Any], item: t.Array, ordered: bool) -> bool:
    if len(value) < item.min_items or (item.max_items is not None and len(value) > item.max_items):
        return False
    nodes = [*item.prefix, *[item.rest] * max(0, len(value) - len(item.prefix))]
    if not all(fits(schema, v, n, ordered) for v, n in zip(value, nodes, strict=False)):
        return False
    if item.unique and any(_same(v, w, False) for i, v in enumerate(value) for w in value[:i]):
        return False
    for contains in item.contains:
        good = [fits(schema, v, contains.node) for v in value]
        if contains.maximum is not None:
            assert contains.rest is not None
            assert good == [not fits(schema, v, contains.rest) for v in value]
            if sum(good) > contains.maximum:
                return False
        if sum(good) < contains.minimum:
            return False
    return True


def _is_object(schema: t.Schema, value: dict[str, Any], item: t.Object, ordered: bool) -> bool:
    declared = dict(item.properties)
    others = [name for name in value if name not in declared]
    if not item.required <= value.keys() or not item.required <= declared.keys():
        return False
    if ordered and [*(n for n in declared if n in value), *others] != list(value):
        return False
    # Duplicates of undeclared keys cannot be excluded: only one of them counts.
    if len(value) - len(others) + min(1, len(others)) < item.min_properties:
        return False
    if item.max_properties is not None and len(value) > item.max_properties:
        return False
    if not all(any((name in value) == there for name, there in c) for c in item.clauses):
        return False
    met = not item.some
    for name, member in value.items():
        if name in declared:
            node = declared[name]
        else:
            if item.names is not None and not strings.matches(item.names, name):
                return False
            matched = (
                i for i, (words, _) in enumerate(item.patterns) if strings.matches(words, name)
            )
            node = schema.other(item, frozenset(matched))
            met = met or any(
                strings.matches(words, name) and fits(schema, member, some, ordered)
                for words, some in item.some
            )
        if not fits(schema, member, node, ordered):
            return False
    return met


WORDS: tuple[str, ...] = (
    "",
    "a",
    "b",
    "ab",
    "abc",
    "a1",
    "99",
    "x99",
    "1",
    "12345678",
    "2022-01-01",
    "10:00:00Z",
)
WORDS += ("2022-01-01T10:00:00Z", "a@b.c", "http://a.b/c", "1.2.3.4", "A", "é", "a b", "zzzzzzzzzz")


class NoSample(Exception):
    """Nothing was found to put in some place."""


def sample(schema: t.Schema, rng: Random, node: t.Node | None = None, depth: int = 0) -> Any:
    """Some value of `node`; NoSample where none is at hand (it is a poor inventor of strings)."""
    if depth > 12:
        raise NoSample
    items = list(schema.alternatives(schema.root if node is None else node))
    rng.shuffle(items)
    for item in items:
        try:
            value = _sample(schema, rng, item, depth)
        except NoSample:
            continue
        if _is(schema, value, item, False):
            return value
    raise NoSample


def _sample(schema: t.Schema, rng: Random, item: t.Type, depth: int) -> Any:
    if isinstance(item, t.Literal):
        return read(item.text)
    if isinstance(item, t.Null):
        return None
    if isinstance(item, t.Boolean):
        return rng.choice(sorted(item.values))
    if isinstance(item, t.Number):
        near = [Decimal(0), *(b for b in (item.minimum, item.maximum) if b is not None)]
        steps = [Decimal(1), Decimal("0.5"), item.multiple_of or Decimal(3)]
        found = [b + s * k for b in near for s in steps for k in range(-3, 4)]
        return _choose(rng, [number for number in found if _in_range(number, item)])
    if isinstance(item, t.String):
        return _choose(rng, [word for word in WORDS if strings.matches(item.language, word)])
    if isinstance(item, t.Array):
        least = max(item.min_items, sum(contains.minimum for contains in item.contains))
        size = rng.randint(least, least + 2)
        nodes = [*item.prefix, *[item.rest] * max(0, size - len(item.prefix))][:size]
        for contains in item.contains:
            for position in rng.sample(range(size), min(size, contains.minimum)):
                nodes[position] = schema.both(nodes[position], contains.node)
        return [sample(schema, rng, node, depth + 1) for node in nodes]
    assert isinstance(item, t.Object)
    value = {}
    for name, node in item.properties:
        if name in item.required or (node != t.NEVER and rng.random() < 0.4):
            value[name] = sample(schema, rng, node, depth + 1)
    for word in rng.sample(WORDS, 3):
        if word not in value and word not in dict(item.properties):
            hits = (i for i, (words, _) in enumerate(item.patterns) if strings.matches(words, word))
            node = schema.other(item, frozenset(hits))
            for words, some in item.some:
                if strings.matches(words, word):
                    node = some
            if node != t.NEVER and rng.random() < (0.9 if item.some else 0.3):
                value[word] = sample(schema, rng, node, depth + 1)
    return value


def _choose(rng: Random, found: list[Any]) -> Any:
    if not found:
        raise NoSample
    return rng.choice(found)
