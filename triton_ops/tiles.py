"""A row as the passes see it: tiles of the logits, then tiles of the entries that were edited.

Edited entries are masked in the row itself by one bit each and stand, with their new values, in
a short list behind it (the patches). So no edited copy of the row is written, and every pass reads
the logits in their own dtype.
"""

# Triton types and compiles this text: mypy and rules of style about branches do not apply.
# mypy: ignore-errors

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl


class Row(NamedTuple):
    """One row: pointers of its own, and scalars. Fields of stages that are absent are None."""

    logits: Any
    column_stride: Any
    width: Any
    banned: Any  # int32 words; bit set: not in the row (banned, or among the patches)
    patch_ids: Any  # int32
    patch_values: Any  # float32, before the temperature
    num_patches: Any
    divisor: Any  # float32


@triton.jit
def own_tiles(row, BLOCK: tl.constexpr):
    """How many tiles of logits the row has."""
    return tl.cdiv(row.width, BLOCK)


@triton.jit
def all_tiles(row, BLOCK: tl.constexpr):
    """How many tiles the row has with its patches."""
    if row.patch_ids is None:
        return own_tiles(row, BLOCK)
    else:
        return own_tiles(row, BLOCK) + tl.cdiv(row.num_patches, BLOCK)


@triton.jit
def raw_tile(row, tile, BLOCK: tl.constexpr):
    """One tile of logits as they were given, in float32 (-inf behind the end), and its ids."""
    ids = tile * BLOCK + tl.arange(0, BLOCK)
    place = row.logits + ids.to(tl.int64) * row.column_stride
    x = tl.load(place, mask=ids < row.width, other=-float("inf")).to(tl.float32)
    return x, ids


@triton.jit
def masked_tile(row, x, ids):
    """The tile without the banned entries."""
    if row.banned is None:
        return x
    else:
        word = tl.load(row.banned + ids // 32, mask=ids < row.width, other=0)
        return tl.where(((word >> (ids % 32)) & 1) != 0, -float("inf"), x)


@triton.jit
def patch_tile(row, tile, BLOCK: tl.constexpr):
    """One tile of patches before the temperature, and its ids."""
    place = tile * BLOCK + tl.arange(0, BLOCK)
    inside = place < row.num_patches
    x = tl.load(row.patch_values + place, mask=inside, other=-float("inf"))
    return x, tl.load(row.patch_ids + place, mask=inside, other=0x7FFFFFFF)


@triton.jit
def edited_tile(row, tile, BLOCK: tl.constexpr):
    """Any tile of the edited row before the temperature: values [BLOCK] and ids."""
    if row.patch_ids is None:
        x, ids = raw_tile(row, tile, BLOCK)
        x = masked_tile(row, x, ids)
    else:
        own = own_tiles(row, BLOCK)
        if tile < own:
            x, ids = raw_tile(row, tile, BLOCK)
            x = masked_tile(row, x, ids)
        else:
            x, ids = patch_tile(row, tile - own, BLOCK)
    return x, ids


@triton.jit
def scaled(row, x):
    """Values divided by the temperature, rounded to nearest."""
    if row.divisor is None:
        return x
    else:
        return tl.div_rn(x, row.divisor)


@triton.jit
def scaled_tile(row, tile, BLOCK: tl.constexpr):
    """Any tile of the row as the filters see it."""
    x, ids = edited_tile(row, tile, BLOCK)
    return scaled(row, x), ids
