"""Possessive quantifiers and atomic groups: dropped where they change nothing, else refused.

Used by `parse`. They change nothing where the next character always decides how a match goes on.
"""

from __future__ import annotations

from dataclasses import dataclass

from logitkit.grammar.strings import syntax
from logitkit.grammar.strings.charset import ALL, EMPTY, CharSet
from logitkit.grammar.strings.escapes import Reader
from logitkit.grammar.strings.syntax import Ahead, Chars, Concat, Node, Repeat, Union

DEEPEST = 100


@dataclass(frozen=True, eq=False)
class Atomic(Node):
    """`body`, without going back into it once it has matched; `start` is its place."""

    body: Node
    start: int


def resolve(root: Node, reader: Reader) -> Node:
    """The tree without atomic groups; GrammarError if one of them changes the language."""
    return root if root.plain or not _holds_atomic(root) else _resolve(root, EMPTY, reader, 0)


def _holds_atomic(root: Node) -> bool:
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, Atomic):
            return True
        stack += _children(node)
    return False


def _children(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Concat | Union):
        return node.parts
    return (node.body,) if isinstance(node, Repeat | Ahead | Atomic) else ()


def _resolve(node: Node, follow: CharSet, reader: Reader, depth: int) -> Node:
    if depth > DEEPEST:
        reader.fail(f"groups nest more than {DEEPEST} deep beside a possessive quantifier")
    if isinstance(node, Atomic):
        body = _resolve(node.body, follow, reader, depth + 1)
        if not _decided(body, follow):
            reader.fail(
                "a possessive quantifier or atomic group that changes what matches is refused",
                node.start,
            )
        return body
    if isinstance(node, Concat):
        parts: list[Node] = []
        for part in reversed(node.parts):
            parts.append(_resolve(part, follow, reader, depth + 1))
            follow = _after(part, follow)
        return syntax.concat(parts[::-1])
    if isinstance(node, Union):
        return syntax.union([_resolve(part, follow, reader, depth + 1) for part in node.parts])
    if isinstance(node, Repeat):
        first, _ = _first(node.body)
        body = _resolve(node.body, follow | first, reader, depth + 1)
        return syntax.repeat(body, node.low, node.high)
    if isinstance(node, Ahead):
        return syntax.ahead(_resolve(node.body, ALL, reader, depth + 1), node.negate)
    return node


def _first(node: Node) -> tuple[CharSet, bool]:
    """The characters that a match can begin with, and whether it may be empty."""
    if isinstance(node, Chars):
        return node.charset, False
    if isinstance(node, Concat):
        found = EMPTY
        for part in node.parts:
            first, empty = _first(part)
            found |= first
            if not empty:
                return found, False
        return found, True
    if isinstance(node, Union):
        pairs = [_first(part) for part in node.parts]
        union = CharSet(span for charset, _ in pairs for span in charset.ranges)
        return union, any(empty for _, empty in pairs)
    if isinstance(node, Repeat):
        first, empty = _first(node.body)
        return first, empty or node.low == 0
    if isinstance(node, Atomic):
        return _first(node.body)
    return EMPTY, True


def _after(part: Node, follow: CharSet) -> CharSet:
    first, empty = _first(part)
    return first | follow if empty else first


def _decided(node: Node, follow: CharSet) -> bool:
    """Whether the next character always decides how a match of `node` goes on."""
    if isinstance(node, Chars):
        return True
    if isinstance(node, Concat):
        for part in reversed(node.parts):
            if not _decided(part, follow):
                return False
            follow = _after(part, follow)
        return True
    if isinstance(node, Union):
        seen = follow if any(_first(part)[1] for part in node.parts) else EMPTY
        for part in node.parts:
            first, _ = _first(part)
            if first & seen or not _decided(part, follow):
                return False
            seen |= first
        return sum(_first(part)[1] for part in node.parts) <= 1
    if isinstance(node, Repeat):
        first, empty = _first(node.body)
        if empty or not _decided(node.body, follow | first):
            return False
        return node.low == node.high or not (first & follow)
    return False
