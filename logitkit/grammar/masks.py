"""`Masks`: the rows of configurations, found by what they depend on or built by a walk.

A mask depends on the state and its callers, as deep as the walk popped them. So rows are found by a
chain of decisions: at the state, then at (chain, caller) for each caller that mattered. Counters
below a far state's limit do not matter; those of frames that were pushed beyond it do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from logitkit.grammar.heap import Heap
from logitkit.grammar.machine import JSON_TEXT, PLAIN_TEXT
from logitkit.grammar.memory import (
    ASK_RESUME,
    BOTTOM,
    CHAIN,
    CONTROLS,
    DEAD,
    DECISION,
    FINAL,
    FLAGS,
    FREE,
    OPEN,
    OPEN_SITE,
    OWNER,
    ROOM,
    STOPPED,
)
from logitkit.grammar.moves import find_rows
from logitkit.grammar.programs import Programs
from logitkit.grammar.rows import FIXED_ROWS, RowStore
from logitkit.grammar.spelling import Spelling
from logitkit.grammar.trie import Slices, make_tries
from logitkit.grammar.walk import walk

Longs = NDArray[np.int64]
Ints = NDArray[np.int32]


class Masks:
    """See the module. Callers hold the arena's lock."""

    def __init__(
        self,
        heap: Heap,
        programs: Programs,
        tokens: Spelling,
        eos_token_ids: tuple[int, ...],
        words: int,
        capacity: int,
    ) -> None:
        self._heap, self._programs, self._tokens = heap, programs, tokens
        self._eos_token_ids = eos_token_ids
        self._slices = Slices(tokens.data, tokens.offsets, words)
        self._tries = make_tries(tokens.data, tokens.offsets, self._slices)
        self._chains = self._tick = 0
        levels = int(np.diff(tokens.offsets).max(initial=0)) + 2
        self._event: Longs = np.zeros(4, np.int64)
        self._path: Ints = np.zeros(levels, np.int32)
        self._levels: Ints = np.zeros(levels, np.int32)
        self._frames: Longs = np.zeros((levels, 4), np.int64)
        self._pushed: Longs = np.zeros((levels, 3), np.int64)
        self._row: Ints = np.zeros(words, np.int32)
        self._one: Longs = np.zeros((1, 3), np.int64)
        self._one_row: Ints = np.zeros(1, np.int32)
        self.store = RowStore(capacity, words)
        # The fixed rows, in the order of their ids. Without eos STOPPED shares the row of DEAD.
        for state, fill in ((FREE, -1), (DEAD, 0), (STOPPED, 0)):
            self._row[:] = fill
            if state == STOPPED:
                self._allow(eos_token_ids)
            heap.states[state, DECISION] = self.store.put(self._row) + 1

    def rows(self, configurations: Longs) -> Ints:
        """The rows [R] of configurations [R, 3], as ids in `store`, which this may renew."""
        ids = np.empty(len(configurations), np.int32)
        self._tick += 1
        while self._find(configurations, ids):
            for r in np.flatnonzero(ids < 0).tolist():
                if self._find(configurations[r : r + 1], ids[r : r + 1]):
                    self._build(*configurations[r].tolist())
        return ids

    def row(self, configuration: tuple[int, int, int]) -> int:
        """The row of one; -1 if its stack ends with OPEN and the row depends on what is there."""
        self._tick += 1
        self._one[0] = configuration
        if self._find(self._one, self._one_row):
            return self._build(*configuration)
        return int(self._one_row[0])

    def _find(self, configurations: Longs, ids: Ints) -> int:
        heap = self._heap
        missing: int = find_rows(
            heap.states, heap.nodes, heap.facts, heap.site_limits, configurations,
            self.store.stamps, self._tick, ids,
        )  # fmt: skip
        return missing

    def _build(self, state: int, node: int, counter: int) -> int:
        """Walk the trie from a configuration, store the row and note what it depended on; -1 if the
        stack ends with OPEN and that was not enough."""
        heap, row = self._heap, self._row
        heap.requests += 1
        program = self._programs.of_state(state)
        with program.budget.running():
            program.expand(state)
            flags = int(heap.states[state, FLAGS])
            popped = self._walk(state, node, counter, flags)
            if popped < 0:
                return -1
        if flags & FINAL and node == BOTTOM:
            self._allow(self._eos_token_ids)
        if flags & CONTROLS:
            self._allow_controls(state, node, counter)
        if self.store.full:
            self._renew_store()
        id_ = self.store.put(row)
        self.store.stamps[id_] = self._tick
        self._decide(state, node, popped, id_)
        return id_

    def _walk(self, state: int, node: int, counter: int, flags: int) -> int:
        """Set the bits of the row that the trie has; how many callers mattered, or -1."""
        heap, event, row = self._heap, self._event, self._row
        slice_ = PLAIN_TEXT if flags & PLAIN_TEXT else flags & JSON_TEXT
        trie = self._tries[slice_]
        row[:] = self._slices.row(slice_, flags >> ROOM)
        self._path[0], self._levels[0] = state, 0
        self._frames[0] = node, counter, 0, 0
        event[3] = 1 if flags & (FINAL | CONTROLS) else 0  # these look at the stack
        if event[3] and node == OPEN:
            return -1
        at = 0
        while True:
            at = walk(
                heap.table, heap.states, heap.ops, heap.nodes, heap.facts, trie.nodes, trie.ids,
                trie.roots, self._path, self._levels, self._frames, self._pushed, row, at, event,
            )  # fmt: skip
            if at < 0:
                return int(event[3])
            if event[0] == ASK_RESUME and event[1] == OPEN_SITE:
                return -1
            self._programs.answer(event)

    def _allow(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self._row.view(np.uint32)[token >> 5] |= np.uint32(1 << (token & 31))

    def _allow_controls(self, state: int, node: int, counter: int) -> None:
        tokens = [token for token, _ in self._programs.of_state(state).controls[state]]
        at, ids = np.array([[state, node, counter]] * len(tokens)), np.array(tokens)
        accepted = np.empty(len(tokens), np.bool_)
        self._tokens.take(at, ids, False, np.empty_like(at), accepted)
        self._allow(ids[accepted].tolist())

    def _decide(self, state: int, node: int, popped: int, row: int) -> None:
        """Note that the row depends on the state and `popped` callers, the empty stack included."""
        heap = self._heap
        if not popped:
            heap.states[state, DECISION] = row + 1
            return
        chain = -int(heap.states[state, DECISION])
        if chain <= 0:
            chain = self._new_chain()
            heap.states[state, DECISION] = -chain
        owner = int(heap.states[state, OWNER])
        for left in range(popped - 1, -1, -1):
            parent, site, counter = heap.nodes[node].tolist()
            if site < 0 or counter < heap.site_limits[site]:
                counter = -1
            key = chain * 8 + CHAIN
            if not left:
                heap.put(key, site, counter, row + 1, 0, owner)
                return
            chain = -heap.get(key, site, counter, 0)
            if chain <= 0:
                chain = self._new_chain()
                heap.put(key, site, counter, -chain, 0, owner)
            node = parent

    def _new_chain(self) -> int:
        self._chains += 1
        return self._chains

    def _renew_store(self) -> None:
        """Go on in a new store with the rows used last; ids change.

        Decisions are forgotten before ids change and come back after it: whoever is interrupted in
        between builds rows again, and reads no wrong one.
        """
        heap = self._heap
        pinned = self._programs.pinned()
        store, new_ids = self.store.successor(pinned, self._tick, len(self.store.data))
        moved = np.concatenate([[0], new_ids + 1])  # decisions
        states = np.flatnonzero(heap.states[:, DECISION] > FIXED_ROWS)
        chains = np.flatnonzero((heap.facts[:, 0] & 7 == CHAIN) & (heap.facts[:, 3] > 0))
        of_states = moved[heap.states[states, DECISION]]
        of_chains = moved[heap.facts[chains, 3]]
        heap.states[states, DECISION] = 0
        heap.facts[chains, 3] = 0
        self.store = store
        self._programs.renumber(new_ids)
        heap.states[states, DECISION] = of_states
        heap.facts[chains, 3] = of_chains
