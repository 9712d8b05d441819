"""`Warming`: exploring a grammar ahead, until every mask row that a text can need is built.

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

import numpy as np

from logitkit.grammar.arena import Arena
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
            late = time.monotonic() > deadline
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


def warm(
    warming: Warming,
    budget: Budget,
    seconds: float | None,
    states: int | None,
    row_bytes: int | None,
) -> bool:
    """Run a warming within limits, None being the budget's; whether it is complete.

    GrammarError where one step alone is over the budget: the warming cannot go on then.
    """
    limit = budget.row_bytes if row_bytes is None else row_bytes
    most = budget.states if states is None else min(states, budget.states)
    allowed = budget.seconds if seconds is None else seconds
    with warming.lock:
        return warming.run(time.monotonic() + allowed, most, limit // (4 * warming.arena.words))
