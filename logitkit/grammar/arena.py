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
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from logitkit.grammar.heap import Heap
from logitkit.grammar.machine import Budget, Machine
from logitkit.grammar.masks import Masks
from logitkit.grammar.memory import (
    BOTTOM,
    CONTROL_TOKEN,
    CONTROLS,
    DEAD,
    EOS,
    FINAL,
    FLAGS,
    FREE,
    LIMIT,
    SILENT,
    STOPPED,
    TEXT,
)
from logitkit.grammar.program import Program
from logitkit.grammar.programs import Programs
from logitkit.grammar.rows import RowStore
from logitkit.grammar.spelling import Spelling, spell_bytes

Longs = NDArray[np.int64]
Ints = NDArray[np.int32]
Configuration = tuple[int, int, int]

ROW_BYTES = 256 * 2**20
LEAST_ROWS = 64


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


class Arena:
    """See the module. `rows` is the tensor int32 [N, W] that `row_ids` counts in."""

    def __init__(self, vocabulary: VocabularyLike, row_bytes: int = ROW_BYTES) -> None:
        self.size, self.words = vocabulary.size, -(-vocabulary.size // 32)
        self.eos_token_ids = vocabulary.eos_token_ids
        self.horizon = vocabulary.horizon
        self.lock = threading.RLock()
        self.heap = Heap()
        self._programs = Programs(self.heap, dict(vocabulary.controls), self.horizon + 1)
        self._tokens = Spelling(
            self.heap,
            self._programs,
            vocabulary.data,
            vocabulary.offsets,
            _kinds_of_tokens(vocabulary),
        )
        self._bytes = spell_bytes(self.heap, self._programs)
        self._one: Longs = np.zeros((1, 3), np.int64)
        self._one_token: Longs = np.zeros(1, np.int64)
        self._one_out: Longs = np.zeros((1, 3), np.int64)
        self._one_accepted: NDArray[np.bool_] = np.zeros(1, np.bool_)
        self._masks = Masks(
            self.heap,
            self._programs,
            self._tokens,
            self.eos_token_ids,
            self.words,
            max(row_bytes // (4 * self.words), LEAST_ROWS),
        )

    # Grammars

    def add(self, machine: Machine, budget: Budget, holder: object = None) -> Program:
        """Take in a machine and expand its start, for as long as `holder` lives (None: for good).

        Raises GrammarError.
        """
        with budget.running():  # may take long: the lock is left to others
            start = machine.expand(machine.start)
        with self.lock:
            program = self._programs.add(machine, budget, start)
            if holder is not None:
                self._programs.tie(program, holder)
            return program

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
            self._tokens.take(configurations, tokens, keep, out, accepted)
        return out, accepted

    def step(self, configuration: Configuration, token: int) -> Configuration | None:
        """One token for one configuration; None: refused."""
        with self.lock:
            self._one[0], self._one_token[0] = configuration, token
            self._tokens.take(self._one, self._one_token, False, self._one_out, self._one_accepted)
            state, node, counter = self._one_out[0].tolist()
        return None if state == DEAD else (state, node, counter)

    def spell(self, configuration: Configuration, text: bytes) -> Configuration | None:
        """The configuration after some bytes; None: refused."""
        with self.lock:
            self._one[0] = configuration
            for byte in text:
                self._one_token[0] = byte
                self._bytes.take(
                    self._one, self._one_token, False, self._one_out, self._one_accepted
                )
                if not self._one_accepted[0]:
                    return None
                self._one[0] = self._one_out[0]
            state, node, counter = self._one[0].tolist()
        return state, node, counter

    def ways(self, configuration: Configuration) -> list[tuple[int, Configuration]]:
        """One byte for each way to go on from here, and the configuration after it."""
        with self.lock:
            self._programs.expand(configuration[0])
            codes, bytes_ = np.unique(self.heap.table[configuration[0]][::-1], return_index=True)
        found = []
        for code, place in zip(codes.tolist(), bytes_.tolist(), strict=True):
            after = self.spell(configuration, bytes([255 - place])) if code != DEAD else None
            if after is not None:
                found.append((255 - place, after))
        return found

    def forced_bytes(self, configuration: Configuration, most: int = 4096) -> bytes:
        """The longest text, up to `most` bytes, that must come next; a text that may end there or
        take a control token is not forced to go on."""
        text, at = bytearray(), np.array([configuration], np.int64)
        with self.lock:
            self.heap.requests += 1
            while len(text) < most:
                state, node, _ = at[0].tolist()
                if state <= FREE:
                    break
                self._programs.expand(state)
                flags = int(self.heap.states[state, FLAGS])
                if flags & CONTROLS or (flags & FINAL and node == BOTTOM):
                    break
                alive = np.flatnonzero(self.heap.table[state] != DEAD)
                after = np.empty((len(alive), 3), np.int64)
                accepted = np.empty(len(alive), np.bool_)
                rows = np.repeat(at, len(alive), 0)
                self._bytes.take(rows, alive, False, after, accepted)
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
            self.heap.requests += 1
            self._programs.expand(state)
            return node == BOTTOM and bool(self.heap.states[state, FLAGS] & FINAL)

    def is_dead_end(self, state: int) -> bool:
        """Whether nothing may follow an expanded state, and no text may end there."""
        moves = bool((self.heap.table[state] != DEAD).any())
        return not moves and not self.heap.states[state, FLAGS] & (FINAL | CONTROLS)

    # Rows

    @property
    def store(self) -> RowStore:
        return self._masks.store

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
        with self.lock:
            ids = self._masks.rows(configurations)
            return self._masks.store, ids

    def locate(self, configuration: Configuration) -> tuple[RowStore, int]:
        """The store of rows and the row of one configuration; -1 if that depends on what comes
        where its stack ends with OPEN."""
        with self.lock:
            row = self._masks.row(configuration)  # may renew the store
            return self._masks.store, row


def _kinds_of_tokens(vocabulary: VocabularyLike) -> NDArray[np.uint8]:
    kinds = np.where(np.diff(vocabulary.offsets) > 0, TEXT, SILENT).astype(np.uint8)
    for ids in vocabulary.controls.values():
        kinds[list(ids)] = CONTROL_TOKEN
    kinds[list(vocabulary.eos_token_ids)] = EOS
    return kinds


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
