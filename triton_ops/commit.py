"""Committing: the new tokens of many requests go behind their heads, and the heads move.

One lane is one request. Everything happens in place, so a captured graph goes on where it stopped.
"""

# Triton types and compiles this text: mypy and rules of style about branches do not apply.
# mypy: ignore-errors

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 128
OPTIONS = {"num_warps": 4}
INTEGERS = (
    "tokens_stride", "token_stride", "head_stride", "new_stride", "step_stride", "counts_stride",
    "size", "n",
)  # fmt: skip


@triton.jit(do_not_specialize=INTEGERS)
def append_tokens(
    tokens, tokens_stride, token_stride, head, head_stride, new, new_stride, step_stride,
    num_tokens, counts_stride, size, n, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write `n` tokens behind each head and move it by `num_tokens` (None: `n`)."""
    b = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    inside = b < size
    first = tl.load(head + b * head_stride, mask=inside, other=0)
    for i in range(0, n):
        token = tl.load(new + b * new_stride + i * step_stride, mask=inside, other=0)
        tl.store(tokens + b * tokens_stride + (first + i) * token_stride, token, mask=inside)
    if num_tokens is None:
        count = n
    else:
        count = tl.load(num_tokens + b * counts_stride, mask=inside, other=0)
    tl.store(head + b * head_stride, first + count, mask=inside)


def run(tokens: Tensor, head: Tensor, new: Tensor, num_tokens: Tensor | None) -> None:
    """Append `new` [B, n] to `tokens` [B, T] behind `head` [B], and move it by `num_tokens` [B]."""
    size, n = new.shape
    if not size:
        return
    device = tokens.device
    counts_stride = 0 if num_tokens is None else num_tokens.stride(0)
    with torch.cuda.device(device if device.type == "cuda" else -1):
        append_tokens[(triton.cdiv(size, BLOCK),)](
            tokens, *tokens.stride(), head, head.stride(0), new, *new.stride(), num_tokens,
            counts_stride, size, n, BLOCK=BLOCK, **OPTIONS,
        )  # fmt: skip
