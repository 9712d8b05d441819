"""Formats with a beginning and an end: a tag, tags after triggers in free text, lists of tags."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from logitkit.errors import GrammarError
from logitkit.grammar.ebnf.graph import Fragment, Graph
from logitkit.grammar.structural_tag.fields import Fields
from logitkit.grammar.structural_tag.free_text import free_text

# What a control token looks like inside a longer text.
_CONTROL = re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]")

Ends = tuple[str, ...]


class Contents(Protocol):
    """What tags need of the other formats."""

    graph: Graph

    def literal(self, text: str, pointer: str) -> Fragment: ...
    def content(self, fields: Fields, ends: Ends) -> Fragment: ...
    def schema(self, fields: Fields, member: str) -> Fragment: ...


class _Tag(NamedTuple):
    begin: str
    opening: Fragment
    whole: Fragment


class Tags:
    """Builds tags into the graph of `contents`."""

    def __init__(self, contents: Contents) -> None:
        self.contents = contents

    def tag(self, fields: Fields) -> Fragment:
        return self._tag(fields, partial(self.contents.content, fields)).whole

    def _tag(self, fields: Fields, content: Callable[[Ends], Fragment]) -> _Tag:
        """`begin`, the content, and `end` or one of its list."""
        begin, end = fields.get("begin"), fields.get("end")
        for member, value in (("begin", begin), ("end", end)):
            if isinstance(value, dict):
                raise fields.fail(f"a token as `{member}` is not supported; give its text", member)
        begin = fields.text("begin")
        ends = [end] if isinstance(end, str) else fields.sequence("end")
        if not all(isinstance(text, str) for text in ends):
            raise fields.fail("`end` must be a string or a list of strings", "end")
        opening = self._marked(begin, fields.at("begin"))
        inside = content(tuple(text for text in ends if text))
        closing = self._either([self._marked(text, fields.at("end")) for text in ends])
        return _Tag(begin, opening, self._join([opening, inside, closing]))

    def _join(self, parts: Sequence[Fragment]) -> Fragment:
        return self.contents.graph.join(parts)

    def _either(self, parts: Sequence[Fragment]) -> Fragment:
        return self.contents.graph.either(parts)

    def _marked(self, text: str, pointer: str) -> Fragment:
        """A text in which control tokens may stand for their own content."""
        fragment = self.contents.literal(text, pointer)
        data = text.encode()
        for start, stop in control_places(text):
            self._mark(fragment.start + start, data[start:stop], fragment.start + stop)
        return fragment

    def _mark(self, node: int, content: bytes, target: int) -> None:
        marks = self.contents.graph.controls.setdefault(node, [])
        if (content.decode(), target) not in marks:
            marks.append((content.decode(), target))

    def _members(self, fields: Fields) -> Iterator[Fields]:
        """The tags of a list, each fully read before the next."""
        for number, value in enumerate(fields.sequence("tags")):
            tag = Fields(value, fields.at("tags", number))
            if "type" in tag and tag.text("type") != "tag":
                raise tag.fail(f"`type` must be 'tag', not {tag.value['type']!r}", "type")
            yield tag
            tag.done()

    def separated(self, fields: Fields) -> Fragment:
        graph = self.contents.graph
        some, once = fields.flag("at_least_one"), fields.flag("stop_after_first")
        body = self._either([self.tag(tag) for tag in self._members(fields)])
        separator = self._marked(fields.text("separator"), fields.at("separator"))
        end = graph.add_node()
        graph.link(body.end, end)
        if not once:
            graph.link(body.end, separator.start)
            graph.link(separator.end, body.start)
        whole = Fragment(body.first, end + 1, body.start, end)
        return whole if some else graph.repeat(whole, 0, 1)

    def triggered(self, fields: Fields, ends: Ends) -> Fragment:
        excludes = [*fields.texts("excludes", optional=True), *ends]
        triggers = fields.texts("triggers")
        some, once = fields.flag("at_least_one"), fields.flag("stop_after_first")
        tags = []
        for tag in self._members(fields):
            tags.append(self._tag(tag, partial(self.contents.content, tag)))
            self._check_begin(tag, triggers)
        self._check_triggers(fields, triggers, tags, excludes)
        return self._dispatch(triggers, tags, excludes, some, once)

    def legacy(self, fields: Fields) -> Fragment:
        """`structures` and `triggers`: triggered tags around JSON documents."""
        triggers = fields.texts("triggers")
        tags = []
        for number, value in enumerate(fields.sequence("structures")):
            tag = Fields(value, fields.at("structures", number))
            tags.append(self._tag(tag, partial(self._documents, tag)))
            self._check_begin(tag, triggers)
            tag.done()
        self._check_triggers(fields, triggers, tags, [])
        return self._dispatch(triggers, tags, [], False, False)

    def _documents(self, fields: Fields, ends: Ends) -> Fragment:
        return self.contents.schema(fields, "schema")

    def _check_begin(self, tag: Fields, triggers: Sequence[str]) -> None:
        begin = tag.text("begin", empty=False)
        if not begin.startswith(tuple(triggers)):
            raise tag.fail(f"no trigger is a beginning of {begin!r}", "begin")

    def _check_triggers(
        self,
        fields: Fields,
        triggers: Sequence[str],
        tags: Sequence[_Tag],
        excludes: Sequence[str],
    ) -> None:
        for number, trigger in enumerate(triggers):
            pointer = fields.at("triggers", number)
            if not any(tag.begin.startswith(trigger) for tag in tags):
                raise GrammarError(f"structural tag: no tag begins with {trigger!r}", pointer)
            if any(text in trigger for text in excludes):
                raise GrammarError(f"structural tag: {trigger!r} holds an excluded text", pointer)

    def _dispatch(
        self,
        triggers: Sequence[str],
        tags: Sequence[_Tag],
        excludes: Sequence[str],
        some: bool,
        once: bool,
    ) -> Fragment:
        """Free text and tags in turn. `some`: a tag comes first, without text before it (as in
        xgrammar); `once`: nothing comes after a tag."""
        graph = self.contents.graph
        start, end = graph.add_node(), graph.add_node()
        after = end
        if not (some and once):
            targets: dict[str, list[int]] = {trigger: [] for trigger in triggers}
            for tag in tags:
                for trigger in triggers:
                    if tag.begin.startswith(trigger):
                        targets[trigger].append(tag.opening.start + len(trigger.encode()))
            text = free_text(graph, excludes, targets)
            graph.link(text.fragment.end, end)
            after = end if once else text.fragment.start
            for tag in tags:
                self._mark_text(text.places, triggers, tag)
            if not some:
                graph.link(start, text.fragment.start)
        for tag in tags:
            graph.link(tag.whole.end, after)
            if some:
                graph.link(start, tag.whole.start)
        return Fragment(tags[0].whole.first, len(graph.silent), start, end)

    def _mark_text(self, places: dict[int, bytes], triggers: Sequence[str], tag: _Tag) -> None:
        """Let control tokens in the part of a tag's `begin` that is a trigger end the free text."""
        data = tag.begin.encode()
        own = [len(text.encode()) for text in triggers if tag.begin.startswith(text)]
        spans = {*control_places(tag.begin), *((0, length) for length in own)}
        for node, read in places.items():
            for start, stop in spans:
                if start < max(own) and read.endswith(data[:start]):
                    self._mark(node, data[start:stop], tag.opening.start + stop)


def control_places(text: str) -> list[tuple[int, int]]:
    """The byte ranges of a text that may be the content of a control token."""
    spans = {match.span() for match in _CONTROL.finditer(text)} | {(0, len(text))}
    offsets = [len(text[:index].encode()) for index in range(len(text) + 1)]
    return sorted((offsets[start], offsets[stop]) for start, stop in spans if start < stop)
