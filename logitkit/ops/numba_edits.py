"""CPU kernels of the rules that change single logits; `reference_edits` has the definitions.

Edits act on one row of float32 scratch. Whatever they touch is marked in `dirty`, one
flag per block, so that only those blocks' maxima are taken anew. `counts` is a zeroed scratch of
width V, and is zero again afterwards.
"""

from __future__ import annotations

import math

import numpy as np

from logitkit.ops.numba_bits import internal
from logitkit.ops.numba_row import NONE, block_of, value_at
from logitkit.ops.reference_edits import LOG_FLOAT_MAX

TOUCHED, UNUSABLE = np.uint8(1), np.uint8(2)  # what `dirty` says of a block
_IN_PROMPT = np.int32(1 << 30)


@internal()
def put(y, dirty, token, value):
    y[token] = value
    b = block_of(token)
    dirty[b] = max(dirty[b], TOUCHED if value < np.inf else UNUSABLE)


@internal()
def allow(y, dirty, mask):
    """Mask every token whose bit in the words of `mask` is not set."""
    width = y.shape[0]
    dirty[:] = 1
    for w in range((width + 31) // 32):
        word = mask[w] if w < mask.shape[0] else np.int32(0)
        if word == np.int32(-1):
            continue
        for bit in range(min(32, width - 32 * w)):
            if (word >> np.int32(bit)) & np.int32(1) == 0:
                y[32 * w + bit] = -np.inf


@internal()
def unmask(y, width, ids, words, halves, start, kind):
    """Give these entries of a row loaded with a mask the values of the logits."""
    for i in range(ids.shape[0]):
        if ids[i] < width:
            y[ids[i]] = value_at(words, halves, start + ids[i], kind)


@internal()
def mask_again(y, width, ids, mask):
    """Mask those of the entries that `mask` does not allow; their blocks are marked if changed."""
    for i in range(ids.shape[0]):
        if ids[i] < width:
            w = ids[i] // 32
            word = mask[w] if w < mask.shape[0] else np.int32(0)
            if (word >> np.int32(ids[i] % 32)) & np.int32(1) == 0:
                y[ids[i]] = NONE


@internal()
def add_bias(y, dirty, ids, values):
    for i in range(ids.shape[0]):
        put(y, dirty, ids[i], y[ids[i]] + values[i])


@internal()
def ban_words(y, dirty, history, starts, tokens):
    """Ban the last token of each sequence whose other tokens end the history."""
    for s in range(starts.shape[0] - 1):
        sequence = tokens[starts[s] : starts[s + 1]]
        length = sequence.shape[0] - 1
        if length > history.shape[0]:
            continue
        tail = history[history.shape[0] - length :]
        matches = True
        for i in range(length):
            if tail[i] != sequence[i]:
                matches = False
                break
        if matches:
            put(y, dirty, sequence[length], -np.inf)


@internal()
def penalise(y, dirty, counts, history, prompt_length, repetition, presence, frequency):
    """Repetition, presence and frequency penalties in one walk over the history."""
    width = y.shape[0]
    for i in range(history.shape[0]):
        token = history[i]
        if token < width:
            if i >= prompt_length:
                counts[token] += np.int32(1)
            else:
                counts[token] |= _IN_PROMPT
    for i in range(history.shape[0]):
        token = history[i]
        if token >= width or counts[token] == 0:
            continue
        count = np.float32(counts[token] & ~_IN_PROMPT)
        counts[token] = 0
        x = y[token]
        if x == -np.inf:
            continue
        if repetition != np.float32(1.0):
            x = x / repetition if x > 0 else x * repetition
        if count > 0 and x > -np.inf:
            x = x - presence
        if count > 0 and x > -np.inf:
            x = x - np.float32(frequency * count)
        put(y, dirty, token, x)


@internal()
def ban_ngrams(y, dirty, history, size):
    """Ban every token that would complete an n-gram of the history."""
    length = history.shape[0]
    if length < size:
        return
    prefix = history[length - size + 1 :]
    for i in range(length - size + 1):
        matches = True
        for j in range(size - 1):
            if history[i + j] != prefix[j]:
                matches = False
                break
        token = history[i + size - 1]
        if matches and token < y.shape[0]:
            put(y, dirty, token, -np.inf)


@internal()
def first_breaker(starts, tokens, token):
    """The first of the breakers (sorted by their first token) that may begin with `token`."""
    low, high = 0, starts.shape[0] - 1
    while low < high:
        middle = (low + high) // 2
        if tokens[starts[middle]] < token:
            low = middle + 1
        else:
            high = middle
    return low


@internal()
def breaker_limit(window, starts, tokens):
    """How many tokens stand behind the last sequence breaker of the window."""
    size = window.shape[0]
    for behind in range(size):
        token = window[size - 1 - behind]
        longest = -1
        s = first_breaker(starts, tokens, token)
        while s < starts.shape[0] - 1 and tokens[starts[s]] == token:
            rest = starts[s + 1] - starts[s] - 1
            if longest < rest <= behind:
                matches = True
                for j in range(rest):
                    if tokens[starts[s] + 1 + j] != window[size - behind + j]:
                        matches = False
                        break
                if matches:
                    longest = rest
            s += 1
        if longest >= 0:
            return behind - longest
    return size


@internal()
def dry(y, dirty, counts, window, multiplier, base, allowed, starts, tokens):
    """Penalise tokens that would lengthen a repetition; one pass of the Z algorithm, backwards."""
    size = window.shape[0]
    if size <= allowed:
        return
    limit = breaker_limit(window, starts, tokens)
    if limit < allowed:
        return
    lengths = np.zeros(size, np.int64)  # of the match read backwards from size - 1 - i
    left, right = 0, 0
    for i in range(1, size):
        length = min(right - i, lengths[i - left]) if i < right else 0
        while i + length < size and window[size - 1 - length] == window[size - 1 - i - length]:
            length += 1
        lengths[i] = length
        if i + length > right:
            left, right = i, i + length
    for i in range(1, size):
        token, length = window[size - i], min(lengths[i], limit)
        if length >= allowed and token < y.shape[0] and length >= counts[token]:
            counts[token] = np.int32(length + 1)  # 0 stands for none
    cap = int(LOG_FLOAT_MAX / math.log(base)) if base > 1.000001 else size
    for i in range(1, size):
        token = window[size - i]
        if token >= y.shape[0] or counts[token] == 0:
            continue
        length = counts[token] - 1
        counts[token] = 0
        s = first_breaker(starts, tokens, token)
        single = s < starts.shape[0] - 1 and tokens[starts[s]] == token
        if single and starts[s + 1] - starts[s] == 1:
            continue
        power = base ** min(length - allowed, cap)
        put(y, dirty, token, y[token] - np.float32(multiplier * power))
