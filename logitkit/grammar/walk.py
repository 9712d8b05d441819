"""The mask kernel: a walk of the sorted trie, with the configuration after each byte of the path.

What starts with refused bytes is skipped as a whole: a subtree of the trie is one range of nodes,
and holds exactly the tokens that start with those bytes. The stack of the configuration is never
touched: frames that a token pushes are temporary nodes. The walk notes how many real frames it
popped, the empty stack included: what lies deeper cannot have mattered.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from logitkit.grammar.facts import find
from logitkit.grammar.memory import (
    ADD,
    ASK_RESUME,
    BOTTOM,
    CALL,
    DEAD,
    DONE,
    EXPAND,
    LIMIT,
    PUT,
    RESUME,
    TEMPORARY,
    UNKNOWN,
    kernel_digest,
)
from logitkit.grammar.moves import ask, landed

# frames[level, ...], int64: the stack and counter that the bytes of the path got to
NODE_AT, COUNTER_AT, POPPED_AT, PUSHED_AT = 0, 1, 2, 3


# Unsigned indices, as numba checks signed ones for counting from the end.
BYTE, EIGHT, ONE = np.uint32(255), np.uint32(8), np.uint32(1)
BIT, FIVE = np.uint32(31), np.uint32(5)


def _make(digest):
    # One flat function, as numba counts references for every array that a call is given.
    @njit(cache=True, nogil=True)
    def walk(table, states, ops, nodes, facts, trie, ids, roots, path, levels, frames, pushed, row,
             at, event):  # fmt: skip
        """Set the bits of all tokens that may follow, in `row` int32 [W].

        `trie` int32 [n + 1, 3]: byte and depth, end of the subtree, start in `ids`; `roots` [257]:
        the subtrees of the first bytes. `path[0]` is the state to start from and `frames[0]` its
        stack and counter; `path[d]` and `frames[levels[d]]` are those after d bytes. Begin with
        `at` = 0. Returns where to go on after answering `event`, or -1 at the end. `event[3]` is
        the largest number of frames popped.
        """
        assert len(digest) > 0
        event[0] = DONE
        for byte in range(256):
            if table[path[0], byte] == DEAD or roots[byte + 1] <= at:
                continue
            i, stop = max(at, roots[byte]), roots[byte + 1]
            while i < stop:
                word = np.uint32(trie[i, 0])
                depth = word >> EIGHT
                state, level = np.uint32(path[depth]), levels[depth]
                code = table[state, word & BYTE]
                if code < 0:
                    kind, target, amount = ops[-code, 0], ops[-code, 1], ops[-code, 2]
                    node, counter = frames[level, NODE_AT], frames[level, COUNTER_AT]
                    popped, top = frames[level, POPPED_AT], frames[level, PUSHED_AT]
                    if kind == ADD:
                        counter += amount
                    elif kind == PUT:
                        counter = amount
                    elif kind == CALL:
                        pushed[top, 0], pushed[top, 1], pushed[top, 2] = node, amount, counter
                        node, counter, top = TEMPORARY + top, 0, top + 1
                    else:
                        old = node < TEMPORARY
                        if old:
                            popped += 1
                            event[3] = max(event[3], popped)
                            if node == BOTTOM:
                                i = trie[i, 1]
                                continue
                            site, counter = nodes[node, 1], nodes[node, 2]
                            node = nodes[node, 0]
                        else:
                            young = node - TEMPORARY
                            site, counter = pushed[young, 1], pushed[young, 2]
                            node = pushed[young, 0]
                        slot = find(facts, site * 8 + RESUME, target, 0)
                        if slot < 0:
                            ask(event, ASK_RESUME, site, target)
                            return i
                        target = facts[slot, 3]
                        # Young frames may not matter: no token is longer than the horizon.
                        if old and counter >= states[target, LIMIT]:
                            target, counter = landed(states, facts, target, counter, event)
                            if target == UNKNOWN:
                                return i
                    code, level = target, np.int32(depth + ONE)
                    frames[level, NODE_AT], frames[level, COUNTER_AT] = node, counter
                    frames[level, POPPED_AT], frames[level, PUSHED_AT] = popped, top
                elif code == UNKNOWN:
                    ask(event, EXPAND, state, 0)
                    return i
                if code == DEAD:
                    i = trie[i, 1]
                    continue
                path[depth + ONE], levels[depth + ONE] = code, level
                for j in range(trie[i, 2], trie[i + 1, 2]):
                    token = np.uint32(ids[j])
                    row[token >> FIVE] |= np.int32(1) << (token & BIT)
                i += 1
        return -1

    @njit(cache=True, nogil=True)
    def hash_row(row):
        """A hash of the words of a row."""
        assert len(digest) > 0
        h0, h1, h2, h3 = 1, 2, 3, 4
        n = row.shape[0] & ~3
        for i in range(0, n, 4):
            h0 = (h0 ^ row[i]) * -7046029254386353131
            h1 = (h1 ^ row[i + 1]) * -7046029254386353131
            h2 = (h2 ^ row[i + 2]) * -7046029254386353131
            h3 = (h3 ^ row[i + 3]) * -7046029254386353131
            h0, h1, h2, h3 = h0 ^ (h0 >> 31), h1 ^ (h1 >> 31), h2 ^ (h2 >> 31), h3 ^ (h3 >> 31)
        for i in range(n, row.shape[0]):
            h0 = (h0 ^ row[i]) * -7046029254386353131
        h = h0
        for other in (h1, h2, h3):
            h = ((h ^ (h >> 29)) + other) * -4658895280553007687
        return h ^ (h >> 32)

    return walk, hash_row


walk, hash_row = _make(kernel_digest())
