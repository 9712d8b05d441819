"""CPU kernels that find the set of entries holding a given mass, exactly and without a sort.

The entries are ranked by a key, the distance |(value - a) + b| in nats: from the most probable value
(top-p: a = maximum, b = 0) or from the entropy (typical: a = log-normaliser, b = entropy). Weights go
into buckets by key; the bucket in which the target is reached is gathered and split again, until it
can be sorted or holds one key only. Ties share a key, so they stay together.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from logitkit.ops.numba_bits import bits_from_float, exp_nonpositive, order_key, value_of
from logitkit.ops.numba_row import LANES

BUCKETS = 512
WAYS = 4  # buckets are kept this often: additions to the same one would wait for each other
SMALL = 48
RANGE = 24.0  # nats; what is less probable shares the last bucket at first


@njit
def bound_in_row(y, top, low, high, a, b, target, keys, weights, buckets, indices,
                 segment_weights):  # fmt: skip
    """The smallest bound whose entries inside the window weigh `target` or more (exp(y - top))."""
    if y.shape[0] <= keys.shape[0]:
        n = 0
        for i in range(y.shape[0]):
            if low <= y[i] and y[i] <= high and y[i] > -np.inf:
                keys[n] = abs((np.float64(y[i]) - a) + b)
                weights[n] = exp_nonpositive(y[i] - top)
                n += 1
        return bound_of(keys[:n], weights[:n], target, buckets)
    first, last, least, most = 0.0, RANGE, 0.0, np.inf
    while True:
        factor = BUCKETS / (last - first)
        buckets[:] = 0.0
        for start in range(0, y.shape[0], LANES):
            segment = y[start : start + LANES]
            _rank(segment, top, low, high, a, b, first, factor, least, most, indices,
                  segment_weights)  # fmt: skip
            for j in range(LANES):
                buckets[(j % WAYS) * BUCKETS + indices[j]] += segment_weights[j]
        bucket, target = _reach(buckets, target)
        n, least_found, most_found = 0, np.inf, -np.inf
        for start in range(0, y.shape[0], LANES):
            segment = y[start : start + LANES]
            _rank(segment, top, low, high, a, b, first, factor, least, most, indices,
                  segment_weights)  # fmt: skip
            hit = 0
            for j in range(LANES):
                hit |= (indices[j] == bucket) & (segment_weights[j] > 0.0)
            if not hit:
                continue
            for j in range(LANES):
                if indices[j] == bucket and segment_weights[j] > 0.0:
                    key = abs((np.float64(segment[j]) - a) + b)
                    least_found, most_found = min(least_found, key), max(most_found, key)
                    if n < keys.shape[0]:
                        keys[n], weights[n] = key, segment_weights[j]
                    n += 1
        if n <= keys.shape[0]:
            return bound_of(keys[:n], weights[:n], target, buckets)
        if least_found == most_found:
            return most_found
        first, last, least, most = least_found, most_found, least_found, most_found


@njit
def _rank(segment, top, low, high, a, b, first, factor, least, most, indices, weights):
    """The bucket and the weight of every entry of a segment; weight 0 outside the limits."""
    for j in range(LANES):
        value = segment[j]
        key = abs((np.float64(value) - a) + b)
        indices[j] = np.int32(max(min((key - first) * factor, BUCKETS - 1.0), 0.0))
        inside = (low <= value) & (value <= high) & (least <= key) & (key <= most)
        weights[j] = np.float64(exp_nonpositive(value - top)) if inside else 0.0


@njit
def bound_of(keys, weights, target, buckets):
    """The same for gathered entries; reorders them."""
    n = keys.shape[0]
    while n > SMALL:
        first, last = keys[0], keys[0]
        for i in range(n):
            first, last = min(first, keys[i]), max(last, keys[i])
        if first == last:
            return last
        factor = BUCKETS / (last - first)
        buckets[:] = 0.0
        for i in range(n):
            index = int(min((keys[i] - first) * factor, BUCKETS - 1.0))
            buckets[(i % WAYS) * BUCKETS + index] += weights[i]
        bucket, target = _reach(buckets, target)
        kept = 0
        for i in range(n):
            if int(min((keys[i] - first) * factor, BUCKETS - 1.0)) == bucket:
                keys[kept], weights[kept] = keys[i], weights[i]
                kept += 1
        n = kept
    _insertion_sort(keys[:n], weights[:n])
    reached = 0.0
    for i in range(n):
        reached += weights[i]
        if reached >= target:
            return keys[i]
    return keys[n - 1]


@njit
def _reach(buckets, target):
    """The bucket in which the running mass reaches the target, and what is missing before it."""
    last, before = 0, target
    for bucket in range(BUCKETS):
        mass = 0.0
        for way in range(WAYS):
            mass += buckets[way * BUCKETS + bucket]
        if mass > 0.0:
            if mass >= target:
                return bucket, target
            last = bucket
            before = target
            target -= mass
    return last, before  # rounding: the whole mass falls short by less than its last bit


@njit
def _insertion_sort(keys, weights):
    for i in range(1, keys.shape[0]):
        key, weight = keys[i], weights[i]
        j = i - 1
        while j >= 0 and keys[j] > key:
            keys[j + 1], weights[j + 1] = keys[j], weights[j]
            j -= 1
        keys[j + 1], weights[j + 1] = key, weight


@njit
def window_of_bound(y, low, high, a, b, bound):
    """The least and the largest value inside the window whose key is within the bound."""
    least, most = np.int32(0x7FFFFFFF), np.int32(-0x80000000)
    for i in range(y.shape[0]):
        value = y[i]
        key = abs((np.float64(value) - a) + b)
        inside = (low <= value) & (value <= high) & (key <= bound)
        order = order_key(bits_from_float(value))
        least = min(least, order if inside else np.int32(0x7FFFFFFF))
        most = max(most, order if inside else np.int32(-0x80000000))
    return value_of(least), value_of(most)
