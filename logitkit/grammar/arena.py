"""`Arena`: all grammars of one vocabulary, and the batch functions over their configurations.

A configuration is three int64: (state, node, counter). It is a value: nothing here remembers who
holds one, so copying it is a fork and keeping an old one is a rollback. States and nodes are global
ids, so one call serves a batch of different grammars. It means something as long as its
`CompiledGrammar` lives.

One lock guards everything. Kernels run without the interpreter's lock; what they cannot know they
ask, and are called again.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from logitkit.grammar.heap import OWNERS, Heap
from logitkit.grammar.machine import JSON_TEXT, PLAIN_TEXT, Budget, Machine
from logitkit.grammar.memory import (
    ASK_LAND,
    ASK_RESUME,
    BOTTOM,
    CHAIN,
    CONTROL_TOKEN,
    CONTROLS,
    DEAD,
    DECISION,
    DONE,
    EOS,
    EXPAND,
    FINAL,
    FLAGS,
    FREE,
    GROW,
    LIMIT,
    OPEN,
    OPEN_SITE,
    OWNER,
    ROOM,
    SILENT,
    STOPPED,
    TEXT,
    UNEXPANDED,
)
from logitkit.grammar.moves import advance, find_rows
from logitkit.grammar.program import Program
from logitkit.grammar.rows import ALL_ROW, EOS_ROW, FIXED_ROWS, NONE_ROW, RowStore
from logitkit.grammar.trie import Slices, make_tries
from logitkit.grammar.walk import walk

Longs = NDArray[np.int64]
Ints = NDArray[np.int32]
Configuration = tuple[int, int, int]

ROW_BYTES = 256 * 2**20
SWEEP_STATES = 1 << 14  # dead states that are worth a sweep


class VocabularyLike(Protocol):
    """What the engine reads of a vocabulary (see `vocabulary.Vocabulary`)."""

    size: int
    eos_token_ids: tuple[int, ...]
    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    controls: dict[str, tuple[int, ...]]
    horizon: int
    alphabet: tuple[bool, ...]
    identity: str

    def tokenize(self, data: bytes) -> list[int]: ...


class Spelling(NamedTuple):
    """Token t is `data[offsets[t] : offsets[t + 1]]`, of a kind of `memory`."""

    data: NDArray[np.uint8]
    offsets: Longs
    kinds: NDArray[np.uint8]


class Arena:
    """See the module. `rows` is the tensor int32 [N, W] that `row_ids` counts in."""

    def __init__(self, vocabulary: VocabularyLike, row_bytes: int = ROW_BYTES) -> None:
        self.size, self.words = vocabulary.size, -(-vocabulary.size // 32)
        self.eos_token_ids = vocabulary.eos_token_ids
        self.controls = dict(vocabulary.controls)
        self.horizon = vocabulary.horizon
        self.lock = threading.RLock()
        self.heap = Heap()
        # Copies, as numba compiles anew for arrays that are read-only.
        data, offsets = vocabulary.data.copy(), vocabulary.offsets.copy()
        self._tokens = Spelling(data, offsets, self._kinds_of_tokens(offsets))
        every = np.arange(256, dtype=np.uint8)
        self._bytes = Spelling(every, np.arange(257), np.full(256, TEXT, np.uint8))
        self._slices = Slices(data, offsets, self.words)
        self._tries = make_tries(data, offsets, self._slices)
        self._programs: list[Program | None] = [None]
        self._free_owners: list[int] = []
        self._graves: deque[int] = deque()
        self._chains = 0
        self._tick = 0
        self._event: Longs = np.zeros(4, np.int64)
        levels = self.horizon + 2
        self._stack: Longs = np.zeros((levels, 2), np.int64)
        self._path: Ints = np.zeros(levels, np.int32)
        self._levels: Ints = np.zeros(levels, np.int32)
        self._frames: Longs = np.zeros((levels, 4), np.int64)
        self._pushed: Longs = np.zeros((levels, 3), np.int64)
        self._row: Ints = np.zeros(self.words, np.int32)
        self._one: Longs = np.zeros((1, 3), np.int64)
        self._one_token: Longs = np.zeros(1, np.int64)
        self._one_out: Longs = np.zeros((1, 3), np.int64)
        self._one_accepted: NDArray[np.bool_] = np.zeros(1, np.bool_)
        self._one_row: Ints = np.zeros(1, np.int32)
        self.store = self._first_store(max(row_bytes // (4 * self.words), 64))

    def _kinds_of_tokens(self, offsets: Longs) -> NDArray[np.uint8]:
        kinds = np.where(np.diff(offsets) > 0, TEXT, SILENT).astype(np.uint8)
        for ids in self.controls.values():
            kinds[list(ids)] = CONTROL_TOKEN
        kinds[list(self.eos_token_ids)] = EOS
        return kinds

    def _first_store(self, capacity: int) -> RowStore:
        store = RowStore(capacity, self.words)
        for state, row, fill in ((FREE, ALL_ROW, -1), (DEAD, NONE_ROW, 0), (STOPPED, EOS_ROW, 0)):
            self._row[:] = fill
            if state == STOPPED:
                self._allow(self.eos_token_ids)
            # With no eos STOPPED's row equals DEAD's; then they share it.
            self.heap.states[state, DECISION] = store.put(self._row) + 1
            assert row <= FIXED_ROWS
        return store

    # Grammars

    def add(self, machine: Machine, budget: Budget) -> Program:
        """Take in a machine and expand its start; raises GrammarError."""
        with self.lock:
            self._bury()
            owner = self._free_owners.pop() if self._free_owners else len(self._programs)
            assert owner < OWNERS
            program = Program(machine, budget, self.heap, owner, self.controls)
            if owner == len(self._programs):
                self._programs.append(program)
            else:
                self._programs[owner] = program
            try:
                program.expand(program.start)
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
        if sum(len(program.keys) for program in dead) < SWEEP_STATES and len(dead) < 1000:
            return
        for _ in owners:
            self._graves.popleft()
        states = [state for program in dead for state in program.keys]
        ops = [-code for program in dead for code in program.codes.values()]
        sites = [site for program in dead for site in program.site_keys]
        self.heap.sweep(owners, states, ops, sites)
        for owner in owners:
            self._programs[owner] = None
        self._free_owners += owners

    def _program(self, owner: int) -> Program:
        program = self._programs[owner]
        assert program is not None, "the grammar of this configuration is gone"
        return program

    def _answer(self) -> None:
        """Find out what a kernel asked for."""
        why, first, second = self._event[:3].tolist()
        if why == EXPAND:
            self._program_of(first).expand(first)
        elif why == ASK_RESUME:
            self._program(int(self.heap.site_owners[first])).resume(first, second)
        elif why == ASK_LAND:
            self._program_of(first).land(first, second)
        else:
            assert why == GROW
            self.heap.grow(self.horizon + 1)

    # Configurations

    def start(self, program: Program) -> Longs:
        """The configuration [3] at the start of a grammar."""
        with self.lock:
            state, counter = program.start, 0
            if self.heap.states[state, LIMIT] <= 0:
                state, counter = program.land(state, 0)
            return np.array([state, BOTTOM, counter], np.int64)

    def advance(self, configurations: Longs, tokens: Longs) -> Longs:
        """Fold one token into each row: [B, 3], [B] -> [B, 3]; what is refused becomes DEAD.

        DEAD stays. STOPPED takes eos only, and stays. FREE takes everything, and stays. Eos stops a
        grammar that may end here. Raises GrammarError when a grammar exceeds its states.
        """
        return self.try_advance(configurations, tokens, keep=False)[0]

    def try_advance(
        self, configurations: Longs, tokens: Longs, keep: bool = True
    ) -> tuple[Longs, NDArray[np.bool_]]:
        """As `advance`, and who accepted [B]; with `keep` refused rows stay as they were."""
        out = np.empty_like(configurations)
        accepted = np.empty(len(configurations), np.bool_)
        with self.lock:
            self._advance(configurations, tokens, keep, out, accepted)
        return out, accepted

    def _advance(
        self,
        configurations: Longs,
        tokens: Longs,
        keep: bool,
        out: Longs,
        accepted: NDArray[np.bool_],
        spelling: Spelling | None = None,
    ) -> None:
        first, heap, event = 0, self.heap, self._event
        spelling = spelling or self._tokens
        while True:
            first = advance(
                heap.table, heap.states, heap.ops, heap.nodes, heap.facts, heap.counts,
                self._stack, spelling.data, spelling.offsets, spelling.kinds, configurations,
                tokens, first, keep, out, accepted, event,
            )  # fmt: skip
            if event[0] == DONE:
                return
            self._answer()

    def step(self, configuration: Configuration, token: int) -> Configuration | None:
        """One token for one configuration; None: refused."""
        with self.lock:
            self._one[0], self._one_token[0] = configuration, token
            self._advance(self._one, self._one_token, False, self._one_out, self._one_accepted)
            state, node, counter = self._one_out[0].tolist()
        return None if state == DEAD else (state, node, counter)

    def forced_bytes(self, configuration: Configuration, most: int = 4096) -> bytes:
        """The longest text, up to `most` bytes, that must come next; a text that may end there or
        take a control token is not forced to go on."""
        text, at = bytearray(), np.array([configuration], np.int64)
        with self.lock:
            while len(text) < most:
                state, node, _ = at[0].tolist()
                if state <= FREE:
                    break
                self._program_of(state).expand(state)
                flags = int(self.heap.states[state, FLAGS])
                if flags & CONTROLS or (flags & FINAL and node == BOTTOM):
                    break
                alive = np.flatnonzero(self.heap.table[state] != DEAD)
                after = np.empty((len(alive), 3), np.int64)
                accepted = np.empty(len(alive), np.bool_)
                rows = np.repeat(at, len(alive), 0)
                self._advance(rows, alive, False, after, accepted, self._bytes)
                places = np.flatnonzero(accepted)
                if len(places) != 1:
                    break
                text.append(int(alive[places[0]]))
                at = after[places]
        return bytes(text)

    def is_final(self, configuration: Configuration) -> bool:
        """Whether eos is allowed: the text may end here, or has ended."""
        state, node, _ = configuration
        if state < FREE:
            return state == STOPPED
        with self.lock:
            if self.heap.states[state, LIMIT] == UNEXPANDED:
                self._program_of(state).expand(state)
            return node == BOTTOM and bool(self.heap.states[state, FLAGS] & FINAL)

    def is_dead_end(self, state: int) -> bool:
        """Whether nothing may follow an expanded state, and no text may end there."""
        moves = bool((self.heap.table[state] != DEAD).any())
        return not moves and not self.heap.states[state, FLAGS] & (FINAL | CONTROLS)

    # Rows

    @property
    def rows(self) -> torch.Tensor:
        return self.store.tensor

    def row_ids(self, configurations: Longs) -> Ints:
        """The row of `rows` for each configuration: [R, 3] -> int32 [R]; builds missing ones.

        Ids count in the `rows` of this moment. Another thread may move the arena to new `rows`:
        where there are several, use `masks`.
        """
        return self.masks(configurations)[1]

    def masks(self, configurations: Longs) -> tuple[RowStore, Ints]:
        """The store of rows and the ids [R] in it, taken together."""
        ids = np.empty(len(configurations), np.int32)
        with self.lock:
            self._tick += 1
            while self._find(configurations, ids):
                for r in np.flatnonzero(ids < 0).tolist():
                    if self._find(configurations[r : r + 1], ids[r : r + 1]):
                        self._build(*configurations[r].tolist())
            return self.store, ids

    def locate(self, configuration: Configuration) -> tuple[RowStore, int]:
        """The store of rows and the row of one configuration, built if missing."""
        with self.lock:
            self._tick += 1
            self._one[0] = configuration
            if self._find(self._one, self._one_row):
                row = self._build(*configuration)  # may renew the store
                return self.store, row
            return self.store, int(self._one_row[0])

    def try_build(self, configuration: Configuration) -> int:
        """The row of a configuration, built if missing; -1 if its stack is too open to tell."""
        with self.lock:
            self._tick += 1
            self._one[0] = configuration
            if self._find(self._one, self._one_row):
                return self._build(*configuration)
            return int(self._one_row[0])

    def _find(self, configurations: Longs, ids: Ints) -> int:
        heap = self.heap
        missing: int = find_rows(
            heap.states, heap.nodes, heap.facts, heap.site_limits, configurations,
            self.store.stamps, self._tick, ids,
        )  # fmt: skip
        return missing

    def _build(self, state: int, node: int, counter: int) -> int:
        """Walk the trie from a configuration, store the row and note what it depended on; -1 if the
        stack ends with OPEN and that was not enough."""
        heap, event, row = self.heap, self._event, self._row
        if heap.states[state, LIMIT] == UNEXPANDED:
            self._program_of(state).expand(state)
        flags = int(heap.states[state, FLAGS])
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
                break
            if event[0] == ASK_RESUME and event[1] == OPEN_SITE:
                return -1
            self._answer()
        popped = int(event[3])
        if flags & FINAL and node == BOTTOM:
            self._allow(self.eos_token_ids)
        if flags & CONTROLS:
            self._allow_controls(state, node, counter)
        if self.store.full:
            self._renew_store()
        id_ = self.store.put(row)
        self.store.stamps[id_] = self._tick
        self._decide(state, node, popped, id_)
        return id_

    def _allow(self, tokens: tuple[int, ...]) -> None:
        for token in tokens:
            self._row.view(np.uint32)[token >> 5] |= np.uint32(1 << (token & 31))

    def _allow_controls(self, state: int, node: int, counter: int) -> None:
        tokens = [token for token, _ in self._program_of(state).controls[state]]
        at = np.array([[state, node, counter]] * len(tokens), np.int64)
        out, accepted = np.empty_like(at), np.empty(len(tokens), np.bool_)
        self._advance(at, np.array(tokens, np.int64), False, out, accepted)
        self._allow(tuple(np.array(tokens)[accepted].tolist()))

    def _program_of(self, state: int) -> Program:
        return self._program(int(self.heap.states[state, OWNER]))

    def _decide(self, state: int, node: int, popped: int, row: int) -> None:
        """Note that the row depends on the state and `popped` callers, the empty stack included."""
        heap = self.heap
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
        """Go on in a new store with the rows used last; ids change."""
        heap = self.heap
        programs = [program for program in self._programs if program is not None]
        pinned = np.concatenate([program.pinned for program in programs])
        self.store, new_ids = self.store.successor(pinned, self._tick, len(self.store.data))
        moved = np.concatenate([[0], new_ids + 1])  # decisions
        decisions = heap.states[:, DECISION]
        np.copyto(decisions, moved[np.maximum(decisions, 0)], where=decisions > 0)
        chains = (heap.facts[:, 0] & 7 == CHAIN) & (heap.facts[:, 3] > 0)
        heap.facts[chains, 3] = moved[heap.facts[chains, 3]]
        for program in programs:
            program.pinned = new_ids[program.pinned]


_BY_VOCABULARY: weakref.WeakKeyDictionary[VocabularyLike, Arena] = weakref.WeakKeyDictionary()
_BY_IDENTITY: weakref.WeakValueDictionary[str, Arena] = weakref.WeakValueDictionary()
_LOCK = threading.Lock()


def arena_of(vocabulary: VocabularyLike) -> Arena:
    """The arena of a vocabulary; those that are equal share it."""
    with _LOCK:
        arena = _BY_VOCABULARY.get(vocabulary)
        if arena is None:
            arena = _BY_IDENTITY.get(vocabulary.identity) or Arena(vocabulary)
            _BY_IDENTITY[vocabulary.identity] = arena
            _BY_VOCABULARY[vocabulary] = arena
        return arena
