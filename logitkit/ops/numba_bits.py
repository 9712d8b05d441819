"""Float32 bit patterns and elementary functions for the CPU kernels; all of them vectorise.

`order_key` maps a float32 to an int32 with the same order, so that maxima need no float reduction
(LLVM vectorises those only under flags that would also delete the NaN checks).
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

# For kernels that only other kernels call: without the ways in from Python they compile faster.
internal = functools.partial(njit, no_cpython_wrapper=True, no_cfunc_wrapper=True)


@intrinsic
def float_from_bits(context: Any, bits: Any) -> Any:
    """The float32 with the given int32 bit pattern."""

    def codegen(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), codegen


@intrinsic
def bits_from_float(context: Any, value: Any) -> Any:
    """The int32 bit pattern of a float32."""

    def codegen(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(32))

    return types.int32(types.float32), codegen


@intrinsic
def keep_bits(context: Any, array: Any, start: Any, word: Any) -> Any:
    """Set entry start + i of a float32 array to -inf for every bit i of an int32 that is 0.

    Without branches: those on words of a mask are mispredicted every other time, which costs four
    times as much as the work. The array must have all 32 entries.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        vector = ir.VectorType(ir.FloatType(), 32)
        place = builder.bitcast(builder.gep(data, [args[1]]), vector.as_pointer())
        kept = builder.bitcast(args[2], ir.VectorType(ir.IntType(1), 32))
        none = ir.Constant(vector, [-math.inf] * 32)
        values = builder.select(kept, builder.load(place, align=4), none)
        builder.store(values, place, align=4)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int32), codegen


@internal()
def order_key(bits):
    """The key of a bit pattern: keys compare as the floats do (+0 above -0)."""
    return bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF))


@internal()
def key_of(value):
    return order_key(bits_from_float(value))


@internal()
def value_of(key):
    """The float32 with the given key (the mapping is its own inverse)."""
    return float_from_bits(order_key(key))


@internal()
def least_float_from(reference, gap):
    """The smallest finite float32 v with float64(v) - reference >= gap; +inf if there is none."""
    return value_of(np.int32(least_key_from(reference, 0.0, gap)))


@internal()
def least_key_from(a, b, limit):
    """The least key of a finite float32 v with (float64(v) - a) + b >= limit, by bisection.

    Stepping from a guess would not do: near zero a billion floats may satisfy as one.
    """
    low, high = np.int64(-0x7F800000), np.int64(0x7F800000)
    while low < high:
        middle = (low + high) >> 1
        if (np.float64(value_of(np.int32(middle))) - a) + b >= limit:
            high = middle
        else:
            low = middle + 1
    return low


@intrinsic
def double_from_bits(context: Any, bits: Any) -> Any:
    """The float64 with the given int64 bit pattern."""

    def codegen(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@internal(fastmath={"contract"})
def exp_double(x):
    """exp(x) for float64 x <= 0 to about one unit in the last place; 0 below -700."""
    x = max(x, -701.0)
    magic = 6755399441055744.0
    n = x * 1.4426950408889634 + magic - magic
    r = x - n * 0.6931471803691238
    r = r - n * 1.9082149292705877e-10
    p = 1.0 / 6227020800.0
    p = p * r + 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    scale = double_from_bits((np.int64(n) + 1023) << 52)
    return p * scale if x > -700.0 else 0.0


@internal(fastmath={"contract"})
def exp_nonpositive(x):
    """exp(x) for float32 x <= 0 to about one unit in the last place; 0 below -87.

    Cody-Waite reduction to |r| <= ln(2) / 2 and a polynomial of degree 6.
    """
    x = max(x, np.float32(-87.5))
    magic = np.float32(12582912.0)
    shifted = x * np.float32(1.44269504) + magic
    n = shifted - magic
    r = x - n * np.float32(0.693359375)
    r = r - n * np.float32(-2.12194440e-4)
    p = np.float32(1.0 / 720.0)
    p = p * r + np.float32(1.0 / 120.0)
    p = p * r + np.float32(1.0 / 24.0)
    p = p * r + np.float32(1.0 / 6.0)
    p = p * r + np.float32(0.5)
    p = p * r + np.float32(1.0)
    p = p * r + np.float32(1.0)
    scale = float_from_bits((np.int32(n) + np.int32(127)) << np.int32(23))
    return p * scale if x > np.float32(-87.0) else np.float32(0.0)
