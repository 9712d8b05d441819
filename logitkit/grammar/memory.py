"""The words of the engine's memory: columns, codes and kinds that the kernels and Python share.

`table[state, byte]` is an int32 code: 0 unknown (the state is not expanded yet), positive the next
state, negative an operation, `ops[-code]`. Everything else that a kernel may have to ask (nodes by
content, resumptions, landings, control tokens, decisions) is one hash table of *facts*, so that a
kernel needs few arguments and a dead grammar is swept out of one place.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

# States that belong to no grammar.
UNKNOWN, DEAD, STOPPED, FREE = 0, 1, 2, 3
FIRST_STATE = 4

# states[state, ...], int64
LIMIT, DECISION, FLAGS, OWNER = 0, 1, 2, 3
UNEXPANDED = -1  # as a limit
NO_LIMIT = 1 << 62
FINAL, CONTROLS = 4, 8  # flags; 1 and 2 are the slices of machine.py
ROOM = 8  # from this bit on: a state's room + 1, 0 being none

# ops[op, ...], int64: kind, state or tag, amount or site
ADD, PUT, CALL, RETURN = 0, 1, 2, 3

# nodes[node, ...], int64: parent, site, counter. Node 0 is the empty stack; node 1 is a stack that
# is not known yet (see `warm`): whoever pops it asks about its site.
BOTTOM, OPEN = 0, 1
OPEN_SITE = -2
TEMPORARY = 1 << 40  # nodes from here on live only as long as one walk

# facts[slot, ...], int64: key a, b, c; values u, v; owner. Key a is an id times 8 plus the kind.
NODE, RESUME, LAND, CONTROL, CHAIN = 0, 1, 2, 3, 4
EMPTY = -1  # as key a
# NODE (parent, site, counter) -> node          RESUME (site, tag) -> state, DEAD if there is none
# LAND (state, counter) -> state, counter       CONTROL (state, token) -> code
# CHAIN (chain, site, counter's class) -> decision
# A decision says where a row is: 0 unknown, row + 1, or -chain: it depends on the next caller.

# counts: nodes ever made, head of the list of free nodes, facts
NODES, FREE_NODE, FACTS = 0, 1, 2

# Kinds of tokens.
SILENT, TEXT, EOS, CONTROL_TOKEN = 0, 1, 2, 3

# Why a kernel came back: nothing to ask; expand a state; resume(site, tag); land(state, counter);
# memory is short.
DONE, EXPAND, ASK_RESUME, ASK_LAND, GROW = 0, 1, 2, 3, 4

KERNELS = ("memory", "facts", "moves", "walk", "trie_kernels")


def kernel_digest() -> str:
    """A digest of the kernels' sources, part of the key under which numba caches them on disk."""
    folder = Path(__file__).parent
    sources = [(folder / f"{name}.py").read_bytes() for name in KERNELS]
    return hashlib.sha256(b"".join(sources)).hexdigest()
