"""`Trie`: the sorted vocabulary as the mask walk reads it, whole or without a slice.

A trie is one int32 array in depth-first order, so a subtree is a range of nodes and everything that
starts with a node's bytes lies in it. A state that takes a whole slice of the vocabulary (see
`machine`) starts from the slice's row and walks only the trie of the tokens that are left.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitkit.grammar.machine import JSON_TEXT, PLAIN_TEXT
from logitkit.grammar.trie_kernels import build, slices_of

Ints = NDArray[np.int32]


class Trie(NamedTuple):
    """`nodes` [n + 1, 3]: depth << 8 | byte, end of the subtree, start of its tokens in `ids` (they
    end where the next node's start); `roots` [257]: where the subtree of each first byte starts."""

    nodes: Ints
    ids: Ints
    roots: Ints


class Slices:
    """Which tokens are in the slices of `machine`, and the mask rows of those."""

    def __init__(self, data: NDArray[np.uint8], offsets: NDArray[np.int64], words: int) -> None:
        self.words = words
        self._held = np.zeros(len(offsets) - 1, np.uint8)
        slices_of(data, offsets, self._held)
        starts = np.cumsum(np.concatenate([[0], data & 0xC0 != 0x80]))  # of code points
        self._lengths = starts[offsets[1:]] - starts[offsets[:-1]]
        self._rows: dict[tuple[int, int], Ints] = {}

    def inside(self, slice_: int) -> NDArray[np.bool_]:
        """Whether each token is in the slice; 0 is the slice of nothing."""
        held: NDArray[np.bool_] = self._held & slice_ != 0
        return held

    def row(self, slice_: int, most: int) -> Ints:
        """The row [words] of the tokens of a slice with fewer than `most` code points; 0: all."""
        row = self._rows.get((slice_, most))
        if row is None:
            inside = self.inside(slice_)
            if most:
                inside &= self._lengths < most
            row = self._rows.setdefault((slice_, most), pack(inside, self.words))
        return row


def make_tries(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], slices: Slices
) -> dict[int, Trie]:
    """For each slice, 0 being none, the trie of what is left without it."""
    text, ends = data.tobytes(), offsets.tolist()
    pieces = [text[start:end] for start, end in itertools.pairwise(ends)]
    sizes = np.diff(offsets)
    ids = np.flatnonzero(sizes).tolist()
    order = np.array(sorted(ids, key=pieces.__getitem__), np.int32)
    return {
        slice_: _make_trie(data, offsets, order[~slices.inside(slice_)[order]], sizes)
        for slice_ in (0, JSON_TEXT, PLAIN_TEXT)
    }


def pack(members: NDArray[np.bool_], words: int) -> Ints:
    """The row of a set of tokens: token t is bit t % 32 of word t // 32."""
    bits = np.zeros(words * 32, np.bool_)
    bits[: len(members)] = members
    return np.packbits(bits, bitorder="little").view("<u4").astype(np.uint32).view(np.int32)


def _make_trie(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], order: Ints, sizes: NDArray[np.int64]
) -> Trie:
    nodes = np.empty((int(sizes[order].sum()) + 1, 3), np.int32)
    path = np.empty(int(sizes.max(initial=0)) + 1, np.int64)
    roots = np.empty(257, np.int32)
    count = build(data, offsets, order, nodes, path, roots)
    return Trie(nodes[: count + 1].copy(), order, roots)
