"""Byte automata as tables, tokens as bytes, and `advance_fsm` once more in plain Python."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

Call = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def table(*moves: tuple[int, int, int], size: int) -> Tensor:
    """Transitions from (state, byte, next) triples."""
    found = torch.full((size, 256), -1, dtype=torch.int32)
    for state, byte, after in moves:
        found[state, byte] = after
    return found


def csr(tokens: list[bytes]) -> tuple[Tensor, Tensor]:
    ends = torch.tensor([0, *map(len, tokens)]).cumsum(0)
    return ends, torch.from_numpy(np.frombuffer(b"".join(tokens), np.uint8).copy())


def slow(call: Call) -> list[int]:
    """The same in plain Python."""
    state, tokens, offsets, data, transitions = (part.tolist() for part in call)
    result = []
    for now, token in zip(state, tokens, strict=True):
        spelled = []
        if 0 <= token < len(offsets) - 1:
            spelled = data[offsets[token] : offsets[token + 1]]
        for byte in spelled:
            now = transitions[now][byte] if now >= 0 else -1
        result.append(now if spelled else -1)
    return result


def random_call(seed: int, size: int = 40) -> Call:
    """Automata of many states over few bytes, tokens of 0 to 9 bytes, and some that are none."""
    g = np.random.default_rng(seed)
    tokens = [bytes(g.integers(0, 4, g.integers(0, 10)).astype(np.uint8)) for _ in range(50)]
    moves = g.integers(-1, 12, (12, 256)).astype(np.int32)
    moves[:, :4] = np.where(g.random((12, 4)) < 0.1, -1, g.integers(0, 12, (12, 4)))
    state = torch.from_numpy(g.integers(-1, 12, size))
    chosen = torch.from_numpy(g.integers(-2, 54, size))
    return state, chosen, *csr(tokens), torch.from_numpy(moves)
