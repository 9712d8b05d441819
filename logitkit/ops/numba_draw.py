"""CPU kernels of the draw: Philox4x32-10 noise for the survivors only, and the best score.

`logitkit.randomness` has the definition. An entry can win only if its uniform number is below
exp(logit - best score so far), so the two logarithms are taken for a handful of entries.
"""

from __future__ import annotations

import math

import numpy as np

from logitkit.ops.numba_bits import bits_from_float, internal
from logitkit.ops.numba_row import CHUNK, LANES

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
SLACK = np.float64(1.001)  # covers the rounding of the quick test
LOG2_E, MARGIN = np.float32(1.44269504), np.float32(0.01)
ROUNDING = np.float64(2.0**-24)  # half a unit of a score, by which a lower one may still tie
REACH = np.float32(24.0)  # noise is above -22.9, so what lies this far below the best cannot win


@internal(inline="always")
def philox(seed, token, position, stream):
    """The first output word for one counter (round 0), as uint64 in [0, 2^32)."""
    k0, k1 = seed & _LOW, seed >> _HALF
    x0, x1, x2, x3 = token & _LOW, position & _LOW, stream, np.uint64(0)
    for _ in range(10):
        left, right = x0 * _M0, x2 * _M1
        x0, x1, x2, x3 = (
            (right >> _HALF) ^ x1 ^ k0,
            right & _LOW,
            (left >> _HALF) ^ x3 ^ k1,
            left & _LOW,
        )
        k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
    return x0


@internal(inline="always")
def uniform(seed, token, position):
    """The float32 number in (0, 1) from which the target's noise is made."""
    word = np.float32(np.int64(philox(seed, token, position, np.uint64(0))))
    v = (word + np.float32(0.5)) * np.float32(2.0**-32)
    return min(v, np.float32(1.0 - 2.0**-24))


@internal()
def noise(v):
    return np.float32(math.log(-math.log1p(-np.float64(v))))


@internal()
def coin(seed, position, stream):
    """One number in (0, 1) per row and stream."""
    word = philox(seed, np.uint64(0), np.uint64(position), np.uint64(stream))
    return (np.float64(np.int64(word)) + 0.5) * 2.0**-32


@internal()
def draw_gathered(ids, values, n, low, high, seed, position):
    """The winner among n gathered entries inside the window; the lowest id among equal scores."""
    best, winner = np.float32(-np.inf), np.int64(-1)
    for i in range(n):
        if values[i] < low or values[i] > high:
            continue
        v = uniform(seed, np.uint64(ids[i]), np.uint64(position))
        if winner >= 0:
            rounding = ROUNDING * abs(np.float64(best))
            if np.float64(v) > SLACK * math.exp(np.float64(values[i]) - best + rounding):
                continue
        score = values[i] - noise(v)
        if winner < 0 or score > best or (score == best and ids[i] < winner):
            best, winner = score, np.int64(ids[i])
    return winner


@internal()
def draw_row(y, maxima, low, high, seed, position, uniforms, exponents):
    """The winner among the entries of a whole row inside the window.

    Noise is above log(v), and log2(v) is at least v's exponent, so nearly all entries are ruled out
    without a logarithm.
    """
    best, winner = np.float32(-np.inf), np.int64(-1)
    for c in range(y.shape[0] // CHUNK):
        floor = max(low, best - REACH)
        hit = 0
        for j in range(LANES):
            hit |= maxima[c * LANES + j] >= floor
        if not hit:
            continue
        chunk = y[c * CHUNK : (c + 1) * CHUNK]
        _draw_numbers(seed, c * CHUNK, position, uniforms, exponents)
        for start in range(0, CHUNK, LANES):
            hit = 0
            for j in range(start, start + LANES):
                inside = (low <= chunk[j]) & (chunk[j] <= high)
                hit |= inside & (exponents[j] <= (chunk[j] - best) * LOG2_E)
            if not hit:
                continue
            for j in range(start, start + LANES):
                value = chunk[j]
                if low <= value and value <= high and value > -np.inf:
                    if exponents[j] > (value - best) * LOG2_E:
                        continue
                    score = value - noise(uniforms[j])
                    if winner < 0 or score > best:
                        best, winner = score, np.int64(c * CHUNK + j)
    return winner


@internal()
def _draw_numbers(seed, start, position, uniforms, exponents):
    """The numbers of one chunk, and their binary exponents less a margin for rounding."""
    for j in range(CHUNK):
        uniforms[j] = uniform(seed, np.uint64(start + j), np.uint64(position))
    for j in range(CHUNK):
        exponents[j] = np.float32((bits_from_float(uniforms[j]) >> np.int32(23)) - 127) - MARGIN
