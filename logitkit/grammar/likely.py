"""`LikelyTexts`: documents that a JSON Schema makes likely, for `warm` to go through first.

Members in declared order, all of them or the required ones, the alternatives in turn, short words
in strings: what a model usually writes. Nothing depends on it being right: a piece that the grammar
refuses is replaced or left out, and a text that gets nowhere is used as far as it got.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from logitkit.grammar.arena import Arena, Configuration
from logitkit.grammar.likely_schema import (
    Schema,
    is_number,
    is_scalar,
    kinds,
    list_of,
    merged,
    resolved,
)
from logitkit.grammar.likely_words import ANYTHING, BESIDE, BOUNDS, FORMATS, NUMBERS, WORDS
from logitkit.grammar.likely_writer import Writer

DEEPEST, OPTIONS, NOTED, LONG = 8, 6, 16, 200
CROWDED = 3  # as deep as that and deeper, one item is enough
MANY = 64  # members that may be the first ones
NESTED = 60  # schemas inside of each other, references included


class Plan(NamedTuple):
    """How a text is written: which of several alternatives, which optional members (all, none, or
    every other one), and what stands between the tokens."""

    turn: int
    optional: str = "all"
    indent: int | None = None
    comma: bytes = b", "
    colon: bytes = b": "


MAIN = 4  # plans that are worth more time
PLANS = (
    Plan(0), Plan(1), Plan(0, "none"), Plan(2), Plan(0, "all", None, b",", b":"),
    Plan(0, "all", 2, b","), Plan(0, "even"), Plan(3), Plan(1, "odd"), Plan(4), Plan(5),
)  # fmt: skip


class Visit(NamedTuple):
    """A text to go through from a configuration on; `bytewise`: stopping after every byte."""

    at: Configuration
    text: bytes
    bytewise: bool = False


class Later(NamedTuple):
    """Members to write where some before them were left out."""

    at: Configuration
    empty: bool
    depth: int
    members: tuple[tuple[str, Any], ...]


class LikelyTexts:
    """Iterate for what to visit, the likeliest first.

    `spare`: whether what comes now is less likely.
    """

    def __init__(self, arena: Arena, start: Configuration, schema: Any) -> None:
        self._start, self._schema = start, schema
        self._out = Writer(arena, start)
        self.spare = False
        self._plan = PLANS[0]
        self._nested = 0
        self._beside: dict[Visit, None] = {}
        self._later: list[Later] = []

    def cut_at(self, until: float) -> None:
        """Cut a text short that is still being written at this processor time of the thread."""
        self._out.until = until

    def __iter__(self) -> Iterator[Visit]:
        seen: set[bytes] = set()
        for place, plan in enumerate(PLANS):
            self._plan = plan
            self._out.restart(self._start)
            self._value(self._schema, 0)
            self.spare = place + 1 >= MAIN
            text = bytes(self._out.text)
            if text not in seen:
                seen.add(text)
                yield Visit(self._start, text)
            if plan == PLANS[0]:
                yield from self._beside
        self._plan = PLANS[0]
        for at, empty, depth, members in self._later:
            self._out.restart(at)
            for name, value in members:
                empty &= not self._member(_quoted(name), value, depth, empty)
            yield Visit(at, bytes(self._out.text))

    @property
    def _first(self) -> bool:
        """Whether alternatives are noted on the way."""
        return self._plan is PLANS[0]

    def _note(self, *texts: str) -> None:
        if self._first:
            for text in texts:
                self._beside[Visit(self._out.at, text.encode("utf-8", "replace"))] = None

    def _line(self, depth: int) -> bytes:
        indent = self._plan.indent
        return b"" if indent is None else b"\n" + b" " * (indent * depth)

    # Values

    def _value(self, schema: Any, depth: int) -> bool:
        """Write a value of the schema; False if none was found, and nothing is written then."""
        if depth > DEEPEST or schema is False or self._nested >= NESTED or self._out.late:
            return False
        self._nested += 1
        try:
            return self._nested_value(schema, depth)
        finally:
            self._nested -= 1

    def _nested_value(self, schema: Any, depth: int) -> bool:
        if not isinstance(schema, Mapping):
            return self._anything(depth)
        if isinstance(schema.get("$ref"), str):
            return self._value(resolved(self._schema, schema["$ref"]), depth)
        if "const" in schema:
            return self._json(schema["const"])
        if isinstance(schema.get("enum"), list):
            few = schema["enum"][:NOTED]
            self._note(*(json.dumps(value, ensure_ascii=False) + "," for value in few))
            return any(self._json(value) for value in self._in_turn(schema["enum"]))
        for key in ("anyOf", "oneOf"):
            if isinstance(schema.get(key), list):
                rest = {name: value for name, value in schema.items() if name != key}
                branches = self._branches(schema[key], depth)
                return any(
                    self._value(merged(rest, each, self._schema), depth) for each in branches
                )
        if isinstance(schema.get("allOf"), list):
            whole: Schema = {name: value for name, value in schema.items() if name != "allOf"}
            for each in schema["allOf"]:
                whole = merged(whole, each, self._schema)
            return self._value(whole, depth)
        return any(self._of_type(kind, schema, depth) for kind in self._in_turn(kinds(schema)))

    def _in_turn(self, values: list[Any], depth: int = 1) -> list[Any]:
        """A few of the values, beginning with the one whose turn it is: outside it comes sooner."""
        turn = self._plan.turn // 2 if depth else self._plan.turn
        first = turn % len(values) if values else 0
        return [*values[first:], *values[:first]][:OPTIONS]

    def _branches(self, branches: list[Any], depth: int) -> list[Any]:
        """Alternatives in turn; scalars last, as they are noted beside."""
        simple = [each for each in branches if is_scalar(each)]
        if self._first:
            for each in simple:
                self._note(*BESIDE[each["type"]])
        rest = [each for each in branches if not is_scalar(each)]
        return (self._in_turn(rest, depth) + self._in_turn(simple, depth))[:OPTIONS]

    def _of_type(self, kind: Any, schema: Mapping[str, Any], depth: int) -> bool:
        if kind == "object":
            return self._all_or_nothing(self._object, schema, depth)
        if kind == "array":
            return self._all_or_nothing(self._array, schema, depth)
        if kind == "string":
            return self._string(schema)
        if kind in ("number", "integer"):
            bounds = [schema[key] for key in BOUNDS if key in schema]
            near = [value + by for value in bounds if is_number(value) for by in (0, 1, -1)]
            numbers = [*self._in_turn(list(NUMBERS)), *map(json.dumps, near)]
            self._note(*BESIDE[kind])
            return any(self._out.put_number(each) for each in numbers)
        if kind == "boolean":
            self._note(*BESIDE[kind])
            return any(self._json(each) for each in self._in_turn([True, False]))
        return self._json(None) if kind == "null" else self._anything(depth)

    def _all_or_nothing(self, write: Any, schema: Mapping[str, Any], depth: int) -> bool:
        saved = self._out.mark
        if write(schema, depth):
            return True
        if depth:  # at the root a text that got stuck is better than none
            self._out.back(saved)
        return False

    def _json(self, value: Any) -> bool:
        plan = self._plan
        separators = (plan.comma.decode(), plan.colon.decode())
        text = json.dumps(value, ensure_ascii=False, separators=separators)
        return self._out.put(text.encode("utf-8", "replace"))

    def _anything(self, depth: int) -> bool:
        return any(self._json(value) for value in self._in_turn(list(ANYTHING)))

    def _string(self, schema: Mapping[str, Any]) -> bool:
        given = [schema.get("default"), *list_of(schema.get("examples"))]
        texts = [each for each in given if isinstance(each, str)][:1]
        usual = FORMATS.get(str(schema.get("format")), WORDS)
        least, most = schema.get("minLength"), schema.get("maxLength")
        if isinstance(least, int) and least < LONG:
            texts.append(("example text " * least)[:least])
        if isinstance(most, int):
            texts.append(WORDS[0][:most])
        self._note(*(_quoted(each) + "," for each in usual))
        texts += self._in_turn(list(usual))
        at, start = self._out.at, len(self._out.text)
        plain = not isinstance(schema.get("pattern"), str)
        if not (plain and any(map(self._json, texts))) and not self._out.put_any_string():
            return False
        if self._first and (not plain or isinstance(most, int) or least):
            text = bytes(self._out.text[start:])
            if len(text) < LONG:
                self._beside[Visit(at, text + b",", True)] = None
        return True

    # Objects and arrays

    def _object(self, schema: Mapping[str, Any], depth: int) -> bool:
        if not self._out.put(b"{"):
            return False
        properties = schema.get("properties")
        known: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
        required = set(map(str, list_of(schema.get("required"))))
        empty = True
        members = list(known.items())
        for number, (name, value) in enumerate(members):
            if self._out.late:
                return False
            if self._first and number + 1 < len(members):
                self._leave_out(members, number, depth, empty)
            if name in required or self._takes(number, depth):
                empty &= not self._member(_quoted(name), value, depth, empty)
        for name in sorted(required - set(known)):
            empty &= not self._member(_quoted(name), True, depth, empty)
        if not known or self._plan.turn % 3 == 1:
            empty &= not self._other_members(schema, depth, empty)
        return self._out.put(b"}" if empty else self._line(depth) + b"}")

    def _leave_out(
        self, members: list[tuple[str, Any]], number: int, depth: int, empty: bool
    ) -> None:
        """Note what may come instead of a member: one further on, and its neighbour."""
        ends = MANY if not number else number + 2
        for place in range(number + 1, min(ends, len(members))):
            self._later.append(Later(self._out.at, empty, depth, tuple(members[place : place + 2])))

    def _takes(self, number: int, depth: int) -> bool:
        """Whether this optional member is written."""
        optional = self._plan.optional
        if depth > DEEPEST - 3 or optional == "none":
            return False
        return optional == "all" or number % 2 == (optional == "odd")

    def _other_members(self, schema: Mapping[str, Any], depth: int, empty: bool) -> bool:
        """Write members that are not declared; whether there are any."""
        patterns, found = schema.get("patternProperties"), False
        for value in patterns.values() if isinstance(patterns, Mapping) else ():
            found |= self._member(None, value, depth, empty and not found)
        other = schema.get("additionalProperties", True)
        for name in ('"key"', '"other_name"'):
            found |= self._member(name, other, depth, empty and not found)
        return found

    def _member(self, name: str | None, value: Any, depth: int, first: bool) -> bool:
        """Write a member (None: with the shortest name there is); whether it was possible."""
        saved = self._out.mark
        lead = (b"" if first else self._plan.comma) + self._line(depth + 1)
        if self._out.put(lead):
            named = (
                self._out.put_any_string()
                if name is None
                else self._out.put(name.encode("utf-8", "replace"))
            )
            if named and self._out.put(self._plan.colon) and self._value(value, depth + 1):
                return True
        self._out.back(saved)
        return False

    def _array(self, schema: Mapping[str, Any], depth: int) -> bool:
        if not self._out.put(b"["):
            return False
        items = schema.get("prefixItems", schema.get("items", True))
        first = items if isinstance(items, list) else []
        rest = items if not isinstance(items, list) else schema.get("additionalItems", True)
        least = schema.get("minItems")
        usual = (2, 3, 1, 0)[self._plan.turn % 4] if depth < CROWDED else 1
        wanted = max(least if isinstance(least, int) else 0, len(first), usual)
        written = 0
        for number in range(min(wanted, 20)):
            saved = self._out.mark
            lead = (self._plan.comma if number else b"") + self._line(depth + 1)
            value = first[number] if number < len(first) else rest
            if not (self._out.put(lead) and self._value(value, depth + 1)):
                self._out.back(saved)
                break
            written += 1
        return self._out.put(b"]" if not written else self._line(depth) + b"]")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
