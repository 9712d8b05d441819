"""CPU kernels that find the set of entries holding a given mass, exactly and without a sort.

The entries are ranked by a key, the distance |(value - a) + b| in nats: from the most probable
value (top-p: a = maximum, b = 0) or from the entropy (typical: a = log-normaliser, b = entropy).
Weights go into buckets by key; the bucket in which the target is reached is gathered and split
again, until it can be sorted or holds one key only. Ties share a key, so they stay together.
"""

from __future__ import annotations

import numpy as np

from logitkit.ops.numba_bits import exp_nonpositive, internal, least_key_from, value_of
from logitkit.ops.numba_row import CHUNK, WAYS, exponentials

BUCKETS = 2048
SMALL = 48
GRAIN = 64
RANGE = 24.0  # nats; what is less probable shares the last bucket at first
LIMIT = 128.0  # nats; what is less probable weighs nothing
PIVOTS = 33  # gathered keys whose median is the pivot


@internal()
def bound_in_row(y, top, low, high, a, b, target, s):
    """The smallest bound whose entries inside the window weigh `target` or more (exp(y - top)).

    The first pass ranks in float32, which is quick but may misplace an entry next to the border of
    a bucket; so what lies near the borders is gathered too, with exact keys. Rows with thousands of
    near ties go on: a pivot taken from those gathered halves the range or is the tie itself, and
    the next pass ranks what is left in float64.
    """
    n = 0
    if y.shape[0] <= s.keys.shape[0]:
        for i in range(y.shape[0]):
            if low <= y[i] and y[i] <= high and y[i] > -np.inf:
                s.keys[n] = abs((np.float64(y[i]) - a) + b)
                s.masses[n] = exp_nonpositive(y[i] - top)
                n += 1
        return bound_of(s.keys[:n], s.masses[:n], target, s.buckets)
    first, last, least, most, exact = 0.0, RANGE, 0.0, LIMIT, False
    margin = 1.0e-6 * (abs(a - b) + RANGE)
    while True:
        start_key, factor = least, BUCKETS / (last - first)
        s.buckets[:] = 0.0
        for start in range(0, y.shape[0], CHUNK):
            chunk = y[start : start + CHUNK]
            if exact:
                _rank(chunk, top, low, high, a, b, first, factor, least, most, s.indices, s.e)
            else:
                _rank_roughly(chunk, top, low, high, a - b, factor, s.indices, s.e)
            for j in range(CHUNK):
                s.buckets[(j % WAYS) * BUCKETS + s.indices[j]] += s.e[j]
        bucket, missing = _reach(s.buckets, target)
        if bucket > 0:
            least = max(least, first + bucket / factor - margin)
        if bucket < BUCKETS - 1:
            most = min(most, first + (bucket + 1) / factor + margin)
        n, below = _gather_between(
            y, top, low, high, a, b, least, most, first, factor, bucket, exact, s
        )
        if n <= s.keys.shape[0]:
            return bound_of(s.keys[:n], s.masses[:n], missing + below, s.buckets)
        insertion_sort(s.keys[:PIVOTS], s.masses[:PIVOTS])
        pivot = s.keys[PIVOTS // 2]
        before, below, equal = _masses_around(y, top, low, high, a, b, start_key, least, pivot, s.e)
        target -= before
        if target <= below:
            most = min(most, np.nextafter(pivot, -np.inf))
        elif target <= below + equal:
            return pivot
        else:
            least, target = np.nextafter(pivot, np.inf), target - below - equal
        if least >= most:
            return most
        first, last, margin, exact = least, most, 1.0e-3 * (most - least) / BUCKETS, True


@internal()
def _rank_roughly(chunk, top, low, high, center, factor, indices, weights):
    """The bucket and the weight of every entry of a chunk; weight 0 outside the window."""
    middle, steps = np.float32(center), np.float32(factor)
    for j in range(CHUNK):
        value = chunk[j]
        indices[j] = np.int32(min(abs(value - middle) * steps, np.float32(BUCKETS - 1)))
        inside = (low <= value) & (value <= high)
        weights[j] = exp_nonpositive(value - top) if inside else np.float32(0.0)


@internal()
def _rank(chunk, top, low, high, a, b, first, factor, least, most, indices, weights):
    """The same with exact keys, for those between `least` and `most`."""
    for j in range(CHUNK):
        value = chunk[j]
        key = abs((np.float64(value) - a) + b)
        indices[j] = np.int32(max(min((key - first) * factor, BUCKETS - 1.0), 0.0))
        inside = (low <= value) & (value <= high) & (least <= key) & (key <= most)
        weights[j] = exp_nonpositive(value - top) if inside else np.float32(0.0)


@internal()
def _gather_between(y, top, low, high, a, b, least, most, first, factor, bucket, exact, s):
    """Collect the entries with keys in [least, most]: their number, and the weight of those that
    were ranked below the bucket. Stops with one too many when they do not fit."""
    middle, steps, step = np.float32(a - b), np.float32(factor), np.float64(factor)
    near = np.float32(least - 1.0e-6 * (abs(a - b) + least))
    far = np.float32(most + 1.0e-6 * (abs(a - b) + most))
    n, below = 0, 0.0
    for start in range(0, y.shape[0], GRAIN):
        segment = y[start : start + GRAIN]
        hit = 0
        for j in range(GRAIN):
            distance = abs(segment[j] - middle)
            hit |= (near <= distance) & (distance <= far)
        if not hit:
            continue
        if n + GRAIN > s.keys.shape[0]:
            return s.keys.shape[0] + 1, below
        for j in range(GRAIN):
            value = segment[j]
            if not near <= abs(value - middle) <= far:
                continue
            key = abs((np.float64(value) - a) + b)
            weight = exp_nonpositive(value - top)
            if low <= value <= high and least <= key <= most and weight > np.float32(0.0):
                if exact:
                    index = int(max(min((key - first) * step, BUCKETS - 1.0), 0.0))
                else:
                    index = int(min(abs(value - middle) * steps, np.float32(BUCKETS - 1)))
                below += weight if index < bucket else 0.0
                s.keys[n], s.masses[n] = key, weight
                n += 1
    return n, below


@internal()
def _masses_around(y, top, low, high, a, b, start_key, least, pivot, e):
    """The weight of the keys in [start_key, least), in [least, pivot), and of the pivot itself."""
    before, below, equal = 0.0, 0.0, 0.0
    for start in range(0, y.shape[0], CHUNK):
        chunk = y[start : start + CHUNK]
        exponentials(chunk, top, e)
        found = _sums_around(chunk, low, high, a, b, start_key, least, pivot, e)
        before, below, equal = before + found[0], below + found[1], equal + found[2]
    return before, below, equal


@internal(fastmath={"reassoc"})
def _sums_around(chunk, low, high, a, b, start_key, least, pivot, e):
    before, below, equal = 0.0, 0.0, 0.0
    for j in range(chunk.shape[0]):
        value = chunk[j]
        key = abs((np.float64(value) - a) + b)
        weight = np.float64(e[j] if (low <= value) & (value <= high) else np.float32(0.0))
        before += weight if (start_key <= key) & (key < least) else 0.0
        below += weight if (least <= key) & (key < pivot) else 0.0
        equal += weight if key == pivot else 0.0
    return before, below, equal


@internal()
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
    insertion_sort(keys[:n], weights[:n])
    reached = 0.0
    for i in range(n):
        reached += weights[i]
        if reached >= target:
            return keys[i]
    return keys[n - 1]


@internal()
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


@internal()
def insertion_sort(keys, weights):
    """Sort a few keys upwards, their weights with them."""
    for i in range(1, keys.shape[0]):
        key, weight = keys[i], weights[i]
        j = i - 1
        while j >= 0 and keys[j] > key:
            keys[j + 1], weights[j + 1] = keys[j], weights[j]
            j -= 1
        keys[j + 1], weights[j + 1] = key, weight


@internal()
def window_of_bound(a, b, bound):
    """The least and the largest float32 whose key is within the bound."""
    least = value_of(np.int32(least_key_from(a, b, -bound)))
    most = -value_of(np.int32(least_key_from(-a, -b, -bound)))
    return least, most
