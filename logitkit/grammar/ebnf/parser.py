"""EBNF text to programs: one list of postfix operations a rule, read without recursion.

The language is the union of GBNF (llama.cpp) and the dialect that SGLang hands to xgrammar. A rule
goes on until the next `name ::=` that starts a line, so both ways of breaking lines are read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, NoReturn

from logitkit.errors import GrammarError
from logitkit.grammar.ebnf.escapes import read_code_point
from logitkit.grammar.machine import Budget, check_time
from logitkit.grammar.strings.charset import ALL, CharSet


class Text(NamedTuple):
    """Push a literal."""

    data: bytes


class Chars(NamedTuple):
    """Push one character of a set."""

    points: CharSet


class Name(NamedTuple):
    """Push a call of the rule; `at` is where the text names it."""

    rule: str
    at: int


class Combine(NamedTuple):
    """Replace the last `size` by their sequence or by the choice among them."""

    how: Literal["join", "either"]
    size: int


class Repeat(NamedTuple):
    """Replace the last by its repeats."""

    least: int
    most: int | None


Operation = Text | Chars | Name | Combine | Repeat

_SPACE = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")
_DEFINES = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*::=")
_ATTRIBUTES = re.compile(r"[ \t]*[(\[][^\n\"]*[)\]][ \t]*::=")
_BOUNDS = re.compile(r"\{[ \t]*([0-9]*)[ \t]*(?:(,)[ \t]*([0-9]*)[ \t]*)?\}")
_PLAIN = re.compile(r'[^"\\\r\n]+')
_QUANTIFIERS = {"*": Repeat(0, None), "+": Repeat(1, None), "?": Repeat(0, 1)}
_MACROS = {"ExcludeToken", "Regex", "Substring", "TagDispatch", "Token", "TokenTagDispatch"}


@dataclass
class _Group:
    """An open parenthesis, or the body of a rule."""

    at: int
    alternatives: int = 0
    items: int = 0


@dataclass
class Rule:
    name: str
    at: int
    program: list[Operation] = field(default_factory=list)


def place(text: str, at: int) -> str:
    """Line and column, from 1, of an index."""
    line = text.count("\n", 0, at) + 1
    return f"line {line}, column {at - text.rfind(chr(10), 0, at)}"


class Parser:
    """Reads one grammar; `rules` are filled in the order of the text."""

    def __init__(self, text: str, budget: Budget) -> None:
        self.text = text
        self.budget = budget
        self.rules: dict[str, Rule] = {}

    def parse(self) -> dict[str, Rule]:
        """The rules by name.

        Raises `GrammarError` with line and column at the first thing that is not EBNF.
        """
        at = self._skip(0)
        while at < len(self.text):
            at = self._rule(at)
            check_time()
        if not self.rules:
            self.fail("the grammar has no rules; write `root ::= ...`", 0)
        return self.rules

    def fail(self, message: str, at: int) -> NoReturn:
        raise GrammarError(f"EBNF: {message}", place(self.text, at))

    def _skip(self, at: int) -> int:
        match = _SPACE.match(self.text, at)
        assert match is not None
        return match.end()

    def _rule(self, at: int) -> int:
        """Read the rule that starts here; the index after it."""
        name = _NAME.match(self.text, at)
        if name is None:
            self.fail(f"expected a rule (`name ::= ...`), not {self.text[at]!r}", at)
        defines = _DEFINES.match(self.text, name.end())
        if defines is None:
            if _ATTRIBUTES.match(self.text, name.end()):
                self.fail(f"attributes of a rule ({name[0]!r}) are not supported", name.end())
            self.fail(f"expected `::=` after the name {name[0]!r}", name.end())
        if name[0] in self.rules:
            first = place(self.text, self.rules[name[0]].at)
            self.fail(f"rule {name[0]!r} is defined twice (first at {first})", at)
        rule = self.rules[name[0]] = Rule(name[0], at)
        return self._body(rule.program, self._skip(defines.end()))

    def _body(self, program: list[Operation], at: int) -> int:
        groups = [_Group(at)]
        while at < len(self.text) and not self._starts_rule(at, groups):
            char = self.text[at]
            if char == "(":
                at = self._open(groups, at)
            elif char == ")":
                if len(groups) == 1:
                    self.fail("`)` closes no group", at)
                self._close(program, groups.pop())
                groups[-1].items += 1
                at = self._quantified(program, at + 1)
            elif char == "|":
                self._end_alternative(program, groups[-1])
                at += 1
            else:
                at = self._quantified(program, self._item(program, at))
                groups[-1].items += 1
            at = self._skip(at)
        if len(groups) > 1:
            self.fail("this `(` is never closed", groups[-1].at)
        self._close(program, groups.pop())
        return at

    def _starts_rule(self, at: int, groups: list[_Group]) -> bool:
        name = _NAME.match(self.text, at)
        if name is None or _DEFINES.match(self.text, name.end()) is None:
            return False
        if self.text[self.text.rfind("\n", 0, at) + 1 : at].strip(" \t\r"):
            self.fail(f"rule {name[0]!r} must start on a line of its own", at)
        return True

    def _open(self, groups: list[_Group], at: int) -> int:
        if self.text.startswith("(=", at):
            self.fail("lookahead assertions `(= ...)` are not supported", at)
        if len(groups) > self.budget.nesting:
            self.budget.exceeded("nesting", self.budget.nesting, place(self.text, at))
        groups.append(_Group(at))
        return at + 1

    def _end_alternative(self, program: list[Operation], group: _Group) -> None:
        if group.items != 1:
            program.append(Combine("join", group.items))
        group.alternatives += 1
        group.items = 0

    def _close(self, program: list[Operation], group: _Group) -> None:
        self._end_alternative(program, group)
        if group.alternatives > 1:
            program.append(Combine("either", group.alternatives))

    def _item(self, program: list[Operation], at: int) -> int:
        """Read a literal, a class, `.` or a name; the index after it."""
        char = self.text[at]
        if char == '"':
            return self._literal(program, at)
        if char == "[":
            return self._class(program, at)
        if char == ".":
            program.append(Chars(ALL))
            return at + 1
        if name := _NAME.match(self.text, at):
            if name[0] in _MACROS and self.text.startswith("(", name.end()):
                self.fail(f"the macro {name[0]}(...) is not supported", at)
            program.append(Name(name[0], at))
            return name.end()
        if char == "<" or self.text.startswith("!<", at):
            self.fail("token literals `<...>` are not supported; write the text in quotes", at)
        if char in "*+?{":
            self.fail(f"{char!r} repeats nothing", at)
        if self.text.startswith("::=", at):
            self.fail("`::=` must follow a plain name (attributes are not supported)", at)
        self.fail(f"unexpected {char!r}", at)

    def _quantified(self, program: list[Operation], at: int) -> int:
        """Read the quantifiers of the item just read; the index after them."""
        while (after := self._skip(at)) < len(self.text) and self.text[after] in "*+?{":
            if self.text[after] == "{":
                at = self._bounds(program, after)
            else:
                self._repeat(program, _QUANTIFIERS[self.text[after]])
                at = after + 1
        return at

    def _repeat(self, program: list[Operation], repeat: Repeat) -> None:
        """Add one of `* + ?`; after another of them, one does for both."""
        last = program[-1]
        if isinstance(last, Repeat) and last in _QUANTIFIERS.values():
            unbounded = last.most is None or repeat.most is None
            repeat = Repeat(last.least * repeat.least, None if unbounded else 1)
            program.pop()
        program.append(repeat)

    def _bounds(self, program: list[Operation], at: int) -> int:
        match = _BOUNDS.match(self.text, at)
        if match is None or not (match[1] or match[3]):
            self.fail("a repeat is {m}, {m,}, {m,n} or {,n}", at)
        digits = max(len(match[1]), len(match[3] or ""))
        least, most = (int(bound or 0) if digits < 20 else 0 for bound in (match[1], match[3]))
        if digits >= 20 or max(least, most) > self.budget.repeats:
            self.budget.exceeded("repeats", self.budget.repeats, place(self.text, at))
        if match[3] and most < least:
            self.fail(f"the repeat {match[0]} has its bounds the wrong way round", at)
        bounded = match[3] if match[2] else match[1]
        program.append(Repeat(least, (most if match[2] else least) if bounded else None))
        return match.end()

    def _literal(self, program: list[Operation], start: int) -> int:
        chars: list[str] = []
        at = start + 1
        while (char := self._char_of(start, at, "literal")) != '"':
            if char == "\\":
                point, at = read_code_point(self, at)
                chars.append(chr(point))
            else:
                run = _PLAIN.match(self.text, at)
                assert run is not None
                chars.append(run[0])
                at = run.end()
        program.append(Text("".join(chars).encode()))
        return at + 1

    def _char_of(self, start: int, at: int, what: str) -> str:
        """The character at an index inside a literal or a class, which must not end there."""
        if at >= len(self.text) or self.text[at] in "\r\n":
            self.fail(f"this {what} is never closed (a newline inside is written \\n)", start)
        return self.text[at]

    def _class(self, program: list[Operation], start: int) -> int:
        negated = self.text.startswith("^", start + 1)
        at = start + 1 + negated
        ranges: list[tuple[int, int]] = []
        while self._char_of(start, at, "class") != "]":
            first = at
            low, at = self._class_point(start, at)
            high = low
            if self._char_of(start, at, "class") == "-" and self.text[at + 1 : at + 2] != "]":
                high, at = self._class_point(start, at + 1)
            if high < low:
                self.fail(f"the range {self.text[first:at]} is the wrong way round", first)
            ranges.append((low, high))
        if not ranges and not negated:
            self.fail("an empty class matches nothing; write `[^]` for any character", start)
        points = CharSet(ranges)
        program.append(Chars(~points if negated else points))
        return at + 1

    def _class_point(self, start: int, at: int) -> tuple[int, int]:
        if self._char_of(start, at, "class") == "\\":
            return read_code_point(self, at)
        return ord(self.text[at]), at + 1
