"""`Spelling`: tokens as the kernel reads them, and the loop that takes them with its questions
answered."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from logitkit.grammar.heap import Heap
from logitkit.grammar.memory import DONE, TEXT
from logitkit.grammar.moves import advance
from logitkit.grammar.programs import Programs

Longs = NDArray[np.int64]


class Spelling:
    """Token t is `data[offsets[t] : offsets[t + 1]]`, of a kind of `memory`. Callers hold the
    arena's lock."""

    def __init__(
        self,
        heap: Heap,
        programs: Programs,
        data: NDArray[np.uint8],
        offsets: Longs,
        kinds: NDArray[np.uint8],
    ) -> None:
        self._heap, self._programs = heap, programs
        # Copies, as numba compiles anew for arrays that are read-only.
        self.data, self.offsets, self._kinds = data.copy(), offsets.copy(), kinds
        self._event: Longs = np.zeros(4, np.int64)
        self._frames: Longs = np.zeros((int(np.diff(offsets).max(initial=0)) + 1, 2), np.int64)

    def take(
        self,
        configurations: Longs,
        tokens: Longs,
        keep: bool,
        out: Longs,
        accepted: NDArray[np.bool_],
    ) -> None:
        """Fold `tokens` [B] into `configurations` [B, 3]: `out` [B, 3] and who `accepted` [B];
        refused rows become DEAD, or stay with `keep`."""
        first, heap, event, row = 0, self._heap, self._event, -1
        while True:
            first = advance(
                heap.table, heap.states, heap.ops, heap.nodes, heap.facts, heap.counts,
                self._frames, self.data, self.offsets, self._kinds, configurations, tokens, first,
                keep, out, accepted, event,
            )  # fmt: skip
            if event[0] == DONE:
                return
            if first != row:
                row = first
                heap.requests += 1
            self._programs.answer(event)


def spell_bytes(heap: Heap, programs: Programs) -> Spelling:
    """Every byte as a token of its own."""
    every = np.arange(256, dtype=np.uint8)
    return Spelling(heap, programs, every, np.arange(257), np.full(256, TEXT, np.uint8))
