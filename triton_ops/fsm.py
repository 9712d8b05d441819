"""Byte automata: the states of many requests over a token each.

One lane is one request. Nothing is known on the host: the kernel reads how long each token is.
"""

# Triton types and compiles this text: mypy and rules of style about branches do not apply.
# mypy: ignore-errors

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 32  # few: tokens differ in length, and lanes wait for the longest
OPTIONS = {"num_warps": 1}


@triton.jit
def fold_tokens(
    state, tokens, offsets, data, transitions, moved, size, vocabulary, BLOCK: tl.constexpr
):
    """`moved[b]` is `state[b]` after the bytes of `tokens[b]`."""
    b = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = b < size
    token = tl.load(tokens + b, mask=inside, other=-1)
    known = (token >= 0) & (token < vocabulary)
    first = tl.load(offsets + token, mask=known, other=0)
    last = tl.load(offsets + token + 1, mask=known, other=0)
    now = tl.load(state + b, mask=inside, other=-1)
    now = tl.where(last > first, now, -1)
    for i in range(0, tl.max(last - first)):
        more = (first + i < last) & (now >= 0)
        byte = tl.load(data + first + i, mask=more, other=0).to(tl.int64)
        after = tl.load(transitions + now * 256 + byte, mask=more, other=-1)
        now = tl.where(more, after.to(tl.int64), now)
    tl.store(moved + b, now, mask=inside)


def run(
    state: Tensor, tokens: Tensor, offsets: Tensor, data: Tensor, transitions: Tensor
) -> Tensor:
    """The states [B] int64 after the tokens [B]."""
    state, tokens = state.contiguous(), tokens.contiguous()
    moved = torch.empty_like(state)
    size, device = len(state), state.device
    if not size:
        return moved
    with torch.cuda.device(device if device.type == "cuda" else -1):
        fold_tokens[(triton.cdiv(size, BLOCK),)](
            state, tokens, offsets, data, transitions, moved, size, len(offsets) - 1, BLOCK=BLOCK,
            **OPTIONS,
        )  # fmt: skip
    return moved
