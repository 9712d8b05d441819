"""Exact thresholds: the largest key whose entries at or above it weigh at least a target.

The weight of an entry is 1 (top-k: the k-th largest) or its fixed-point mass (top-p), so both
filters are one search. Ties share a key and stay together. The number of passes is bounded for any
row: each pass over a whole row but the first divides the range of keys by four, and as soon as the
entries that can still decide fit into the buffer they are searched in registers.
"""

# Triton types and compiles this text: mypy and rules of style about branches do not apply.
# mypy: ignore-errors
# ruff: noqa: RUF059, SIM108

from __future__ import annotations

import triton
import triton.language as tl

from triton_ops.numbers import LEAST_KEY, NONE_KEY, key_of, value_of, weight_of
from triton_ops.tiles import all_tiles, scaled_tile


@triton.jit
def floor_of(keys, weights, target, low, high):
    """Bisect for the floor in [low, high), all in registers.

    If the weights do not reach the target, it is the least key with a weight.
    """
    least = tl.min(tl.where(weights > 0, keys.to(tl.int64), high - 1))
    low = tl.maximum(low, least)
    while high - low > 1:
        middle = low + (high - low) // 2
        above = tl.sum(tl.where(keys >= middle, weights, 0))
        reached = above >= target
        low = tl.where(reached, middle, low)
        high = tl.where(reached, high, middle)
    return low


@triton.jit
def floor_of_row(
    row, top, low, target, buffer, MASS: tl.constexpr, CAP: tl.constexpr, PIECE: tl.constexpr,
    SCALE: tl.constexpr,
):  # fmt: skip
    """The floor among the row's entries not below `low`; uses the buffer of CAP keys."""
    tiles = all_tiles(row, PIECE)
    low = tl.maximum(low.to(tl.int64), LEAST_KEY)
    high = key_of(top).to(tl.int64) + 1
    above = tl.zeros([], tl.int64)  # what lies at or above `high` weighs
    first, second, third = pivot_at(top, 12.0), pivot_at(top, 6.0), pivot_at(top, 3.0)
    while high - low > 1:
        sums1 = tl.zeros([PIECE], tl.int64)
        sums2 = tl.zeros([PIECE], tl.int64)
        sums3 = tl.zeros([PIECE], tl.int64)
        found = tl.zeros([], tl.int32)
        for tile in range(0, tiles):
            x, ids = scaled_tile(row, tile, PIECE)
            key = key_of(x)
            inside = (key >= low) & (key < high)
            if MASS:
                weight = tl.where(inside, weight_of(x, top, SCALE), 0)
            else:
                weight = inside.to(tl.int64)
            sums1 += tl.where(key >= first, weight, 0)
            sums2 += tl.where(key >= second, weight, 0)
            sums3 += tl.where(key >= third, weight, 0)
            if found <= CAP:
                found = collect(key, inside, found, buffer, CAP)
        if found <= CAP:
            tl.debug_barrier()
            lane = tl.arange(0, CAP)
            keys = tl.load(buffer + lane, mask=lane < found, other=NONE_KEY)
            if MASS:
                weights = weight_of(value_of(keys), top, SCALE)
            else:
                weights = tl.full([CAP], 1, tl.int64)
            weights = tl.where(lane < found, weights, 0)
            low = floor_of(keys, weights, target - above, low, high)
            high = low + 1
        else:
            total1, total2 = above + tl.sum(sums1), above + tl.sum(sums2)
            total3 = above + tl.sum(sums3)
            if total3 >= target:
                low = tl.maximum(low, third)
            elif total2 >= target:
                low, high, above = tl.maximum(low, second), tl.minimum(high, third), total3
            elif total1 >= target:
                low, high, above = tl.maximum(low, first), tl.minimum(high, second), total2
            else:
                high, above = tl.minimum(high, first), total1
            step = tl.maximum((high - low) // 4, 1)
            first, second, third = low + step, low + 2 * step, low + 3 * step
        tl.debug_barrier()
    return low


@triton.jit
def pivot_at(top, gap: tl.constexpr):
    """A first guess: the key of what lies `gap` nats below the top."""
    return key_of(tl.maximum(top - gap, -3.4028234663852886e38)).to(tl.int64)


@triton.jit
def collect(key, inside, found, buffer, CAP: tl.constexpr):
    """Append the keys that are inside to the buffer as far as they fit; the new number of them."""
    chosen = inside.to(tl.int32)
    place = found + tl.cumsum(chosen, 0) - 1
    tl.store(buffer + place, key, mask=inside & (place < CAP))
    return found + tl.sum(chosen)


@triton.jit
def mass_of_row(row, top, low, PIECE: tl.constexpr, SCALE: tl.constexpr):
    """The mass of the entries not below `low`, and the sum of mass * (top - x); fixed-point."""
    tiles = all_tiles(row, PIECE)
    mass = tl.zeros([PIECE], tl.int64)
    slope = tl.zeros([PIECE], tl.int64)
    for tile in range(0, tiles):
        x, ids = scaled_tile(row, tile, PIECE)
        weight, tilt = mass_and_tilt(x, key_of(x) >= low, top, SCALE)
        mass += weight
        slope += tilt
    return tl.sum(mass), tl.sum(slope)


@triton.jit
def mass_and_tilt(x, inside, top, SCALE: tl.constexpr):
    """The fixed-point mass of values, and mass * (top - x); 0 outside."""
    weight = tl.where(inside, tl.exp(x - top), 0.0)
    gap = tl.where(weight > 0.0, top - x, 0.0)
    return (weight * SCALE).to(tl.int64), (weight * gap * SCALE).to(tl.int64)
