"""CPU kernels of the filters; `reference_filters` has the definitions.

`v` is a whole row or the gathered part of one that matters (float32, `-inf` = masked, a multiple of
64 entries). Filters change no entry: each narrows the window [low, high] of values that survive.
"""

from __future__ import annotations

import math

import numpy as np

from logitkit.ops.numba_bits import (
    bits_from_float,
    exp_double,
    exp_nonpositive,
    internal,
    key_of,
    least_float_from,
    order_key,
    value_of,
)
from logitkit.ops.numba_mass import bound_in_row, insertion_sort, window_of_bound
from logitkit.ops.numba_row import CHUNK, exponentials, kth_largest, kth_largest_of

LEAST_KEY, MOST_KEY = np.int32(-0x80000000), np.int32(0x7FFFFFFF)
NONE, ALL = np.float32(-np.inf), np.float32(np.inf)
LEAST = np.float32(-3.4028235e38)  # the least finite float32


@internal()
def kth_value(v, k, keys, histogram):
    """The k-th largest entry (-inf where there are fewer)."""
    if k > v.shape[0]:
        return NONE
    if v.shape[0] > keys.shape[0]:
        return kth_largest(v.view(np.int32), k, histogram, keys)
    for i in range(v.shape[0]):
        keys[i] = key_of(v[i])
    return value_of(kth_largest_of(keys[: v.shape[0]], k))


@internal()
def mass_and_slope(v, top, low, high, e):
    """Sum of e and of e * (v - top), e = exp(v - top), over the window."""
    total, slope = 0.0, 0.0
    for start in range(0, v.shape[0], CHUNK):
        part = v[start : start + CHUNK]
        exponentials(part, top, e)
        mass, tilt = _sums_inside(part, top, low, high, e)
        total += mass
        slope += tilt
    return total, slope


@internal(fastmath={"reassoc"})
def _sums_inside(values, top, low, high, e):
    total, slope = 0.0, 0.0
    for i in range(values.shape[0]):
        inside = (low <= values[i]) & (values[i] <= high) & (e[i] > 0.0)
        weight = np.float64(e[i] if inside else np.float32(0.0))
        total += weight
        slope += weight * np.float64(values[i] - top if inside else np.float32(0.0))
    return total, slope


@internal(fastmath={"reassoc", "contract"})
def _sum_and_count(v):
    total, count = 0.0, 0
    for i in range(v.shape[0]):
        left = v[i] > NONE
        total += np.float64(v[i]) if left else 0.0
        count += left
    return total, count


@internal(fastmath={"reassoc", "contract"})
def _squares(v, mean):
    total = 0.0
    for i in range(v.shape[0]):
        distance = np.float64(v[i]) - mean
        total += distance * distance if v[i] > NONE else 0.0
    return total


@internal()
def entropy_of(total, slope):
    """The entropy in nats of weights with this mass and slope."""
    return math.log(total) - slope / total


@internal(fastmath={"reassoc"})
def _exact_sums(values, top):
    """How many values equal the top; the sums of e and of e * (top - value) over the others."""
    best, rest, spread_out = 0, 0.0, 0.0
    for i in range(values.shape[0]):
        gap = np.float64(top) - np.float64(values[i])
        best += gap == 0.0
        weight = exp_double(-gap) if gap > 0.0 else 0.0
        rest += weight
        spread_out += weight * min(gap, 701.0)
    return best, rest, spread_out


@internal()
def exact_entropy(v, top):
    """The entropy in nats to float64 accuracy, that of a sharp peak included."""
    best, rest, spread_out = 0, 0.0, 0.0
    for start in range(0, v.shape[0], CHUNK):
        found = _exact_sums(v[start : start + CHUNK], top)
        best, rest, spread_out = best + found[0], rest + found[1], spread_out + found[2]
    return math.log(best) + math.log1p(rest / best) + spread_out / (best + rest)


@internal()
def count_left(v):
    return _sum_and_count(v)[1]


@internal()
def sigma_floor(v, top, n):
    """The least value within n population deviations of the top."""
    total, count = _sum_and_count(v)
    deviation = math.sqrt(_squares(v, total / count) / count)
    floor = np.float64(top) - n * deviation
    return least_float_from(0.0, floor)


@internal()
def top_h_floor(v, low, h, candidates, s):
    """The least value kept when the best entries may spend a share h of their entropy."""
    wanted = min(candidates, v.shape[0])
    last = kth_value(v, wanted, s.sort_keys, s.histogram)
    values, count = s.keys[:wanted], 0
    for i in range(v.shape[0]):
        if v[i] > last and v[i] >= low:
            values[count] = v[i]
            count += 1
    while count < wanted and last >= low and last > NONE:
        values[count] = last
        count += 1
    insertion_sort(values[:count], s.masses)
    top, total = values[count - 1], 0.0
    for i in range(count):
        total += math.exp(values[i] - top)
    whole = 0.0
    for i in range(count - 1, -1, -1):
        whole += _surprise(values[i], top, total)
    spent, kept = 0.0, 1
    for i in range(count - 1, -1, -1):
        spent += _surprise(values[i], top, total)
        if spent <= h * whole:
            kept = count - i
    return np.float32(values[count - kept])


@internal()
def _surprise(value, top, total):
    log_p = value - top - math.log(total)
    return -math.exp(log_p) * log_p


@internal()
def top_p_floor(v, top, low, target, s):
    """The least value of the smallest set of most probable entries that weighs `target`."""
    bound = bound_in_row(v, top, low, ALL, np.float64(top), 0.0, target, s)
    floor = window_of_bound(np.float64(top), 0.0, bound)[0] + np.float32(0.0)  # no -0
    after = value_of(key_of(floor) + np.int32(1))
    if np.float64(after) - np.float64(top) > np.float64(floor) - np.float64(top):
        return floor
    return _floor_in_key(v, top, low, floor, target, s)


@internal()
def _floor_in_key(v, top, low, floor, target, s):
    """The same where several floats share the last key: near zero they are finer than keys."""
    gap = np.float64(floor) - np.float64(top)
    above, sharing, mass = 0, 0, 0.0
    for i in range(v.shape[0]):
        if v[i] >= low and v[i] >= floor:
            if np.float64(v[i]) - np.float64(top) > gap:
                above += 1
                mass += exp_nonpositive(v[i] - top)
            else:
                sharing += 1
    needed = math.ceil((target - mass) / exp_nonpositive(floor - top))
    return kth_value(v, above + min(max(needed, 1), sharing), s.sort_keys, s.histogram)


@internal()
def typical_window(v, top, low, high, p, s):
    """The window around the entropy that holds mass p of what is left."""
    total, slope = mass_and_slope(v, top, low, high, s.e)
    a, b = np.float64(top) + math.log(total), entropy_of(total, slope)
    bound = bound_in_row(v, top, low, high, a, b, p * total, s)
    least, most = window_of_bound(a, b, bound)
    return max(low, least), min(high, most)


@internal()
def largest_inside(v, high):
    """The largest value not above `high`."""
    most = LEAST_KEY
    for i in range(v.shape[0]):
        key = order_key(bits_from_float(v[i]))
        most = max(most, key if v[i] <= high else LEAST_KEY)
    return value_of(most)


@internal()
def least_inside(v, floor, high):
    """The least value in [floor, high]; `high` where there is none."""
    least = MOST_KEY
    for i in range(v.shape[0]):
        key = order_key(bits_from_float(v[i]))
        least = min(least, key if floor <= v[i] and v[i] <= high else MOST_KEY)
    return value_of(least) if least != MOST_KEY else high


@internal()
def probability_floor(top, best, log_p, total):
    """The least value of probability exp(log_p) or more, at most the best one left."""
    gap = log_p + math.log(total)
    return min(least_float_from(np.float64(top), gap), best)


@internal()
def logprob_inside(value, v, low, high):
    """The log-probability of a value among those in the window, and how many these are."""
    best = np.float64(largest_inside(v, high))
    total, number = 0.0, 0
    for start in range(0, v.shape[0], CHUNK):
        mass, count = _mass_and_number(v[start : start + CHUNK], best, low, high)
        total, number = total + mass, number + count
    return np.float32(np.float64(value) - best - math.log(total)), number


@internal(fastmath={"reassoc"})
def _mass_and_number(values, best, low, high):
    total, number = 0.0, 0
    for i in range(values.shape[0]):
        inside = (low <= values[i]) & (values[i] <= high) & (values[i] > NONE)
        weight = exp_double(np.float64(values[i]) - best)
        total += weight if inside else 0.0
        number += inside
    return total, number


@internal()
def narrow(v, top, low, mass, s, a, slot, coin_up, candidates):
    """All filters from top_h on: the window of survivors. `mass` > 0 is the row's, for top_p."""
    high = ALL
    h = a.top_h[slot] if a.top_h.shape[0] else 0.0
    if h > 0.0:
        low = max(low, top_h_floor(v, low, h, candidates, s))
    k = a.top_k[slot] if a.top_k.shape[0] else 0
    if k > 0:
        low = max(low, kth_value(v, k, s.sort_keys, s.histogram))
    p = a.top_p[slot] if a.top_p.shape[0] else 1.0
    if p < 1.0:
        if mass <= 0.0:
            mass = mass_and_slope(v, top, low, high, s.e)[0]
        low = max(low, top_p_floor(v, top, low, p * mass, s))
    p = a.min_p[slot] if a.min_p.shape[0] else 0.0
    if p > 0.0:
        low = max(low, min(least_float_from(np.float64(top), math.log(p)), top))
    p = a.typical_p[slot] if a.typical_p.shape[0] else 1.0
    if p < 1.0:
        low, high = typical_window(v, top, low, high, p, s)
    p = a.epsilon_cutoff[slot] if a.epsilon_cutoff.shape[0] else 0.0
    if p > 0.0:
        total, _ = mass_and_slope(v, top, low, high, s.e)
        low = max(low, probability_floor(top, largest_inside(v, high), math.log(p), total))
    p = a.eta_cutoff[slot] if a.eta_cutoff.shape[0] else 0.0
    if p > 0.0:
        total, slope = mass_and_slope(v, top, low, high, s.e)
        log_p = min(math.log(p), 0.5 * math.log(p) - entropy_of(total, slope))
        low = max(low, probability_floor(top, largest_inside(v, high), log_p, total))
    if coin_up:
        p = a.xtc_threshold[slot]
        total, _ = mass_and_slope(v, top, low, high, s.e)
        floor = max(low, LEAST)
        if p > 0.0:
            floor = max(floor, least_float_from(np.float64(top), math.log(p) + math.log(total)))
        high = least_inside(v, floor, high)
    return low, high
