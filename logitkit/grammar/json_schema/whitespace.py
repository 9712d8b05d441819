"""Whitespace between the tokens of a document, as states of their own, for `machine`.

A gap between two tokens has a whitespace state w, 0 where nothing was read; `gap` says what may
come next. With an indent n, a document is spelled exactly as `json.dumps(value, indent=n)` does:
every member and item on its own line, `": "`, a bare comma, `{}` and `[]` for empty ones. The
number of spaces then depends on the depth, which is part of a frame's states.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from logitkit.errors import GrammarError

OPEN, BEFORE_COLON, AFTER_COLON, NEXT, AFTER = range(5)  # where: after `[` or `{`; ...; after `,`
MAX_INDENT = 20  # spaces or tabs after a newline
SPACE, TAB, NEWLINE, RETURN = 0x20, 0x09, 0x0A, 0x0D


class Gap(NamedTuple):
    """`moves`: whitespace (first, last, next w); `inner`: a key, value, comma or colon may come;
    `close`: a closing bracket may come."""

    moves: tuple[tuple[int, int, int], ...]
    inner: bool
    close: bool


class Whitespace:
    """One policy; `deep`: whether frames must know their depth.

    `kin`: the whitespace states that differ from state `first` only in where they lead by the
    bytes `places`: `leads` in the numbers of `machine.Kin`.
    """

    deep = False
    first = 2

    def __init__(self, gaps: Sequence[Gap]) -> None:
        self._gaps = gaps
        known = [*range(self.first, len(gaps)), 1]
        self.kin = known[1:] if len(gaps) > self.first else []
        self.places = np.array([TAB, SPACE])
        self.leads = np.full((len(self.kin), 2), -1)
        for number, w in enumerate(self.kin):
            for byte, _, to in gaps[w].moves:
                self.leads[number, self.places == byte] = known.index(to)

    def gap(self, where: int, depth: int, w: int, inner: bool, close: bool) -> Gap:
        """What comes next; `inner` and `close`: whether such tokens are possible here at all."""
        return self._gaps[w]


class Indent(Whitespace):
    """As `json.dumps(indent=size)` writes."""

    deep = True

    def __init__(self, size: int) -> None:
        super().__init__(())
        self._size = size

    def gap(self, where: int, depth: int, w: int, inner: bool, close: bool) -> Gap:
        if where == BEFORE_COLON:
            return Gap((), True, False)
        if where == AFTER_COLON:
            return Gap((), True, False) if w else Gap(((SPACE, SPACE, 1),), False, False)
        wanted = 1 + self._size * (depth if where == AFTER else depth + 1)
        line = close if where == AFTER else inner
        if w == 0:
            moves = ((NEWLINE, NEWLINE, 1),) if line else ()
            return Gap(moves, where == AFTER, where == OPEN)
        if w < wanted:
            return Gap(((SPACE, SPACE, w + 1),), False, False)
        return Gap((), where != AFTER, where == AFTER)


@lru_cache(maxsize=64)
def whitespace(mode: str | int, alphabet: tuple[bool, ...]) -> Whitespace:
    """The policy of `JsonSchema.whitespace`, with the bytes that can be spelled."""
    if mode == "compact":
        return Whitespace([Gap((), True, True)])
    if mode == "any":
        blanks = [b for b in (TAB, NEWLINE, RETURN, SPACE) if alphabet[b]]
        return Whitespace([Gap(tuple((b, b, 0) for b in blanks), True, True)])
    if mode == "default":
        return Whitespace(_default(alphabet))
    assert isinstance(mode, int)
    if not (alphabet[NEWLINE] and alphabet[SPACE]):
        raise GrammarError(
            f"`whitespace`={mode} needs newline and space, which no token of the vocabulary "
            "spells; use whitespace='compact'"
        )
    return Indent(mode)


def _default(alphabet: Sequence[bool]) -> list[Gap]:
    """w = 1: full; w = 2 + i: a newline and i spaces or tabs."""
    start = [(NEWLINE, NEWLINE, 2), (SPACE, SPACE, 1)]
    gaps = [start, []]
    for used in range(MAX_INDENT):
        to = 1 if used + 1 == MAX_INDENT else used + 3
        gaps.append([(TAB, TAB, to), (SPACE, SPACE, to)])
    return [Gap(tuple(m for m in moves if alphabet[m[0]]), True, True) for moves in gaps]
