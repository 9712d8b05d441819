"""Regular expressions as text -> syntax tree, in the dialects "python" and "ecma".

Iterative: groups are a stack of frames, so nesting costs no recursion. What would make the language
irregular is refused by name, with the position in the pattern.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from logitkit.errors import GrammarError
from logitkit.grammar.strings import syntax, unicode_sets
from logitkit.grammar.strings.atomic import Atomic, resolve
from logitkit.grammar.strings.charset import single
from logitkit.grammar.strings.escapes import (
    Flags,
    Reader,
    any_char,
    bracket,
    char_class,
    escape,
    folded,
)
from logitkit.grammar.strings.syntax import START, Chars, Node

Dialect = Literal["python", "ecma"]

LONGEST = 100_000  # characters of a pattern
MOST_LOOKAHEADS = 20  # inside one another
MOST_UNROLLED = 10_000  # repeats of a group that holds assertions

QUANTIFIER = re.compile(r"\{(\d*)(,?)(\d*)\}")
# Python's `$`: the end, or before a newline that ends the text.
LINE_END = syntax.union(
    [
        syntax.END,
        syntax.ahead(syntax.concat([syntax.one_of(unicode_sets.NEWLINE), syntax.END]), False),
    ]
)


@dataclass
class Frame:
    """An open group: what closes it, and what was read of it."""

    kind: str  # "" | "atomic" | "ahead" | "not ahead" | "behind" | "not behind"
    start: int
    flags: Flags
    lazy: int = 0  # lazy quantifiers before the group
    branches: list[Node] = field(default_factory=list)
    parts: list[Node] = field(default_factory=list)
    repeatable: bool = False  # the last part may take a quantifier
    lazy_before: int = 0  # lazy quantifiers before the last part

    def body(self) -> Node:
        return syntax.union([*self.branches, syntax.concat(self.parts)])


class Parser:
    """One pass over a pattern."""

    def __init__(self, text: str, dialect: Dialect, where: str | None, nesting: int):
        self.reader = Reader(text, where)
        self.nesting = nesting
        self.lookaheads = 0
        self.names: set[str] = set()
        self.lazy = 0
        self.stack = [Frame("", 0, Flags(ecma=dialect == "ecma"))]
        if len(text) > LONGEST:
            raise GrammarError(
                f"the regex has {len(text)} characters, and at most {LONGEST} are read: shorten "
                "it (a list of texts is an lk.Choice, rules that repeat are an lk.Ebnf)",
                where,
            )

    @property
    def frame(self) -> Frame:
        return self.stack[-1]

    def parse(self) -> Node:
        reader = self.reader
        while reader.at < len(reader.text):
            self._next()
        if len(self.stack) > 1:
            reader.fail("the group is never closed; `)` is missing", self.frame.start)
        return resolve(self.frame.body(), reader)

    def _add(self, node: Node, repeatable: bool = True, lazy_before: int | None = None) -> None:
        self.frame.parts.append(node)
        self.frame.repeatable = repeatable
        self.frame.lazy_before = self.lazy if lazy_before is None else lazy_before

    def _next(self) -> None:
        reader, frame = self.reader, self.frame
        flags = frame.flags
        start = reader.at
        char = reader.take()
        if char == "\\":
            self._escape(start)
        elif char == "[":
            self._add(syntax.one_of(bracket(reader, flags)))
        elif char == ".":
            self._add(syntax.one_of(any_char(flags)))
        elif char == "|":
            frame.branches.append(syntax.concat(frame.parts))
            frame.parts, frame.repeatable = [], False
        elif char == "(":
            self._open(start)
        elif char == ")":
            self._close(start)
        elif char in "*+?" or (char == "{" and self._counted(start)):
            self._repeat(char, start)
        elif char == "^":
            self._add(self._line_start(flags), repeatable=False)
        elif char == "$":
            self._add(self._line_end(flags), repeatable=False)
        elif flags.verbose and char in " \t\n\r\f\v":
            pass
        elif flags.verbose and char == "#":
            end = reader.text.find("\n", reader.at)
            reader.at = len(reader.text) if end < 0 else end + 1
        else:
            self._add(syntax.one_of(folded(single(char), flags)))

    def _line_start(self, flags: Flags) -> Node:
        if not flags.multiline:
            return START
        ends = unicode_sets.ECMA_LINE_ENDS if flags.ecma else unicode_sets.NEWLINE
        return syntax.union([START, syntax.behind(ends, False)])

    def _line_end(self, flags: Flags) -> Node:
        if flags.multiline:
            ends = unicode_sets.ECMA_LINE_ENDS if flags.ecma else unicode_sets.NEWLINE
            return syntax.union([syntax.END, syntax.ahead(syntax.one_of(ends), False)])
        return syntax.END if flags.ecma else LINE_END

    # -- escapes

    def _escape(self, start: int) -> None:
        reader, flags = self.reader, self.frame.flags
        letter = reader.peek()
        if letter in ("b", "B"):
            reader.at += 1
            self._add(_boundary(flags, letter == "B"), repeatable=False)
        elif letter in ("A", "Z") and not flags.ecma:
            reader.at += 1
            self._add(START if letter == "A" else syntax.END, repeatable=False)
        elif letter == "k" and flags.ecma:
            reader.fail("the backreference `\\k` is refused: it is not regular", start)
        else:
            octal = not flags.ecma and re.match(r"[0-3][0-7][0-7]", reader.peek(3))
            if letter and letter in "123456789" and not octal:
                reader.fail(f"the backreference `\\{letter}` is refused: it is not regular", start)
            found = escape(reader, flags, in_class=False)
            if isinstance(found, int):
                found = folded(single(chr(found)), flags)
            self._add(syntax.one_of(found))

    # -- groups

    def _open(self, start: int) -> None:
        reader, flags = self.reader, self.frame.flags
        kind = ""
        if reader.eat("?"):
            if reader.eat("#") and not flags.ecma:
                reader.until(")", start)
                return
            opened = self._extension(start)
            if opened is None:
                return
            kind, flags = opened
        if len(self.stack) > self.nesting:
            reader.fail(
                f"groups nest more than `nesting`={self.nesting} deep; simplify the pattern, or "
                f"raise the budget: compile_grammar(..., budget=Budget(nesting=...))",
                start,
            )
        if kind.endswith("ahead"):
            self.lookaheads += 1
            if self.lookaheads > MOST_LOOKAHEADS:
                reader.fail(f"lookaheads nest more than {MOST_LOOKAHEADS} deep", start)
        self.stack.append(Frame(kind, start, flags, self.lazy))

    def _extension(self, start: int) -> tuple[str, Flags] | None:
        """What stands behind `(?`: the kind of the group and its flags; None for bare flags."""
        reader, flags = self.reader, self.frame.flags
        for opening, kind in (
            (":", ""),
            ("=", "ahead"),
            ("!", "not ahead"),
            ("<=", "behind"),
            ("<!", "not behind"),
        ):
            if reader.eat(opening):
                return kind, flags
        if reader.eat(">"):
            if flags.ecma:
                reader.fail("ECMA-262 has no atomic groups", start)
            return "atomic", flags
        if reader.eat("P=") or reader.eat("("):
            what = "the backreference" if reader.text[reader.at - 1] == "=" else "the conditional"
            reader.fail(f"{what} is refused: it is not regular", start)
        if reader.eat("<" if flags.ecma else "P<"):
            name = reader.until(">", start)
            if not re.fullmatch(r"[^\W\d]\w*", name.replace("$", "_")):
                reader.fail(f"`{name}` is no name for a group", start)
            if name in self.names and not flags.ecma:
                reader.fail(f"the group name `{name}` is used twice", start)
            self.names.add(name)
            return "", flags
        return self._inline_flags(start)

    def _inline_flags(self, start: int) -> tuple[str, Flags] | None:
        reader, flags = self.reader, self.frame.flags
        found = re.compile(r"([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])").match(reader.text, reader.at)
        known = "ism" if flags.ecma else "aimsux"
        if not found or not (found[1] or found[2]):
            reader.fail(f"`(?{reader.peek()}` opens no kind of group that is known", start)
        on, off, closing = found[1], found[2] or "", found[3]
        for letter in on + off:
            if letter not in known:
                reader.fail(f"the flag `{letter}` is not supported; these are: {known}", start)
        if flags.ecma and closing == ")":
            reader.fail("ECMA-262 has no flags for a whole pattern; write `(?i:...)`", start)
        if flags.ecma and "i" in on:
            reader.fail("the flag `i` is only supported in the dialect python", start)
        reader.at = found.end()
        flags = flags.using(on, True).using(off, False)
        if closing == ":":
            return "", flags
        if start != 0 or off:
            reader.fail("flags for the whole pattern stand at its start and only switch on", start)
        self.frame.flags = flags
        return None

    def _close(self, start: int) -> None:
        if len(self.stack) == 1:
            self.reader.fail("`)` closes no group; write `\\)` for a parenthesis", start)
        frame = self.stack.pop()
        body = frame.body()
        kind = frame.kind
        if kind == "atomic":
            if self.lazy != frame.lazy:
                self.reader.fail("a lazy quantifier in an atomic group is refused", frame.start)
            body = Atomic(body.nullable, False, body.least, body, frame.start)
        elif kind.endswith("ahead"):
            self.lookaheads -= 1
            body = syntax.ahead(body, kind.startswith("not"))
        elif kind.endswith("behind"):
            if not isinstance(body, Chars):
                self.reader.fail(
                    "a lookbehind is refused unless it is for one character", frame.start
                )
            body = syntax.behind(body.charset, kind.startswith("not"))
        looks = kind.endswith(("ahead", "behind"))
        self._add(body, not (looks and frame.flags.ecma), frame.lazy)

    # -- quantifiers

    def _counted(self, start: int) -> bool:
        """Whether `{` opens a quantifier; if not it is a literal, as in every engine."""
        found = QUANTIFIER.match(self.reader.text, start)
        if not found or not (found[1] or found[3] or (found[2] and not self.frame.flags.ecma)):
            return False
        return bool(found[1]) or not self.frame.flags.ecma

    def _repeat(self, char: str, start: int) -> None:
        reader, frame = self.reader, self.frame
        low, high = {"*": (0, None), "+": (1, None), "?": (0, 1), "{": (0, None)}[char]
        if char == "{":
            found = QUANTIFIER.match(reader.text, start)
            assert found
            if max(len(found[1]), len(found[3])) > 18:
                reader.fail("the number in the quantifier is too large", start)
            low = int(found[1] or 0)
            high = (int(found[3]) if found[3] else None) if found[2] else low
            if high is not None and low > high:
                reader.fail(f"the quantifier's {low} is above its {high}", start)
            reader.at = found.end()
        if not frame.repeatable:
            reader.fail(f"there is nothing to repeat before `{char}`", start)
        body = frame.parts.pop()
        if not body.plain and max(low, high or 0) > MOST_UNROLLED:
            reader.fail(f"more than {MOST_UNROLLED} repeats of a group with assertions", start)
        node = syntax.repeat(body, low, high)
        if reader.eat("?"):
            self.lazy += 1
        elif not frame.flags.ecma and reader.eat("+"):
            if self.lazy != frame.lazy_before:
                reader.fail("a lazy quantifier under a possessive one is refused", start)
            node = Atomic(node.nullable, False, node.least, node, start)
        self._add(node, repeatable=False)


def _boundary(flags: Flags, negate: bool) -> Node:
    r"""`\b` or `\B` out of looking behind and ahead for a word character."""
    words = char_class("w", flags)
    others = ~words
    after, before = syntax.one_of(words), words
    same = [syntax.concat([syntax.behind(before, False), syntax.ahead(after, False)])]
    if flags.ecma:
        same.append(syntax.concat([syntax.behind(before, True), syntax.ahead(after, True)]))
    else:
        # Python's \B does not match in an empty text.
        same.append(syntax.concat([START, syntax.ahead(syntax.one_of(others), False)]))
        same.append(syntax.concat([syntax.behind(others, False), syntax.ahead(after, True)]))
    if negate:
        return syntax.union(same)
    return syntax.union(
        [
            syntax.concat([syntax.behind(before, True), syntax.ahead(after, False)]),
            syntax.concat([syntax.behind(before, False), syntax.ahead(after, True)]),
        ]
    )


def parse(
    text: str, dialect: Dialect, *, search: bool, where: str | None, nesting: int = 1_000
) -> Node:
    """The syntax tree whose full matches are the texts that `text` matches (`search`: in which it
    matches somewhere). GrammarError with the position where it is wrong or not regular."""
    root = Parser(text, dialect, where, nesting).parse()
    return syntax.searching(root) if search else full(root)


def full(root: Node) -> Node:
    """The tree without the anchors that a full match makes true."""
    branches = []
    for branch in (
        root.parts if isinstance(root, syntax.Union) and root is not LINE_END else (root,)
    ):
        parts = list(branch.parts) if isinstance(branch, syntax.Concat) else [branch]
        while parts and parts[0] is START:
            parts = parts[1:]
        while parts and parts[-1] in (syntax.END, LINE_END):
            parts = parts[:-1]
        branches.append(syntax.concat(parts))
    return syntax.union(branches)
