"""Device functions on numbers: floats as ordered integers, fixed-point masses, the draw's noise.

The bottom of `triton_ops`. A *key* is an int32 that orders as the float32 does; +0 and -0 share
one. Every threshold is found on keys, so it is exact. Masses are int64 fixed-point numbers: their
sums do not depend on the order of addition, hence not on tiles nor on how a row is split.
"""

# Triton types and compiles this text: mypy and rules of style about branches do not apply.
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

LEAST_KEY = tl.constexpr(-0x7F800000)  # of the least finite float32
NONE_KEY = tl.constexpr(-0x7F800001)  # of -inf
NOISE_REACH = tl.constexpr(23.0)  # no noise is below -23


@triton.jit
def key_of(x):
    """The ordered int32 of float32 values."""
    x = tl.where(x == 0.0, 0.0, x)
    bits = x.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def value_of(key):
    """The float32 of ordered int32 keys."""
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def popcount(word):
    """How many bits of int32 words are set."""
    v = word.to(tl.uint32, bitcast=True)
    v = v - ((v >> 1) & 0x55555555)
    v = (v & 0x33333333) + ((v >> 2) & 0x33333333)
    v = (v + (v >> 4)) & 0x0F0F0F0F
    return ((v * 0x01010101) >> 24).to(tl.int32)


@triton.jit
def least_key_from(top, gap):
    """The least key of x with float64(x) - float64(top) >= gap (gap <= 0); at most that of top."""
    exact = top.to(tl.float64)
    lower, most = exact + gap, 3.4028234663852886e38
    near = key_of(tl.maximum(lower, -most).to(tl.float32))
    best = key_of(top)
    for step in tl.static_range(3, -4, -1):  # the conversion rounded by one place at most
        candidate = tl.minimum(tl.maximum(near + step, LEAST_KEY), best)
        fits = value_of(candidate).to(tl.float64) - exact >= gap
        best = tl.where(fits, candidate, best)
    return best


@triton.jit
def weight_of(x, top, SCALE: tl.constexpr):
    """exp(x - top) as a fixed-point int64; 0 where x is -inf."""
    return (tl.exp(x - top) * SCALE).to(tl.int64)


@triton.jit
def uniform_of(seed, ids, position, stream: tl.constexpr):
    """The float32 in (0, 1) that makes the noise of each id."""
    word, _, _, _ = tl.philox(seed, ids, position, stream, 0)
    v = (word.to(tl.float32) + 0.5) * 2.3283064365386963e-10
    return tl.minimum(v, 0.9999999403953552)


@triton.jit
def noise_of(v):
    """log(-log1p(-v)) to float64 accuracy, rounded to float32."""
    v = v.to(tl.float64)
    small = v * (1.0 + v * (0.5 + v * (0.3333333333333333 + v * 0.25)))
    return tl.log(tl.where(v < 3.814697265625e-06, small, -tl.log(1.0 - v))).to(tl.float32)


@triton.jit
def least_noise_of(v):
    """A cheap float32 bound that lies below the noise, by 0.02 at most."""
    small = v < 0.015625
    u = tl.where(small, v, -tl.log(tl.where(small, 0.5, 1.0 - v)))
    return tl.log(u) - 0.01


@triton.jit
def packed(key, ids):
    """Key and id in one int64 whose maximum is the largest key with the lowest id."""
    return (key.to(tl.int64) << 32) | (0xFFFFFFFF - ids.to(tl.int64))


@triton.jit
def packed_id(pack):
    return 0xFFFFFFFF - (pack & 0xFFFFFFFF)
