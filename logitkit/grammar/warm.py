"""`Ahead`: building the mask rows of a grammar before they are needed.

The texts that a schema makes likely come first. Then `Warming` explores the grammar until every
mask row that a text can need is built, which takes long where members may come in any order.

What a mask depends on is a state and its callers, as deep as the walk pops them. So the states are
explored *body* by body (what a call starts, up to its return), together with who calls each body
and what it returns; and the rows of a state are built for each list of callers that the walk turns
out to need, beginning with none: it runs on a stack that ends with the node OPEN, and when it pops
that, it is tried again for each caller there is.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from logitkit.grammar.arena import Arena, Configuration, VocabularyLike
from logitkit.grammar.likely import LikelyTexts
from logitkit.grammar.machine import Budget
from logitkit.grammar.memory import (
    BOTTOM,
    CALL,
    CONTROLS,
    DEAD,
    FLAGS,
    LIMIT,
    NO_LIMIT,
    OPEN,
    RETURN,
)
from logitkit.grammar.program import Program

Body = int  # the state that a call starts; the outermost body is the grammar's start
Frame = tuple[int, int]  # site, counter

# Unless the caller says how long: for likely texts, and for what is less likely.
LIKELY_SECONDS, SPARE_SECONDS = 0.08, 0.02


class Warming:
    """How far the exploration of one program got."""

    def __init__(self, arena: Arena, program: Program) -> None:
        self.arena, self.program = arena, program
        self.lock = threading.Lock()
        self.root: Body = program.start
        self._members: dict[Body, set[int]] = defaultdict(set)
        self._callers: dict[Body, set[tuple[Frame, Body]]] = defaultdict(set)
        self._tags: dict[Body, set[int]] = defaultdict(set)
        self._waiting: dict[Body, list[tuple[int, tuple[Frame, ...]]]] = defaultdict(list)
        self._states: deque[tuple[Body, int]] = deque()
        self._rows: deque[tuple[int, tuple[Frame, ...], Body | None]] = deque()
        # What matters near bounds only, and is done last: far states to leave at a counter, and
        # frames that were pushed with such a counter.
        self._far: deque[tuple[Body, int, int]] = deque()
        self._far_frames: deque[tuple[Body, int, int, Body]] = deque()
        self._far_sites: dict[tuple[Body, int, Body], int] = {}
        self.built: set[int] = set()
        self._add(self.root, program.start)

    def run(self, deadline: float, states: int, rows: int) -> bool:
        """Go on until everything is done (True) or a limit is reached."""
        while self._states or self._rows or self._far or self._far_frames:
            late = time.thread_time() > deadline
            if late or self.program.expanded >= states or len(self.built) > rows:
                return False
            with self.arena.lock:
                self.arena.heap.requests += 1
                if self._states:
                    self._explore(*self._states.popleft())
                elif self._rows:
                    self._build(*self._rows.popleft())
                elif self._far:
                    self._leave(*self._far.popleft())
                else:
                    self._call(*self._far_frames.popleft())
        return True

    def _add(self, body: Body, state: int) -> None:
        if state != DEAD and state not in self._members[body]:
            self._members[body].add(state)
            self._states.append((body, state))

    def _explore(self, body: Body, state: int) -> None:
        """Follow every move of a state, and queue its rows."""
        heap = self.arena.heap
        self.program.expand(state)
        codes = set(np.unique(heap.table[state]).tolist())
        if heap.states[state, FLAGS] & CONTROLS:
            codes.update(code for _, code in self.program.controls[state])
        for code in codes:
            if code > 0:
                self._add(body, code)
                continue
            kind, target, amount = heap.ops[-code].tolist()
            if kind == CALL:
                self._call(body, amount, 0, target)
            elif kind == RETURN:
                self._return(body, target)
            else:
                self._add(body, target)
        limit = int(heap.states[state, LIMIT])
        if limit < NO_LIMIT:
            self._far.extend((body, state, limit + i) for i in range(self.arena.horizon))
        self._rows.append((state, (), body))

    def _call(self, caller: Body, site: int, counter: int, body: Body) -> None:
        link = ((site, counter), caller)
        if link in self._callers[body]:
            return
        self._callers[body].add(link)
        self._add(body, body)
        for tag in self._tags[body]:
            self._resume(caller, site, tag, body)
        for state, frames in self._waiting[body]:
            self._rows.append((state, (*frames, link[0]), caller))

    def _return(self, body: Body, tag: int) -> None:
        if tag not in self._tags[body]:
            self._tags[body].add(tag)
            for (site, _), caller in tuple(self._callers[body]):
                self._resume(caller, site, tag, body)

    def _resume(self, caller: Body, site: int, tag: int, body: Body) -> None:
        self._add(caller, self.program.resume(site, tag))
        limit, key = int(self.arena.heap.site_limits[site]), (caller, site, body)
        known = self._far_sites.get(key, NO_LIMIT)
        if limit < known:
            self._far_sites[key] = limit
            end = min(known, limit + self.arena.horizon)
            self._far_frames.extend((caller, site, i, body) for i in range(limit, end))

    def _leave(self, body: Body, state: int, counter: int) -> None:
        self._add(body, self.program.land(state, counter)[0])

    def _build(self, state: int, frames: tuple[Frame, ...], body: Body | None) -> None:
        """Build the row of a state whose innermost callers are known; `body` made the last of them
        (None: there is no further caller)."""
        arena = self.arena
        node = BOTTOM if body is None else OPEN
        for site, counter in reversed(frames):
            node = arena.heap.push(node, site, counter, self.program.owner)
        _, row = arena.locate((state, node, 0))
        if row >= 0:
            self.built.add(row)
            return
        assert body is not None
        if body == self.root:
            self._rows.append((state, frames, None))
        self._waiting[body].append((state, frames))
        for frame, caller in self._callers[body]:
            self._rows.append((state, (*frames, frame), caller))


class Rows(Protocol):
    """What `warm` needs of a grammar."""

    arena: Arena
    program: Program
    vocabulary: VocabularyLike
    budget: Budget

    def visit(self, at: Configuration, tokens: Sequence[int], until: float) -> Iterator[int]:
        """Build the rows along some tokens: their ids."""


class Ahead:
    """The work ahead for one grammar: `texts` first, then everything there is.

    It holds no grammar, so that one without users goes at once.
    """

    def __init__(self, grammar: Rows, texts: LikelyTexts | None) -> None:
        self._texts, self._has_texts = texts, texts is not None
        self._visits = iter(texts or ())
        self._warming = Warming(grammar.arena, grammar.program)
        self._lock = threading.Lock()

    def warm(
        self, grammar: Rows, seconds: float | None, states: int | None, row_bytes: int | None
    ) -> bool:
        """Go on within limits; whether everything is done.

        GrammarError where one step alone is over the budget: the work cannot go on then.
        """
        budget, began = grammar.budget, time.thread_time()
        most = budget.states if states is None else min(states, budget.states)
        room = budget.row_bytes if row_bytes is None else row_bytes
        rows = room // (4 * grammar.arena.words)
        until = spare_until = began + (budget.seconds if seconds is None else seconds)
        if seconds is None and self._has_texts:
            until = min(until, began + LIKELY_SECONDS)
            spare_until = min(until, began + SPARE_SECONDS)
        with self._lock:
            if not self._go_through_texts(grammar, until, spare_until, most, rows):
                return False
            return self._warming.run(spare_until, most, rows)

    def _go_through_texts(
        self, grammar: Rows, until: float, spare_until: float, states: int, rows: int
    ) -> bool:
        """Build the rows of the likely texts; whether all are done."""
        texts, built = self._texts, self._warming.built
        if texts is None:
            return True
        while True:
            end, now = spare_until if texts.spare else until, time.thread_time()
            if now >= end or grammar.program.expanded >= states or len(built) > rows:
                return False
            texts.cut_at((now + end) / 2)  # the other half is for going through the text
            with grammar.budget.running():
                visit = next(self._visits, None)
            if visit is None:
                self._texts = None
                return True
            text, size = visit.text, 1 if visit.bytewise else max(len(visit.text), 1)
            pieces = [text[i : i + size] for i in range(0, len(text), size)]
            tokens = [token for piece in pieces for token in grammar.vocabulary.tokenize(piece)]
            with grammar.budget.running():
                built.update(grammar.visit(visit.at, tokens, end))
