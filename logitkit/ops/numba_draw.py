"""CPU kernels of the draw: Philox4x32-10 noise for the survivors only, and the best score.

`logitkit.randomness` has the definition. An entry can win only if its uniform number is below
exp(logit - best score so far), so the two logarithms are taken for a handful of entries.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from logitkit.ops.numba_bits import exp_nonpositive, key_of
from logitkit.ops.numba_row import CHUNK, LANES

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
SLACK = np.float64(1.001)  # covers the rounding of the quick test
REACH = np.float32(24.0)  # noise is above -22.9, so what lies this far below the best cannot win


@njit(inline="always")
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


@njit(inline="always")
def uniform(seed, token, position):
    """The float32 number in (0, 1) from which the target's noise is made."""
    word = np.float32(np.int64(philox(seed, token, position, np.uint64(0))))
    v = (word + np.float32(0.5)) * np.float32(2.0**-32)
    return min(v, np.float32(1.0 - 2.0**-24))


@njit
def noise(v):
    return np.float32(math.log(-math.log1p(-np.float64(v))))


@njit
def coin(seed, position, stream):
    """One number in (0, 1) per row and stream."""
    word = philox(seed, np.uint64(0), np.uint64(position), np.uint64(stream))
    return (np.float64(np.int64(word)) + 0.5) * 2.0**-32


@njit
def draw_gathered(ids, values, n, low, high, seed, position):
    """The winner among n gathered entries inside the window; the lowest id among equal scores."""
    best, winner = np.float32(-np.inf), np.int64(-1)
    for i in range(n):
        if values[i] < low or values[i] > high:
            continue
        v = uniform(seed, np.uint64(ids[i]), np.uint64(position))
        if winner >= 0 and np.float64(v) > SLACK * math.exp(np.float64(values[i]) - best):
            continue
        score = values[i] - noise(v)
        if winner < 0 or score > best or (score == best and ids[i] < winner):
            best, winner = score, np.int64(ids[i])
    return winner


@njit
def draw_row(y, maxima, top, low, high, seed, position, uniforms, limits):
    """The winner among the entries of a whole row inside the window."""
    best, winner = np.float32(-np.inf), np.int64(-1)
    for c in range(y.shape[0] // CHUNK):
        floor = max(low, best - REACH) if winner >= 0 else low
        floor_key = key_of(floor)
        hit = 0
        for j in range(LANES):
            hit |= maxima[c * LANES + j] >= floor_key
        if not hit:
            continue
        for start in range(c * CHUNK, (c + 1) * CHUNK, LANES):
            segment = y[start : start + LANES]
            factor = np.float32(SLACK * math.exp(np.float64(top) - best)) if winner >= 0 else (
                np.float32(np.inf)
            )
            _segment(segment, top, low, high, seed, start, position, factor, uniforms, limits)
            hit = 0
            for j in range(LANES):
                hit |= uniforms[j] <= limits[j]
            if not hit:
                continue
            for j in range(LANES):
                if uniforms[j] <= limits[j]:
                    score = segment[j] - noise(uniforms[j])
                    if winner < 0 or score > best:
                        best, winner = score, np.int64(start + j)
    return winner


@njit
def _segment(segment, top, low, high, seed, start, position, factor, uniforms, limits):
    """Each entry's uniform number, and the largest one with which it could still win."""
    for j in range(LANES):
        uniforms[j] = uniform(seed, np.uint64(start + j), np.uint64(position))
    for j in range(LANES):
        inside = (low <= segment[j]) & (segment[j] <= high)
        e = exp_nonpositive(min(segment[j] - top, np.float32(0.0)))
        limits[j] = e * factor if inside else np.float32(-1.0)
