"""CPU kernel of `advance_fsm`; `reference` has the definition."""

from __future__ import annotations

from numba import njit


@njit(cache=True, nogil=True)
def fold_tokens(state, tokens, offsets, data, transitions, moved):
    """Fold the bytes of one token into every state."""
    for b in range(state.shape[0]):
        now, token = state[b], tokens[b]
        if token < 0 or token >= offsets.shape[0] - 1 or offsets[token] == offsets[token + 1]:
            now = -1
        else:
            for i in range(offsets[token], offsets[token + 1]):
                if now < 0:
                    break
                now = transitions[now, data[i]]
        moved[b] = now
