"""Kernels that build the trie of a vocabulary and sort its tokens into slices."""

from __future__ import annotations

from numba import njit

from logitkit.grammar.machine import JSON_TEXT, PLAIN_TEXT
from logitkit.grammar.memory import kernel_digest


def _make(digest):
    @njit(cache=True, nogil=True)
    def build(data, offsets, order, trie, path, roots):
        """Fill `trie` with the tokens `order` (sorted by their bytes); the number of nodes.

        `path` [longest token + 1] is scratch. `trie` has room for every byte and one node more,
        which closes the last range of tokens.
        """
        assert len(digest) > 0
        count, depth = 0, 0
        for k in range(order.shape[0]):
            start, length = offsets[order[k]], offsets[order[k] + 1] - offsets[order[k]]
            shared = 0
            if k:
                before = offsets[order[k - 1]]
                most = min(length, offsets[order[k - 1] + 1] - before)
                while shared < most and data[before + shared] == data[start + shared]:
                    shared += 1
            while depth > shared:
                depth -= 1
                trie[path[depth], 1] = count
            while depth < length:
                trie[count, 0] = depth << 8 | data[start + depth]
                trie[count, 2] = k
                path[depth] = count
                depth += 1
                count += 1
        while depth > 0:
            depth -= 1
            trie[path[depth], 1] = count
        trie[count, 2] = order.shape[0]
        byte, node = 0, 0
        while byte <= 256:
            while node < count and (trie[node, 0] & 255) < byte:
                node = trie[node, 1]
            roots[byte] = node
            byte += 1
        return count

    @njit(cache=True, nogil=True)
    def slices_of(data, offsets, out):
        """`out[token]`: the slices of machine.py that hold the token, as a sum of their values."""
        assert len(digest) > 0
        for token in range(out.shape[0]):
            i, end = offsets[token], offsets[token + 1]
            plain, json = i < end, True
            while i < end and plain:
                first = data[i]
                if first < 0x80:
                    plain = first >= 0x20 and first != 0x7F
                    json = json and first != 0x22 and first != 0x5C
                    i += 1
                    continue
                size = 2 if first < 0xE0 else (3 if first < 0xF0 else 4)
                low, high = 0x80, 0xBF  # of the second byte
                if first == 0xE0:
                    low = 0xA0  # what is below is overlong
                elif first == 0xED:
                    high = 0x9F  # what is above is a surrogate
                elif first == 0xF0:
                    low = 0x90
                elif first == 0xF4:
                    high = 0x8F
                plain = 0xC2 <= first <= 0xF4 and i + size <= end and low <= data[i + 1] <= high
                for j in range(i + 2, min(i + size, end)):
                    plain = plain and 0x80 <= data[j] <= 0xBF
                i += size
            out[token] = (PLAIN_TEXT if plain else 0) | (JSON_TEXT if plain and json else 0)

    return build, slices_of


build, slices_of = _make(kernel_digest())
