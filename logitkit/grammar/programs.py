"""`Programs`: the grammars of an arena, who owns which state, and what becomes of dead ones."""

from __future__ import annotations

import weakref
from collections import deque

import numpy as np
from numpy.typing import NDArray

from logitkit.grammar.heap import OWNERS, Heap
from logitkit.grammar.machine import Budget, Expansion, Machine
from logitkit.grammar.memory import ASK_LAND, ASK_RESUME, EXPAND, GROW, LIMIT, OWNER, UNEXPANDED
from logitkit.grammar.program import Program

SWEEP_STATES = 1 << 14  # dead states that are worth a sweep
SWEEP_PROGRAMS = 1000


class Programs:
    """See the module. Callers hold the arena's lock.

    `room`: how many nodes a token may need, `controls`: ids of control tokens by their text.
    """

    def __init__(self, heap: Heap, controls: dict[str, tuple[int, ...]], room: int) -> None:
        self._heap, self._controls, self._room = heap, controls, room
        self._programs: list[Program | None] = [None]  # by owner; nobody is owner 0
        self._free_owners: list[int] = []
        self._graves: deque[int] = deque()

    def add(self, machine: Machine, budget: Budget, start: Expansion) -> Program:
        """Take in a machine; `start` is where its start leads. Raises GrammarError."""
        self._bury()
        owner = self._free_owners.pop() if self._free_owners else len(self._programs)
        assert owner < OWNERS
        program = Program(machine, budget, self._heap, owner, self._controls)
        if owner == len(self._programs):
            self._programs.append(program)
        else:
            self._programs[owner] = program
        try:
            program.expand(program.start, start)
        except BaseException:
            self._graves.append(owner)
            raise
        return program

    def tie(self, program: Program, holder: object) -> None:
        """Give the program's memory back once `holder` is gone."""
        # A finalizer may run anywhere, even where the lock is held: it only leaves a note.
        weakref.finalize(holder, self._graves.append, program.owner).atexit = False

    def _bury(self) -> None:
        """Take back the memory of dead grammars, when there is enough to be worth a sweep."""
        owners = list(self._graves)
        dead = [program for owner in owners if (program := self._programs[owner]) is not None]
        states = [state for program in dead for state in program.keys]
        if len(states) < SWEEP_STATES and len(dead) < SWEEP_PROGRAMS:
            return
        for _ in owners:
            self._graves.popleft()
        ops = [-code for program in dead for code in program.codes.values()]
        sites = [site for program in dead for site in program.site_keys]
        self._heap.sweep(owners, states, ops, sites)
        for owner in owners:
            self._programs[owner] = None
        self._free_owners += owners

    def of(self, owner: int) -> Program:
        program = self._programs[owner]
        assert program is not None, "the grammar of this configuration is gone"
        return program

    def of_state(self, state: int) -> Program:
        return self.of(int(self._heap.states[state, OWNER]))

    def expand(self, state: int) -> None:
        """Make sure that a state is expanded."""
        if self._heap.states[state, LIMIT] == UNEXPANDED:
            self.of_state(state).expand(state)

    def answer(self, event: NDArray[np.int64]) -> None:
        """Find out what a kernel asked for."""
        why, first, second = event[:3].tolist()
        if why == EXPAND:
            self.of_state(first).expand(first)
        elif why == ASK_RESUME:
            self.of(int(self._heap.site_owners[first])).resume(first, second)
        elif why == ASK_LAND:
            self.of_state(first).land(first, second)
        else:
            assert why == GROW
            self._heap.grow(self._room)

    def pinned(self) -> NDArray[np.int64]:
        """The mask rows that must stay."""
        return np.concatenate([np.empty(0, np.int64), *(p.pinned for p in self._programs if p)])

    def renumber(self, new_ids: NDArray[np.int64]) -> None:
        """Follow the rows to a new store."""
        for program in self._programs:
            if program is not None:
                program.pinned = new_ids[program.pinned]
