"""`Heap`: the arrays that the kernels read, how they grow, and what a dead grammar gives back.

Global ids: states, sites, operations and nodes of all grammars of a vocabulary live in the same
arrays, so that one kernel serves a batch of different grammars. `memory` explains the columns.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from logitkit.grammar.facts import get_fact, move_facts, push_node, put_fact
from logitkit.grammar.memory import (
    BOTTOM,
    DEAD,
    EMPTY,
    FACTS,
    FIRST_STATE,
    FREE,
    LIMIT,
    NO_LIMIT,
    NODES,
    OPEN,
    OPEN_SITE,
    STOPPED,
    UNEXPANDED,
)

Longs = NDArray[np.int64]
# Memory for states is taken as they are written; to move them to a larger table takes 0.15 s.
STATES, OPS, NODES_AT_FIRST, FACTS_AT_FIRST, SITES = 1 << 18, 1 << 12, 1 << 14, 1 << 16, 1 << 12
TABLE_BYTES = 256 * 4  # of one state
OWNERS = 1 << 20  # grammars at a time
NOBODY: NDArray[np.bool_] = np.zeros(OWNERS, np.bool_)


def _grown(array: NDArray[np.int64] | NDArray[np.int32]) -> NDArray[np.int64]:
    """Twice the room, the rest zero; pages that nobody wrote to cost nothing."""
    larger = np.zeros((2 * array.shape[0], *array.shape[1:]), array.dtype)
    larger[: array.shape[0]] = array
    return larger


def _no_facts(room: int) -> Longs:
    facts = np.empty((room, 6), np.int64)
    facts[:, 0] = EMPTY
    return facts


class Heap:
    """See the module. Callers hold the arena's lock."""

    def __init__(self) -> None:
        self.table: NDArray[np.int32] = np.zeros((STATES, 256), np.int32)
        self.states: Longs = np.zeros((STATES, 4), np.int64)
        self.ops: Longs = np.zeros((OPS, 3), np.int64)
        self.nodes: Longs = np.zeros((NODES_AT_FIRST, 3), np.int64)
        self.facts = _no_facts(FACTS_AT_FIRST)
        self.site_limits: Longs = np.zeros(SITES, np.int64)
        self.site_owners: Longs = np.zeros(SITES, np.int64)
        self.counts: Longs = np.zeros(3, np.int64)
        self.counts[NODES] = OPEN + 1
        self.nodes[BOTTOM] = BOTTOM, -1, -1
        self.nodes[OPEN] = OPEN, OPEN_SITE, -1
        for state in (DEAD, STOPPED, FREE):
            self.table[state] = FREE if state == FREE else DEAD
            self.states[state, LIMIT] = NO_LIMIT
        self._states, self._ops, self._sites = FIRST_STATE, 1, 0
        self.requests = 0  # what the engine was asked so far; each has all of a budget's time
        self._free_states: list[int] = []
        self._free_ops: list[int] = []
        self._free_sites: list[int] = []

    def new_state(self, owner: int) -> int:
        if not self._free_states:
            return self.new_states(1, owner)[0]
        state = self._free_states.pop()
        self.states[state] = UNEXPANDED, 0, 0, owner
        return state

    def new_states(self, count: int, owner: int) -> list[int]:
        """Several states at once; those that were given back come first: their memory is warm."""
        free = self._free_states
        taken = free[-count:] if count and free else []
        del free[len(free) - len(taken) :]
        first, self._states = self._states, self._states + count - len(taken)
        taken.extend(range(first, self._states))
        while self._states > len(self.table):
            self.table = _grown(self.table).astype(np.int32, copy=False)
            self.states = _grown(self.states)
        self.states[taken] = UNEXPANDED, 0, 0, owner
        return taken

    def new_op(self, kind: int, target: int, amount: int) -> int:
        if self._free_ops:
            op = self._free_ops.pop()
        else:
            op = self._ops
            self._ops += 1
            if op == len(self.ops):
                self.ops = _grown(self.ops)
        self.ops[op] = kind, target, amount
        return op

    def new_site(self, owner: int) -> int:
        if self._free_sites:
            site = self._free_sites.pop()
        else:
            site = self._sites
            self._sites += 1
            if site == len(self.site_limits):
                self.site_limits = _grown(self.site_limits)
                self.site_owners = _grown(self.site_owners)
        self.site_limits[site], self.site_owners[site] = NO_LIMIT, owner
        return site

    def put(self, a: int, b: int, c: int, u: int, v: int, owner: int) -> None:
        """Set a fact."""
        if 2 * (self.counts[FACTS] + 1) > len(self.facts):
            self._rebuild(2 * len(self.facts), NOBODY)
        put_fact(self.facts, self.counts, a, b, c, u, v, owner)

    def get(self, a: int, b: int, c: int, missing: int) -> int:
        """The first value of a fact."""
        return int(get_fact(self.facts, a, b, c, missing))

    def push(self, parent: int, site: int, counter: int, owner: int) -> int:
        """The node of a stack with one frame more."""
        self.grow(1)
        return int(push_node(self.facts, self.nodes, self.counts, parent, site, counter, owner))

    def grow(self, more: int) -> None:
        """Make room for `more` nodes and as many facts."""
        while self.counts[NODES] + more > len(self.nodes):
            self.nodes = _grown(self.nodes)
        room = len(self.facts)
        while 2 * (self.counts[FACTS] + more) > room:
            room *= 2
        if room > len(self.facts):
            self._rebuild(room, NOBODY)

    def _rebuild(self, room: int, dead: NDArray[np.bool_]) -> None:
        facts = _no_facts(room)
        move_facts(self.facts, facts, self.counts, dead, self.nodes)
        self.facts = facts

    def sweep(
        self, owners: Iterable[int], states: list[int], ops: list[int], sites: list[int]
    ) -> None:
        """Take back what these owners held."""
        dead = np.zeros(OWNERS, np.bool_)
        dead[list(owners)] = True
        self._rebuild(len(self.facts), dead)
        self.table[states] = 0
        self.states[states] = 0
        self._free_states += states
        self._free_ops += ops
        self._free_sites += sites

    @property
    def states_in_use(self) -> int:
        return self._states - FIRST_STATE - len(self._free_states)
