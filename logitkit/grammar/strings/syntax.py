"""The syntax tree of a regular expression, and the smart constructors that keep it small.

Made by `parse` and `formats`, run by `program`. Nodes are compared by identity.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from logitkit.grammar.strings.charset import ALL, CharSet


@dataclass(frozen=True, eq=False)
class Node:
    """`nullable`: matches the empty string wherever it stands; `plain`: holds no assertion;
    `least`: the characters of its shortest match at least."""

    nullable: bool
    plain: bool
    least: int


@dataclass(frozen=True, eq=False)
class Chars(Node):
    """One character out of a set that is not empty."""

    charset: CharSet


@dataclass(frozen=True, eq=False)
class Concat(Node):
    parts: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Union(Node):
    """At least one of `parts`; without any it matches nothing."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Repeat(Node):
    """`body` at least `low` and at most `high` times (None: any number); `high` is not 0."""

    body: Node
    low: int
    high: int | None


@dataclass(frozen=True, eq=False)
class AtStart(Node):
    """Nothing was read before."""


@dataclass(frozen=True, eq=False)
class AtEnd(Node):
    """Nothing follows."""


@dataclass(frozen=True, eq=False)
class Behind(Node):
    """The character before is in `charset` (`negate`: is not, or there is none)."""

    charset: CharSet
    negate: bool


@dataclass(frozen=True, eq=False)
class Ahead(Node):
    """What follows starts with `body` (`negate`: does not)."""

    body: Node
    negate: bool


EPSILON = Concat(True, True, 0, ())
NOTHING = Union(False, True, 0, ())
START = AtStart(False, False, 0)
END = AtEnd(False, False, 0)


@lru_cache(4096)
def one_of(charset: CharSet) -> Node:
    """One character of the set; nothing at all if it is empty."""
    return Chars(False, True, 1, charset) if charset else NOTHING


def concat(parts: list[Node]) -> Node:
    """The parts one after another."""
    flat: list[Node] = []
    for part in parts:
        if part is NOTHING:
            return NOTHING
        if isinstance(part, Concat):
            flat += part.parts
        else:
            flat.append(part)
    if len(flat) == 1:
        return flat[0]
    if not flat:
        return EPSILON
    nullable = all(part.nullable for part in flat)
    plain = all(part.plain for part in flat)
    return Concat(nullable, plain, sum(part.least for part in flat), tuple(flat))


def union(parts: list[Node]) -> Node:
    """Any of the parts; single characters are merged into one set."""
    flat: dict[Node, None] = {}
    ranges: list[tuple[int, int]] = []
    for part in parts:
        for branch in part.parts if isinstance(part, Union) else (part,):
            if isinstance(branch, Chars):
                ranges += branch.charset.ranges
            else:
                flat[branch] = None
    branches = list(flat)
    if ranges:
        branches.append(one_of(CharSet(ranges)))
    if len(branches) == 1:
        return branches[0]
    if not branches:
        return NOTHING
    nullable = any(branch.nullable for branch in branches)
    plain = all(branch.plain for branch in branches)
    return Union(nullable, plain, min(branch.least for branch in branches), tuple(branches))


def repeat(body: Node, low: int, high: int | None) -> Node:
    """`body` from `low` to `high` times; counts that change nothing are normalised."""
    if high == 0 or body is EPSILON:
        return EPSILON
    if body is NOTHING:
        return EPSILON if low == 0 else NOTHING
    if low == high == 1:
        return body
    if body.nullable:
        low = 0
    if isinstance(body, Repeat) and body.low <= 1 and body.plain:
        # (x{0,a}){m,n} and (x{1,a}){m,n} are again repeats of x: their counts have no gaps.
        unbounded = high is None or body.high is None
        return repeat(
            body.body, body.low * low, None if unbounded else (body.high or 0) * (high or 0)
        )
    return Repeat(low == 0, body.plain, body.least * low, body, low, high)


def ahead(body: Node, negate: bool) -> Node:
    """A lookahead, decided where that is possible."""
    if body.nullable:
        return NOTHING if negate else EPSILON
    if body is NOTHING:
        return EPSILON if negate else NOTHING
    return Ahead(False, False, 0, body, negate)


def behind(charset: CharSet, negate: bool) -> Node:
    return Behind(False, False, 0, charset, negate)


ANYTHING = repeat(one_of(ALL), 0, None)


def searching(root: Node) -> Node:
    """A full match of this tree is a match of `root` somewhere: anchors are resolved by branch."""
    branches = root.parts if isinstance(root, Union) else (root,)
    searched: list[Node] = []
    for branch in branches:
        parts = list(branch.parts) if isinstance(branch, Concat) else [branch]
        front, back = parts[:1] == [START], parts[-1:] == [END]
        while parts[:1] == [START]:
            parts = parts[1:]
        while parts[-1:] == [END]:
            parts = parts[:-1]
        searched.append(
            concat([*([] if front else [ANYTHING]), *parts, *([] if back else [ANYTHING])])
        )
    return union(searched)
