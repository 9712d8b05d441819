"""Kernels that move configurations by a token, and that look up the rows of their masks.

A kernel that meets something that only Python knows writes why into `event`, returns, and is called
again once Python has answered; it has changed nothing but interned nodes, which have no meaning of
their own.
"""

from __future__ import annotations

from numba import njit

from logitkit.grammar.facts import find, intern_node, internal
from logitkit.grammar.memory import (
    ADD,
    ASK_LAND,
    ASK_RESUME,
    BOTTOM,
    CALL,
    CHAIN,
    CONTROL,
    CONTROLS,
    DEAD,
    DECISION,
    DONE,
    EOS,
    EXPAND,
    FACTS,
    FINAL,
    FLAGS,
    FREE,
    GROW,
    LAND,
    LIMIT,
    NODES,
    OWNER,
    PUT,
    RESUME,
    STOPPED,
    TEXT,
    UNEXPANDED,
    UNKNOWN,
    kernel_digest,
)


@internal(inline="always")
def ask(event, why, first, second):
    event[0], event[1], event[2] = why, first, second


@internal()
def landed(states, facts, state, counter, event):
    """The state and counter in place of these; state UNKNOWN: `event` says what to ask.

    Not needed where counter < states[state, LIMIT].
    """
    if states[state, LIMIT] == UNEXPANDED:
        ask(event, EXPAND, state, 0)
        return UNKNOWN, counter
    slot = find(facts, state * 8 + LAND, counter, 0)
    if slot < 0:
        ask(event, ASK_LAND, state, counter)
        return UNKNOWN, counter
    return facts[slot, 3], facts[slot, 4]


def _make(digest):
    # One flat function, as numba counts references for every array that a call is given.
    @njit(cache=True, nogil=True)
    def advance(table, states, ops, nodes, facts, counts, frames, data, offsets, kinds,
                configurations, tokens, first, keep, out, accepted, event):  # fmt: skip
        """Take `tokens[r]` in row r from `first` on: `out[r]`, and whether it was accepted.

        A refused row becomes DEAD, or stays as it is if `keep`. Returns the row that is to be done
        next: all are done, or `event` says what to ask. `frames[:depth]` is the stack that a token
        builds above `node`; it is interned at its end.
        """
        assert len(digest) > 0
        event[0] = DONE
        for r in range(first, configurations.shape[0]):
            state, node, counter = configurations[r, 0], configurations[r, 1], configurations[r, 2]
            token, code, depth = tokens[r], UNKNOWN, 0
            i, end = 0, 0
            if state in (FREE, DEAD):
                pass
            elif token < 0 or token >= kinds.shape[0]:
                state = DEAD
            elif state == STOPPED:
                state = STOPPED if kinds[token] == EOS else DEAD
            elif kinds[token] == TEXT:
                i, end = offsets[token], offsets[token + 1]
            else:
                if states[state, LIMIT] == UNEXPANDED:
                    ask(event, EXPAND, state, 0)
                    return r
                if states[state, FLAGS] & CONTROLS:
                    slot = find(facts, state * 8 + CONTROL, token, 0)
                    code = facts[slot, 3] if slot >= 0 else UNKNOWN
                if code == UNKNOWN:
                    final = states[state, FLAGS] & FINAL != 0 and node == BOTTOM
                    state = STOPPED if kinds[token] == EOS and final else DEAD
            room = end - i + 1
            if counts[NODES] + room > nodes.shape[0] or 2 * (counts[FACTS] + room) > facts.shape[0]:
                ask(event, GROW, 0, 0)
                return r
            while code != UNKNOWN or i < end:
                if code == UNKNOWN:
                    code = table[state, data[i]]
                    i += 1
                if code > 0:
                    state, code = code, UNKNOWN
                    if state == DEAD:
                        break
                    continue
                if code == UNKNOWN:
                    ask(event, EXPAND, state, 0)
                    return r
                kind, target, amount = ops[-code, 0], ops[-code, 1], ops[-code, 2]
                code = UNKNOWN
                if kind == ADD:
                    state, counter = target, counter + amount
                    continue
                if kind == PUT:
                    state, counter = target, amount
                    continue
                if kind == CALL:
                    frames[depth, 0], frames[depth, 1] = amount, counter
                    state, counter, depth = target, 0, depth + 1
                    continue
                old = depth == 0
                if not old:
                    depth -= 1
                    site, counter = frames[depth, 0], frames[depth, 1]
                elif node == BOTTOM:
                    state = DEAD
                    break
                else:
                    site, counter, node = nodes[node, 1], nodes[node, 2], nodes[node, 0]
                slot = find(facts, site * 8 + RESUME, target, 0)
                if slot < 0:
                    ask(event, ASK_RESUME, site, target)
                    return r
                state = facts[slot, 3]
                if state == DEAD:
                    break
                # A frame of this token is too young to matter: no token is longer than the horizon.
                if old and counter >= states[state, LIMIT]:
                    state, counter = landed(states, facts, state, counter, event)
                    if state == UNKNOWN:
                        return r
            if counter >= states[state, LIMIT]:
                state, counter = landed(states, facts, state, counter, event)
                if state == UNKNOWN:
                    return r
            accepted[r] = state != DEAD
            if state == DEAD:
                if keep:
                    state, node = configurations[r, 0], configurations[r, 1]
                    counter = configurations[r, 2]
                else:
                    node, counter = BOTTOM, 0
            elif state == STOPPED:
                node, counter = BOTTOM, 0
            else:
                owner = states[state, OWNER]
                for j in range(depth):
                    site, pushed = frames[j, 0], frames[j, 1]
                    node = intern_node(facts, nodes, counts, node, site, pushed, owner)
            out[r, 0], out[r, 1], out[r, 2] = state, node, counter
        return configurations.shape[0]

    @njit(cache=True, nogil=True)
    def find_rows(states, nodes, facts, site_limits, configurations, stamps, tick, out):
        """`out[r]`: the mask row of a configuration, -1 where it is not built; how many are not.

        Rows that are found are stamped with `tick`.
        """
        assert len(digest) > 0
        missing = 0
        for r in range(configurations.shape[0]):
            decision, node = states[configurations[r, 0], DECISION], configurations[r, 1]
            while decision < 0:
                site, counter = nodes[node, 1], nodes[node, 2]
                if site < 0 or counter < site_limits[site]:
                    counter = -1
                slot = find(facts, -decision * 8 + CHAIN, site, counter)
                decision = facts[slot, 3] if slot >= 0 else 0
                node = nodes[node, 0]
            out[r] = decision - 1
            if decision:
                stamps[decision - 1] = tick
            else:
                missing += 1
        return missing

    return advance, find_rows


advance, find_rows = _make(kernel_digest())
