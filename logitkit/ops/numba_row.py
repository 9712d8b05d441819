"""One row of float32 scratch: loading it, its block maxima, and what is found by way of them.

The scratch row is padded with `-inf` to whole chunks of 1,024. A block is 16 entries of one chunk that
lie 64 apart, so that block maxima are taken lane by lane, without any horizontal step. `maxima` holds
one key (see `numba_bits.order_key`) per block, chunk after chunk.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from logitkit.ops.numba_bits import (
    exp_nonpositive,
    float_from_bits,
    key_of,
    order_key,
    value_of,
)

LANES = 64
DEPTH = 16
CHUNK = LANES * DEPTH
FLOAT32, BFLOAT16, FLOAT16 = 0, 1, 2
NEAR, FAR = np.float32(4.0), np.float32(9.0)  # nats below the maximum
_LOWEST = np.int32(-0x80000000)


@njit
def block_of(token):
    return (token // CHUNK) * LANES + token % LANES


@njit
def load(y, words, halves, start, width, kind):
    """Copy a row of logits into the scratch as float32; -0 becomes +0."""
    if kind == FLOAT32:
        x = words[start : start + width]
        for i in range(width):
            y[i] = float_from_bits(x[i]) + np.float32(0.0)
    else:
        h = halves[start : start + width]
        if kind == BFLOAT16:
            for i in range(width):
                y[i] = float_from_bits(np.int32(h[i]) << np.int32(16)) + np.float32(0.0)
        else:
            for i in range(width):
                y[i] = _from_half(np.int32(h[i])) + np.float32(0.0)
    y[width:] = -np.inf


@njit(inline="always")
def _from_half(h):
    """The float32 of an IEEE half given as sign-extended int32; a power of two rebases it."""
    magnitude = (h & np.int32(0x7FFF)) << np.int32(13)
    value = float_from_bits(magnitude) * np.float32(2.0**112)
    special = float_from_bits(magnitude | np.int32(0x7F800000))
    value = special if (h & np.int32(0x7C00)) == np.int32(0x7C00) else value
    return -value if h < 0 else value


@njit
def take_maxima(bits, maxima, lanes):
    """Fill `maxima` from the scratch's bits; the largest key, and whether there is a NaN."""
    largest = lanes[0]
    magnitude = lanes[1]
    largest[:] = _LOWEST
    magnitude[:] = 0
    for c in range(bits.shape[0] // CHUNK):
        top = maxima[c * LANES : (c + 1) * LANES]
        top[:] = _LOWEST
        for i in range(DEPTH):
            segment = bits[c * CHUNK + i * LANES : c * CHUNK + (i + 1) * LANES]
            for j in range(LANES):
                top[j] = max(top[j], order_key(segment[j]))
                magnitude[j] = max(magnitude[j], segment[j] & np.int32(0x7FFFFFFF))
        for j in range(LANES):
            largest[j] = max(largest[j], top[j])
    top_key, top_magnitude = _LOWEST, np.int32(0)
    for j in range(LANES):
        top_key = max(top_key, largest[j])
        top_magnitude = max(top_magnitude, magnitude[j])
    return top_key, top_magnitude > np.int32(0x7F800000)


@njit
def retake_maxima(y, maxima, dirty):
    """Renew the maxima of the dirty blocks, clear the marks, and return the row's largest key."""
    for b in range(dirty.shape[0]):
        if dirty[b]:
            dirty[b] = 0
            first = (b // LANES) * CHUNK + b % LANES
            top = _LOWEST
            for i in range(DEPTH):
                top = max(top, key_of(y[first + i * LANES]))
            maxima[b] = top
    top = _LOWEST
    for b in range(maxima.shape[0]):
        top = max(top, maxima[b])
    return top


@njit
def first_index_of(y, maxima, key):
    """The lowest token whose logit has the given (largest) key."""
    for c in range(maxima.shape[0] // LANES):
        hit = 0
        for j in range(LANES):
            hit |= maxima[c * LANES + j] == key
        if hit:
            for i in range(c * CHUNK, (c + 1) * CHUNK):
                if key_of(y[i]) == key:
                    return i
    return -1


@njit
def scale(y, maxima, temperature):
    """Divide the row, rounding to nearest."""
    for i in range(y.shape[0]):
        y[i] = y[i] / temperature
    for b in range(maxima.shape[0]):
        maxima[b] = key_of(value_of(maxima[b]) / temperature)


@njit
def gather(y, maxima, floor, ids, values):
    """Collect the entries >= floor in no special order; their number, or -1 if they do not fit."""
    floor_key = key_of(floor)
    found = 0
    for c in range(maxima.shape[0] // LANES):
        top = maxima[c * LANES : (c + 1) * LANES]
        hit = 0
        for j in range(LANES):
            hit |= top[j] >= floor_key
        if not hit:
            continue
        for j in range(LANES):
            if top[j] >= floor_key:
                if found + DEPTH > ids.shape[0]:
                    return -1
                for i in range(DEPTH):
                    token = c * CHUNK + i * LANES + j
                    ids[found] = token
                    values[found] = y[token]
                    found += y[token] >= floor
    return found


@njit
def lower_bound_of_kth(maxima, k, tops):
    """A value that at least k entries reach: the k-th largest of maxima over disjoint groups.

    Returns -inf where there are not enough groups.
    """
    groups = tops.shape[0]
    if k <= groups // 2 and maxima.shape[0] > groups:
        tops[:] = _LOWEST
        whole = maxima.shape[0] // groups * groups
        for start in range(0, whole, groups):
            row = maxima[start : start + groups]
            for j in range(groups):
                tops[j] = max(tops[j], row[j])
        for j in range(maxima.shape[0] - whole):
            tops[j] = max(tops[j], maxima[whole + j])
        return value_of(kth_largest_of(tops, k))
    if k <= maxima.shape[0]:
        return value_of(kth_largest_of(maxima.copy(), k))
    return np.float32(-np.inf)


@njit
def kth_largest_of(keys, k):
    """The k-th largest of some thousand keys; reorders them (quickselect)."""
    left, right, wanted = 0, keys.shape[0] - 1, k - 1
    while left < right:
        pivot = keys[(left + right) // 2]
        i, j = left, right
        while i <= j:
            while keys[i] > pivot:
                i += 1
            while keys[j] < pivot:
                j -= 1
            if i <= j:
                keys[i], keys[j] = keys[j], keys[i]
                i += 1
                j -= 1
        if wanted <= j:
            right = j
        elif wanted >= i:
            left = i
        else:
            break
    return keys[wanted]


@njit
def kth_largest(bits, k, histogram):
    """The k-th largest value of any row: three passes over the bits of its keys (radix select)."""
    prefix, below = np.int64(0), 32
    for step in range(3):
        shift = 21 - 11 * step if step < 2 else 0
        size = np.int64(1) << (below - shift)
        histogram[:size] = 0
        for i in range(bits.shape[0]):
            key = np.int64(order_key(bits[i])) + np.int64(0x80000000)
            if key >> below == prefix:
                histogram[(key >> shift) & (size - 1)] += 1
        bucket = size - 1
        while histogram[bucket] < k:
            k -= histogram[bucket]
            bucket -= 1
        prefix = (prefix << (below - shift)) | bucket
        below = shift
    return value_of(np.int32(prefix - np.int64(0x80000000)))


@njit(fastmath={"reassoc", "contract"})
def masses(y, top, low):
    """Sum of exp(y - top) over entries >= low, and, roughly, over those within NEAR and FAR."""
    total, near, far = 0.0, 0.0, 0.0
    for c in range(y.shape[0] // CHUNK):
        chunk = y[c * CHUNK : (c + 1) * CHUNK]
        part, part_near, part_far = 0.0, np.float32(0.0), np.float32(0.0)
        for i in range(CHUNK):
            d = chunk[i] - top
            e = exp_nonpositive(d) if chunk[i] >= low else np.float32(0.0)
            part += np.float64(e)
            part_near += e if d >= -NEAR else np.float32(0.0)
            part_far += e if d >= -FAR else np.float32(0.0)
        total += part
        near += part_near
        far += part_far
    return total, near, far
