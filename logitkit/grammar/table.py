"""`Table`: a regular grammar as dense arrays, for the path that keeps its state on a device.

Counters are multiplied out: each pair of state and counter is a state of the table.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitkit.errors import GrammarError
from logitkit.grammar.arena import Arena, Configuration
from logitkit.grammar.machine import Budget
from logitkit.grammar.memory import (
    BOTTOM,
    CONTROLS,
    DEAD,
    DECISION,
    FINAL,
    FLAGS,
    LIMIT,
    NO_LIMIT,
    PUT,
    STOPPED,
)
from logitkit.grammar.program import Program
from logitkit.grammar.rows import NONE_ROW

TABLE_DEAD, TABLE_STOPPED, FIRST = 0, 1, 2
TABLE_STATES = 1 << 15  # 32 MiB of transitions
CHECKED_EVERY = 64

Pair = tuple[int, int]  # state, counter


class Table(NamedTuple):
    """Folding a token's bytes over `transitions` from `start` gives the state after it.

    State 0 is dead, state 1 stopped: what a `final` state becomes by any eos id. `transitions`
    int32 [S, 256], `row_of_state` int32 [S] (as ids in the arena's rows), `final` bool [S].
    """

    transitions: NDArray[np.int32]
    row_of_state: NDArray[np.int32]
    final: NDArray[np.bool_]
    start: int


class Made(NamedTuple):
    """A table, and for each of its states the place of its row in the program's pinned rows."""

    table: Table
    places: NDArray[np.int64]
    generation: int


def make_table(arena: Arena, program: Program, start: Configuration, budget: Budget) -> Made | None:
    """The table of a regular grammar, its rows built and kept; None if it is over the budget
    (states, bytes of rows, seconds) or uses control tokens."""
    deadline = time.monotonic() + budget.seconds
    try:
        explored = _explore(arena, program, (start[0], start[2]), budget, deadline)
        if explored is None:
            return None
        pairs, transitions = explored
        configurations = np.array([(state, BOTTOM, counter) for state, counter in pairs], np.int64)
        if not _build_rows(arena, configurations, budget, deadline):
            return None
    except GrammarError:  # one state alone is over the budget; a mask that needs it says so
        return None
    with arena.lock:
        store, ids = arena.masks(configurations)
        stopped = int(arena.heap.states[STOPPED, DECISION]) - 1
        rows = np.concatenate([[NONE_ROW, stopped], ids])
        program.pinned, places = np.unique(rows, return_inverse=True)
        finals = arena.heap.states[configurations[:, 0], FLAGS] & FINAL != 0
    final = np.concatenate([[False, False], finals])
    return Made(Table(transitions, rows.astype(np.int32), final, FIRST), places, store.generation)


def renewed(arena: Arena, program: Program, made: Made) -> Made:
    """The same table with the ids that its rows have now."""
    with arena.lock:
        rows = program.pinned[made.places].astype(np.int32)
        return Made(made.table._replace(row_of_state=rows), made.places, arena.store.generation)


def _explore(
    arena: Arena, program: Program, start: Pair, budget: Budget, deadline: float
) -> tuple[list[Pair], NDArray[np.int32]] | None:
    """All pairs that bytes reach, and their transitions with two rows for dead and stopped."""
    most, heap = min(budget.states, TABLE_STATES), arena.heap
    local = {start: FIRST}
    pairs = [start]
    rows = [np.zeros(256, np.int32)] * FIRST
    done = 0
    while done < len(pairs):
        state, counter = pairs[done]
        done += 1
        late = done % CHECKED_EVERY == 0 and time.monotonic() > deadline
        with arena.lock:
            heap.requests += 1
            program.expand(state)
            flags, row = heap.states[state, FLAGS], heap.table[state].copy()
            limit = int(heap.states[state, LIMIT])
        endless = limit < NO_LIMIT and limit - counter > most  # one state for each count to come
        if late or endless or len(pairs) > most or flags & CONTROLS:
            return None
        codes, places = np.unique(row, return_inverse=True)
        targets = []
        for code in codes.tolist():
            if code == DEAD:
                targets.append(TABLE_DEAD)
                continue
            pair = _land(arena, program, *_follow(arena, code, counter))
            if pair not in local:
                local[pair] = FIRST + len(pairs)
                pairs.append(pair)
            targets.append(local[pair])
        rows.append(np.array(targets, np.int32)[places])
    return pairs, np.stack(rows)


def _follow(arena: Arena, code: int, counter: int) -> Pair:
    if code > 0:
        return code, counter
    kind, target, amount = arena.heap.ops[-code].tolist()
    return (target, amount) if kind == PUT else (target, counter + amount)


def _land(arena: Arena, program: Program, state: int, counter: int) -> Pair:
    with arena.lock:
        program.expand(state)
        if counter < arena.heap.states[state, LIMIT]:
            return state, counter
        return program.land(state, counter)


def _build_rows(
    arena: Arena, configurations: NDArray[np.int64], budget: Budget, deadline: float
) -> bool:
    """Build every row within the budget; whether that was possible."""
    most = budget.row_bytes // (4 * arena.words)
    ids: set[int] = set()
    for i in range(0, len(configurations), CHECKED_EVERY):
        ids.update(arena.row_ids(configurations[i : i + CHECKED_EVERY]).tolist())
        if len(ids) > most or time.monotonic() > deadline:
            return False
    return True
