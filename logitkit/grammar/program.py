"""`Program`: one machine inside an arena, its keys interned as global ids, expanded on demand."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from logitkit.grammar.heap import TABLE_BYTES, Heap
from logitkit.grammar.machine import (
    Budget,
    Call,
    Expansion,
    Key,
    Kin,
    Machine,
    Move,
    Step,
    check_time,
    is_timed,
)
from logitkit.grammar.memory import (
    ADD,
    CALL,
    CONTROL,
    CONTROLS,
    DEAD,
    FINAL,
    FLAGS,
    LAND,
    LIMIT,
    NO_LIMIT,
    PUT,
    RESUME,
    RETURN,
    ROOM,
    UNEXPANDED,
)

Ints = NDArray[np.int32]
P = ParamSpec("P")
R = TypeVar("R")

KEY_BYTES = 600  # of a state's key and its place in the dictionaries, roughly


class Program:
    """A machine's states, call sites, tags and operations; callers hold the arena's lock."""

    def __init__(
        self,
        machine: Machine,
        budget: Budget,
        heap: Heap,
        owner: int,
        controls: Mapping[str, tuple[int, ...]],
    ) -> None:
        self.machine, self.budget, self.owner = machine, budget, owner
        self._heap, self._control_ids = heap, controls
        self.states: dict[Key, int] = {}
        self.keys: dict[int, Key] = {}
        self.sites: dict[Key, int] = {}
        self.site_keys: dict[int, Key] = {}
        self.tags: dict[Key, int] = {}
        self.tag_keys: list[Key] = []
        self.codes: dict[Move, int] = {}
        self.controls: dict[int, list[tuple[int, int]]] = {}  # state -> (token, code)
        self.expanded = 0
        self._request, self._spent = -1, 0.0  # the seconds that the machine took for this request
        self.pinned: NDArray[np.int64] = np.empty(0, np.int64)  # rows that must stay
        self.start = self.state(machine.start)

    @property
    def nbytes(self) -> int:
        return len(self.keys) * (TABLE_BYTES + KEY_BYTES)

    def state(self, key: Key) -> int:
        """The id of a key."""
        state = self.states.get(key)
        if state is None:
            state = self._heap.new_state(self.owner)
            self.keys[state] = key
            self.states[key] = state
        return state

    def _site(self, key: Key) -> int:
        site = self.sites.get(key)
        if site is None:
            site = self._heap.new_site(self.owner)
            self.site_keys[site] = key
            self.sites[key] = site
        return site

    def _tag(self, key: Key) -> int:
        tag = self.tags.get(key)
        if tag is None:
            tag = len(self.tag_keys)
            self.tag_keys.append(key)
            self.tags[key] = tag
        return tag

    def _code(self, move: Move) -> int:
        """The table's code for a move."""
        if type(move) is Step and move.put is None and not move.add:
            return self.state(move.key)
        code = self.codes.get(move)
        if code is not None:
            return code
        if isinstance(move, Step):
            kind, amount = (ADD, move.add) if move.put is None else (PUT, move.put)
            code = -self._heap.new_op(kind, self.state(move.key), amount)
        elif isinstance(move, Call):
            code = -self._heap.new_op(CALL, self.state(move.key), self._site(move.site))
        else:
            code = -self._heap.new_op(RETURN, self._tag(move.tag), 0)
        self.codes[move] = code
        return code

    def _asked(self, ask: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """What the machine answers; GrammarError once it took too long for this request."""
        if is_timed():  # by whoever does all of the request
            check_time()
            return ask(*args, **kwargs)
        if self._request != self._heap.requests:
            self._request, self._spent = self._heap.requests, 0.0
        began = time.thread_time()
        with self.budget.running(self._spent):
            check_time()
            try:
                return ask(*args, **kwargs)
            finally:
                self._spent += time.thread_time() - began

    def expand(self, state: int, expansion: Expansion | None = None) -> None:
        """Fill the table's row of a state, with what the machine says of it if that is known.

        Raises GrammarError when a budget is used up.
        """
        heap = self._heap
        if heap.states[state, LIMIT] != UNEXPANDED:
            return
        if self.expanded >= self.budget.states:
            self.budget.exceeded("states", self.budget.states)
        if expansion is None:
            expansion = self._asked(self.machine.expand, self.keys[state])
        row = np.zeros(256, np.int32)
        row.fill(DEAD)
        for low, high, move in expansion.moves:
            row[low : high + 1] = self._code(move)
        flags = expansion.slices | (FINAL if expansion.final else 0)
        if expansion.room is not None:
            flags |= (expansion.room + 1) << ROOM
        if expansion.controls:
            flags |= self._take_controls(state, expansion.controls)
        limit = NO_LIMIT if expansion.limit is None else max(expansion.limit, 0)
        if expansion.kin is not None:
            self._expand_kin(state, row, expansion.kin, flags, limit)
        heap.table[state] = row  # at once, as an interrupt must not leave half of it
        heap.states[state, FLAGS] = flags
        heap.states[state, LIMIT] = limit
        self.expanded += 1

    def _take_controls(self, state: int, controls: Sequence[tuple[str, Move]]) -> int:
        """Note the control tokens that a state takes; the flag that says so, if it takes any."""
        taken = [
            (token, self._code(move))
            for text, move in controls
            for token in self._control_ids.get(text, ())
        ]
        if not taken:
            return 0
        self.controls[state] = taken
        for token, code in taken:
            self._heap.put(state * 8 + CONTROL, token, 0, code, 0, self.owner)
        return CONTROLS

    def _expand_kin(self, state: int, row: Ints, kin: Kin, flags: int, limit: int) -> None:
        """Expand the kin of a state whose row is `row`."""
        heap, known = self._heap, self.states
        new = [key for key in kin.keys if key not in known]
        made = heap.new_states(len(new), self.owner)
        self.keys.update(zip(made, new, strict=True))
        known.update(zip(new, made, strict=True))
        ids = np.array([state, *map(known.__getitem__, kin.keys)])
        others = ids[1:]
        heap.table[others] = row
        heap.table[others[:, None], kin.places] = np.where(kin.leads < 0, DEAD, ids[kin.leads])
        heap.states[others, FLAGS] = flags
        heap.states[others, LIMIT] = limit
        self.expanded += len(others)

    def resume(self, site: int, tag: int) -> int:
        """The state after a return, DEAD if there is none; remembered as a fact."""
        heap = self._heap
        key = self._asked(self.machine.resume, self.site_keys[site], self.tag_keys[tag])
        state = DEAD if key is None else self.state(key)
        if state != DEAD:
            self.expand(state)
            limit = heap.states[state, LIMIT]
            heap.site_limits[site] = min(heap.site_limits[site], limit)
        heap.put(site * 8 + RESUME, tag, 0, state, 0, self.owner)
        return state

    def land(self, state: int, counter: int) -> tuple[int, int]:
        """The state and counter in place of a far state at its limit; remembered as a fact."""
        key, left = self._asked(self.machine.land, self.keys[state], counter)
        there = self.state(key)
        self._heap.put(state * 8 + LAND, counter, 0, there, left, self.owner)
        return there, left
