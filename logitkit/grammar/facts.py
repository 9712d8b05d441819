"""The hash table of facts (see `memory`): open addressing over int64 rows, for kernels and Python.

There is no deletion: a sweep rebuilds the table without the facts of dead grammars.
"""

from __future__ import annotations

import functools

from numba import njit

from logitkit.grammar.memory import (
    BOTTOM,
    EMPTY,
    FACTS,
    FREE_NODE,
    NODE,
    NODES,
    kernel_digest,
)

# For kernels that only other kernels call: without the ways in from Python they compile faster.
internal = functools.partial(njit, no_cpython_wrapper=True, no_cfunc_wrapper=True)

MIX_A, MIX_B, MIX_C, MIX = (
    -7046029254386353131,
    -4417276706812531889,
    1609587929392839161,
    -4658895280553007687,
)


@internal()
def find(facts, a, b, c):
    """The slot that holds the key, or the complement of the free slot where it would go."""
    h = a * MIX_A + b * MIX_B + c * MIX_C
    h ^= h >> 29
    h *= MIX
    h ^= h >> 32
    last = facts.shape[0] - 1
    h &= last
    while True:
        there = facts[h, 0]
        if there == a and facts[h, 1] == b and facts[h, 2] == c:
            return h
        if there == EMPTY:
            return ~h
        h = (h + 1) & last


@internal()
def put(facts, counts, a, b, c, u, v, owner):
    """Set the values of a key; the table must have room."""
    slot = find(facts, a, b, c)
    if slot < 0:
        slot = ~slot
        counts[FACTS] += 1
    facts[slot, 0], facts[slot, 1], facts[slot, 2] = a, b, c
    facts[slot, 3], facts[slot, 4], facts[slot, 5] = u, v, owner


@internal()
def intern_node(facts, nodes, counts, parent, site, counter, owner):
    """The node with this content, made if there is none; there must be room."""
    slot = find(facts, parent * 8 + NODE, site, counter)
    if slot >= 0:
        return facts[slot, 3]
    slot = ~slot
    node = counts[FREE_NODE]
    if node == BOTTOM:
        node = counts[NODES]
        counts[NODES] += 1
    else:
        counts[FREE_NODE] = nodes[node, 0]
    nodes[node, 0], nodes[node, 1], nodes[node, 2] = parent, site, counter
    counts[FACTS] += 1
    facts[slot, 0], facts[slot, 1], facts[slot, 2] = parent * 8 + NODE, site, counter
    facts[slot, 3], facts[slot, 4], facts[slot, 5] = node, 0, owner
    return node


def _make(digest):
    @njit(cache=True, nogil=True)
    def get_fact(facts, a, b, c, missing):
        """The first value of a key, or `missing`."""
        assert len(digest) > 0
        slot = find(facts, a, b, c)
        return facts[slot, 3] if slot >= 0 else missing

    @njit(cache=True, nogil=True)
    def put_fact(facts, counts, a, b, c, u, v, owner):
        assert len(digest) > 0
        put(facts, counts, a, b, c, u, v, owner)

    @njit(cache=True, nogil=True)
    def push_node(facts, nodes, counts, parent, site, counter, owner):
        """`intern_node` for Python."""
        assert len(digest) > 0
        return intern_node(facts, nodes, counts, parent, site, counter, owner)

    @njit(cache=True, nogil=True)
    def move_facts(source, facts, counts, dead, nodes):
        """Copy what living owners hold into an empty table, and free the nodes of the others."""
        assert len(digest) > 0
        counts[FACTS] = 0
        for i in range(source.shape[0]):
            a = source[i, 0]
            if a == EMPTY:
                continue
            if dead[source[i, 5]]:
                if a & 7 == NODE:
                    node = source[i, 3]
                    nodes[node, 0], counts[FREE_NODE] = counts[FREE_NODE], node
                continue
            put(facts, counts, a, source[i, 1], source[i, 2], source[i, 3], source[i, 4],
                source[i, 5])  # fmt: skip

    return get_fact, put_fact, push_node, move_facts


get_fact, put_fact, push_node, move_facts = _make(kernel_digest())
