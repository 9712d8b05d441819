"""`Program`: a regular expression as a nondeterministic automaton that is made while it runs.

Below `match`. A place is a `Cont`: a syntax node and what comes after it. Repeats of one character
set keep a count beside their place; any other repeat counts in its `Cont`, so it is unrolled as it
is entered.
"""

from __future__ import annotations

from logitkit.grammar.strings.charset import ALL, CharSet
from logitkit.grammar.strings.syntax import (
    Ahead,
    Behind,
    Chars,
    Concat,
    Node,
    Repeat,
    Union,
)

SHORTEST_COUNTED = 16  # a repeat of one character set is worth a counter from here on

Item = tuple["Cont", int]  # a place before a character, how often its repeat has run
Closed = tuple[tuple[Item, ...], bool]  # places before a character, whether the text may end


class Cont:
    """The rest of a match: `node`, then `rest` (None: the end). Interned by its program.

    `charset` is set where the node reads one character, with `low` and `high` (-1: no bound) where
    it repeats it. `counts`: the repeat is long enough to be worth a counter of the engine.
    `least`: characters that a match still needs at least, `after` without the node's own.
    """

    __slots__ = (
        "after",
        "charset",
        "closed",
        "count",
        "counts",
        "high",
        "least",
        "low",
        "node",
        "repeats",
        "rest",
    )

    least: int

    def __init__(self, node: Node, rest: Cont | None, count: int):
        self.node, self.rest, self.count = node, rest, count
        self.closed: Closed | None = None
        self.after = rest.least if rest else 0
        done = count * node.body.least if isinstance(node, Repeat) else 0
        self.least = self.after + max(node.least - done, 0)
        self.charset: CharSet | None = None
        self.repeats, self.counts, self.low, self.high = False, False, 1, 1
        if isinstance(node, Chars):
            self.charset = node.charset
        elif isinstance(node, Repeat) and isinstance(node.body, Chars):
            self.charset = node.body.charset
            self.repeats, self.low = True, node.low
            self.high = -1 if node.high is None else node.high
            self.counts = max(self.low, self.high) >= SHORTEST_COUNTED


class Program:
    """A syntax tree with the places in it that were visited.

    `plain`: no assertion is left, so every place can still lead to a match.
    """

    def __init__(self, root: Node):
        self.plain = root.plain
        self._conts: dict[tuple[Node, Cont | None, int], Cont] = {}
        self.charsets, self.behind = _collect(root)
        self.root = self.cont(root, None)
        self._longest: tuple[int | None] | None = None

    @property
    def longest(self) -> int | None:
        """No match has more characters; None: there is no bound."""
        if self._longest is None:
            self._longest = (_longest(self.root.node),)
        return self._longest[0]

    def cont(self, node: Node, rest: Cont | None, count: int = 0) -> Cont:
        key = (node, rest, count)
        found = self._conts.get(key)
        return found or self._conts.setdefault(key, Cont(node, rest, count))


def _collect(root: Node) -> tuple[frozenset[CharSet], frozenset[CharSet]]:
    """The character sets of a tree, and those that it looks behind for."""
    charsets: set[CharSet] = set()
    behind: set[CharSet] = set()
    stack: list[Node] = [root]
    seen: set[Node] = set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, Chars):
            charsets.add(node.charset)
        elif isinstance(node, Behind):
            behind.add(node.charset)
        elif isinstance(node, Concat | Union):
            stack += node.parts
        elif isinstance(node, Repeat | Ahead):
            stack.append(node.body)
            if isinstance(node, Ahead):
                charsets.add(ALL)
    return frozenset(charsets | behind), frozenset(behind)


def _longest(root: Node) -> int | None:
    """The most characters of a match; assertions, which only rule matches out, do not count."""
    known: dict[Node, int | None] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        inner = node.parts if isinstance(node, Concat | Union) else ()
        if isinstance(node, Repeat):
            inner = (node.body,)
        missing = [part for part in inner if part not in known]
        if missing:
            stack += missing
            continue
        stack.pop()
        lengths = [length for part in inner if (length := known[part]) is not None]
        if len(lengths) < len(inner):
            known[node] = None
        elif isinstance(node, Repeat):
            known[node] = None if node.high is None else lengths[0] * node.high
        elif isinstance(node, Union):
            known[node] = max(lengths, default=0)
        else:
            known[node] = 1 if isinstance(node, Chars) else sum(lengths)
    return known[root]
