"""`RowStore`: the mask rows of a vocabulary, each stored once, within a budget of bytes.

Rows are written once and never overwritten. When the store is full a new one takes over the rows
used last, under new ids; whoever still holds the old `tensor` beside ids of it goes on reading what
those ids meant.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from logitkit.grammar.walk import hash_row

ALL_ROW, NONE_ROW, EOS_ROW = 0, 1, 2  # of FREE, DEAD and STOPPED
FIXED_ROWS = 3


class RowStore:
    """Rows int32 [capacity, W], of which `count` are written.

    `tensor` is the memory as torch sees it (read-only for everybody else), `stamps` int64 when a
    row was used last, `generation` counts the stores of an arena. Memory is taken as rows are
    written.
    """

    def __init__(self, capacity: int, words: int, generation: int = 0) -> None:
        self.generation = generation
        self.data: NDArray[np.int32] = np.empty((capacity, words), np.int32)
        self.tensor = torch.from_numpy(self.data)
        self.stamps: NDArray[np.int64] = np.zeros(capacity, np.int64)
        self.count = 0
        self._by_hash: dict[int, list[int]] = {}
        self._views: dict[int, torch.Tensor] = {}

    @property
    def full(self) -> bool:
        return self.count == len(self.data)

    def put(self, row: NDArray[np.int32]) -> int:
        """The id of a row with this content, stored now if there is none; the store has room."""
        same = self._by_hash.setdefault(hash_row(row), [])
        for id_ in same:
            if np.array_equal(self.data[id_], row):
                return id_
        id_ = self.count
        self.data[id_] = row
        same.append(id_)
        self.count += 1
        return id_

    def view(self, id_: int) -> torch.Tensor:
        """One row as a tensor [W], the same object each time."""
        view = self._views.get(id_)
        if view is None:
            view = self._views.setdefault(id_, self.tensor[id_])
        return view

    def successor(
        self, pinned: NDArray[np.int64], tick: int, capacity: int
    ) -> tuple[RowStore, NDArray[np.int64]]:
        """A new store with the fixed rows, those `pinned`, those stamped `tick` or later, and the
        rest of the more recently used half; and the new id of each old row, -1 for those dropped.
        """
        keep = self.stamps[: self.count] >= tick
        keep[:FIXED_ROWS] = True
        keep[pinned] = True
        order = np.argsort(-self.stamps[: self.count], kind="stable")
        spare = max(0, capacity // 2 - int(keep.sum()))
        keep[order[~keep[order]][:spare]] = True
        kept = np.flatnonzero(keep)
        words, room = self.data.shape[1], max(capacity, 2 * len(kept))
        store = RowStore(room, words, self.generation + 1)
        store.data[: len(kept)] = self.data[kept]
        store.stamps[: len(kept)] = self.stamps[kept]
        store.count = len(kept)
        new_ids = np.full(self.count, -1, np.int64)
        new_ids[kept] = np.arange(len(kept))
        for hash_, ids in self._by_hash.items():
            if left := [int(new_ids[i]) for i in ids if keep[i]]:
                store._by_hash[hash_] = left
        return store, new_ids
