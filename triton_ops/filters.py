"""The filters of one row: each raises the floor, the least key that survives.

`GATHERED`: all entries that can survive are in the buffer (keys in registers); otherwise every sum
is a pass over the row.
"""

# Triton types and compiles this text: mypy and rules of style about branches do not apply.
# mypy: ignore-errors
# ruff: noqa: RUF059

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

from triton_ops.numbers import LEAST_KEY, NONE_KEY, key_of, least_key_from, value_of, weight_of
from triton_ops.select import floor_of, floor_of_row, mass_and_tilt, mass_of_row
from triton_ops.tiles import all_tiles, edited_tile, scaled_tile


class Filters(NamedTuple):
    """The columns of the filters (None: absent), read where they are needed to save registers."""

    request: Any
    top_k: Any
    top_p: Any
    min_p: Any
    epsilon_cutoff: Any
    eta_cutoff: Any


@triton.jit
def active_k(filters, width):
    """k where top-k cuts anything, else 0."""
    if filters.top_k is None:
        return tl.zeros([], tl.int64)
    else:
        k = tl.load(filters.top_k + filters.request)
        return tl.where(k < width, k, 0)


@triton.jit
def value_for(column, request, neutral: tl.constexpr):
    """The request's value, neutral where the stage is absent."""
    if column is None:
        return tl.full([], neutral, tl.float64)
    else:
        return tl.load(column + request)


@triton.jit
def target_of(p, mass):
    """The fixed-point mass to reach: at least p of the whole, and more than nothing."""
    wanted = tl.ceil(p * mass.to(tl.float64)).to(tl.int64)
    return tl.minimum(tl.maximum(wanted, 1), mass)


@triton.jit
def narrow(
    row, filters, top, low, whole, keys, buffer, GATHERED: tl.constexpr, CAP: tl.constexpr,
    PIECE: tl.constexpr, SCALE: tl.constexpr,
):  # fmt: skip
    """The floor after all filters, and whether the gathered entries sufficed to tell.

    `whole` is the mass of everything not below `low` if it is known, else -1.
    """
    best = key_of(top).to(tl.int64)
    enough = best == best
    x = value_of(keys)
    bottom = low
    k = active_k(filters, row.width)
    if filters.top_k is not None and k > 0:
        if GATHERED:
            ones = (keys > NONE_KEY).to(tl.int64)
            kth = floor_of(keys, ones, k, tl.full([], LEAST_KEY, tl.int64), best + 1)
        else:
            kth = floor_of_row(row, top, low, k, buffer, False, CAP, PIECE, SCALE)
        low = tl.maximum(low, kth)
    p = value_for(filters.top_p, filters.request, 1.0)
    if filters.top_p is not None and p < 1.0:
        if GATHERED:
            weights = tl.where(keys >= low, weight_of(x, top, SCALE), 0)
            have = tl.sum(weights)
            mass = tl.where(whole < 0, have, whole)
            target = target_of(p, mass)
            enough = have >= target
            low = tl.maximum(
                low, floor_of(keys, weights, target, tl.full([], LEAST_KEY, tl.int64), best + 1)
            )
        else:
            mass, _ = mass_of_row(row, top, low, PIECE, SCALE)
            target = target_of(p, mass)
            low = floor_of_row(row, top, low, target, buffer, True, CAP, PIECE, SCALE)
    p = value_for(filters.min_p, filters.request, 0.0)
    if filters.min_p is not None and p > 0.0:
        low = tl.maximum(low, least_key_from(top, tl.log(p)).to(tl.int64))
    p = value_for(filters.epsilon_cutoff, filters.request, 0.0)
    if filters.epsilon_cutoff is not None and p > 0.0:
        mass, _ = left(row, top, low, keys, GATHERED, PIECE, SCALE)
        gap = tl.log(p) + tl.log(mass.to(tl.float64) / SCALE)
        low = tl.maximum(low, floor_at(top, gap))
    p = value_for(filters.eta_cutoff, filters.request, 0.0)
    if filters.eta_cutoff is not None and p > 0.0:
        mass, slope = left(row, top, low, keys, GATHERED, PIECE, SCALE)
        total = tl.log(mass.to(tl.float64) / SCALE)
        entropy = total + slope.to(tl.float64) / mass.to(tl.float64)
        gap = tl.minimum(tl.log(p), 0.5 * tl.log(p) - entropy) + total
        low = tl.maximum(low, floor_at(top, gap))
    return low, enough & (low >= bottom)


@triton.jit
def floor_at(top, gap):
    """The least key within the gap of the top; the top itself always is."""
    return least_key_from(top, tl.minimum(gap, 0.0)).to(tl.int64)


@triton.jit
def left(row, top, low, keys, GATHERED: tl.constexpr, PIECE: tl.constexpr, SCALE: tl.constexpr):
    """Mass and slope of what is left."""
    if GATHERED:
        weight, tilt = mass_and_tilt(value_of(keys), keys >= low, top, SCALE)
        return tl.sum(weight), tl.sum(tilt)
    else:
        return mass_of_row(row, top, low, PIECE, SCALE)


@triton.jit
def sigma_floor(row, n, BLOCK: tl.constexpr):
    """The least key within n population deviations of the largest (float64, in a fixed order)."""
    tiles = all_tiles(row, BLOCK)
    sums = tl.zeros([BLOCK], tl.float64)
    count = tl.zeros([BLOCK], tl.int32)
    top = tl.full([BLOCK], -float("inf"), tl.float32)
    for tile in range(0, tiles):
        x, ids = scaled_tile(row, tile, BLOCK)
        top = tl.maximum(top, x)
        count += (x > -float("inf")).to(tl.int32)
        sums += tl.where(x > -float("inf"), x.to(tl.float64), 0.0)
    number = tl.maximum(tl.sum(count), 1).to(tl.float64)
    mean = tl.sum(sums) / number
    squares = tl.zeros([BLOCK], tl.float64)
    for tile in range(0, tiles):
        x, ids = scaled_tile(row, tile, BLOCK)
        distance = tl.where(x > -float("inf"), x.to(tl.float64) - mean, 0.0)
        squares += distance * distance
    deviation = tl.sqrt(tl.sum(squares) / number)
    largest = tl.max(top)
    return least_key_from(tl.maximum(largest, -3.4028234663852886e38), -n * deviation).to(tl.int64)


@triton.jit
def dynamic_temperature(row, fixed, spread, exponent, BLOCK: tl.constexpr):
    """The row's temperature by its relative entropy (float64, fixed order); 1 for one token."""
    tiles = all_tiles(row, BLOCK)
    tops = tl.full([BLOCK], -float("inf"), tl.float32)
    for tile in range(0, tiles):
        x, ids = edited_tile(row, tile, BLOCK)
        tops = tl.maximum(tops, x)
    top = tl.max(tops).to(tl.float64)
    rests = tl.zeros([BLOCK], tl.float64)
    spreads = tl.zeros([BLOCK], tl.float64)
    bests = tl.zeros([BLOCK], tl.int32)
    lefts = tl.zeros([BLOCK], tl.int32)
    for tile in range(0, tiles):
        x, ids = edited_tile(row, tile, BLOCK)
        there = x > -float("inf")
        gap = tl.where(there, top - x.to(tl.float64), 0.0)
        weight = tl.where(gap > 0.0, tl.exp(-gap), 0.0)
        lefts += there.to(tl.int32)
        bests += (there & (gap == 0.0)).to(tl.int32)
        rests += weight
        spreads += weight * tl.minimum(gap, 800.0)
    best = tl.maximum(tl.sum(bests), 1).to(tl.float64)
    number = tl.sum(lefts)
    rest = tl.sum(rests)
    ratio = rest / best
    # log1p, which the interpreter lacks
    small = ratio * (1.0 - ratio * (0.5 - ratio * (0.3333333333333333 - ratio * 0.25)))
    log1p = tl.where(ratio < 1.0e-4, small, tl.log(1.0 + ratio))
    entropy = tl.log(best) + log1p + tl.sum(spreads) / (best + rest)
    relative = entropy / tl.log(tl.maximum(number, 2).to(tl.float64))
    relative = tl.minimum(tl.maximum(relative, 0.0), 1.0)
    low, high = tl.maximum(fixed - spread, 0.0), fixed + spread
    # a power by way of logarithms: 0 to any power but 0 is 0
    power = tl.exp(exponent * tl.log(tl.maximum(relative, 1.0e-300)))
    power = tl.where(relative > 0.0, power, 0.0)
    power = tl.where(exponent == 0.0, 1.0, power)
    return tl.where(number > 1, low + (high - low) * power, 1.0)
