"""Formats of a structural tag as fragments of a `Graph`, one method a format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logitkit.errors import GrammarError
from logitkit.grammar import json_schema, strings
from logitkit.grammar.ebnf.build import add_grammar
from logitkit.grammar.ebnf.graph import Fragment, Graph
from logitkit.grammar.machine import Context, Machine
from logitkit.grammar.spec import JsonSchema, Regex
from logitkit.grammar.structural_tag.fields import Fields
from logitkit.grammar.structural_tag.free_text import free_text
from logitkit.grammar.structural_tag.tags import Ends, Tags

_DEEPEST = 100
_REFUSED = {
    "any_tokens", "dispatch", "exclude_token", "qwen_xml_parameter", "token", "token_dispatch",
    "token_triggered_tags",
}  # fmt: skip


class Formats:
    """Builds formats into `graph`. `rules` are the EBNF grammars met, with where they stand."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.graph = Graph(context.budget)
        self.rules: list[tuple[int, str]] = []
        self.tags = Tags(self)
        self._depth = 0
        self._kinds: dict[str, Callable[[Fields, Ends], Fragment]] = {
            "const_string": self._const_string,
            "json_schema": self._json_schema,
            "regex": self._regex,
            "grammar": self._grammar,
            "any_text": self._any_text,
            "sequence": self._sequence,
            "or": self._or,
            "optional": self._optional,
            "plus": self._plus,
            "star": self._star,
            "repeat": self._repeat,
            "tag": lambda fields, ends: self.tags.tag(fields),
            "triggered_tags": self.tags.triggered,
            "tags_with_separator": lambda fields, ends: self.tags.separated(fields),
        }

    def build(self, value: Any, pointer: str, ends: Ends = ()) -> Fragment:
        """One format. `ends`: the texts that close the tag whose content ends with this format;
        free text stops at the first of them."""
        fields = Fields(value, pointer)
        kind = fields.text("type")
        if kind in _REFUSED:
            raise fields.fail(f"the format {kind!r} is not supported", "type")
        if kind not in self._kinds:
            known = ", ".join(self._kinds)
            raise fields.fail(f"unknown format {kind!r}; known: {known}", "type")
        if self._depth == _DEEPEST:
            raise fields.fail(f"formats may be nested {_DEEPEST} deep")
        self._depth += 1
        fragment = self._kinds[kind](fields, ends)
        self._depth -= 1
        fields.done()
        return fragment

    # Leaves.

    def _const_string(self, fields: Fields, ends: Ends) -> Fragment:
        text = fields.text("value")
        return self.literal(text, fields.at("value"))

    def _json_schema(self, fields: Fields, ends: Ends) -> Fragment:
        fields.neutral("style", "json")
        fields.neutral("any_order", False)
        fields.neutral("max_whitespace_cnt", None)
        fields.neutral("excludes", [], None)
        return self.schema(fields, "json_schema")

    def schema(self, fields: Fields, member: str) -> Fragment:
        """The documents of the schema that is a member of an object."""
        schema, pointer = fields.get(member), fields.at(member)
        return self._embed(lambda: json_schema.build(JsonSchema(schema), self.context), pointer)

    def literal(self, text: str, pointer: str) -> Fragment:
        for byte in text.encode():
            if not self.context.alphabet[byte]:
                raise GrammarError(
                    f"structural tag: no token holds the byte 0x{byte:02X} of {text!r}", pointer
                )
        return self.graph.literal(text.encode())

    def _regex(self, fields: Fields, ends: Ends) -> Fragment:
        fields.neutral("excludes", [], None)
        pattern = fields.text("pattern")
        pointer = fields.at("pattern")
        return self._embed(lambda: strings.build_regex(Regex(pattern), self.context), pointer)

    def _embed(self, build: Callable[[], Machine], pointer: str) -> Fragment:
        try:
            return self.graph.embed(build())
        except GrammarError as error:
            raise _within(error, pointer) from None

    def _grammar(self, fields: Fields, ends: Ends) -> Fragment:
        fields.neutral("syntax", "ebnf")
        pointer = fields.at("grammar")
        try:
            rule = add_grammar(self.graph, fields.text("grammar"), "root")
        except GrammarError as error:
            raise _within(error, pointer) from None
        self.rules.append((rule, pointer))
        return self.graph.call(rule)

    def _any_text(self, fields: Fields, ends: Ends) -> Fragment:
        fields.neutral("max_tokens", None)
        fields.neutral("max_chars", None)
        excludes = fields.texts("excludes", optional=True)
        return free_text(self.graph, [*excludes, *ends], {}).fragment

    # Combinations.

    def _sequence(self, fields: Fields, ends: Ends) -> Fragment:
        elements = fields.sequence("elements")
        last = len(elements) - 1
        return self.graph.join(
            [
                self.build(element, fields.at("elements", number), ends if number == last else ())
                for number, element in enumerate(elements)
            ]
        )

    def _or(self, fields: Fields, ends: Ends) -> Fragment:
        return self.graph.either(
            [
                self.build(element, fields.at("elements", number), ends)
                for number, element in enumerate(fields.sequence("elements"))
            ]
        )

    def content(self, fields: Fields, ends: Ends) -> Fragment:
        return self.build(fields.get("content"), fields.at("content"), ends)

    def _optional(self, fields: Fields, ends: Ends) -> Fragment:
        return self.graph.repeat(self.content(fields, ends), 0, 1)

    def _plus(self, fields: Fields, ends: Ends) -> Fragment:
        return self.graph.repeat(self.content(fields, ends), 1, None)

    def _star(self, fields: Fields, ends: Ends) -> Fragment:
        return self.graph.repeat(self.content(fields, ends), 0, None)

    def _repeat(self, fields: Fields, ends: Ends) -> Fragment:
        least, most = fields.number("min"), fields.number("max")
        if least < 0 or (most < least and most != -1):
            raise fields.fail(f"`min`={least} and `max`={most} allow no number of repeats", "max")
        budget = self.context.budget
        if max(least, most) > budget.repeats:
            budget.exceeded("repeats", budget.repeats, fields.pointer)
        return self.graph.repeat(self.content(fields, ends), least, None if most < 0 else most)


def _within(error: GrammarError, pointer: str) -> GrammarError:
    """The error of a part, with where the part stands before its own place."""
    message = str(error)
    if error.where is None:
        return GrammarError(message, pointer)
    inner = error.where.removeprefix("#")
    where = pointer + inner if inner.startswith("/") else f"{pointer}, {inner}"
    return GrammarError(message.removesuffix(f" (at {error.where})"), where)
