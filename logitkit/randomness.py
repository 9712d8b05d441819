"""Randomness is a function, not a stream: Philox4x32-10 of (seed, token id, position, stream).

Lowest level, in plain torch: the oracle for the kernels and the source of coins for stages. A draw
depends on its request's seed and place only, so it is the same alone, in a batch, on any backend
and under speculation. Streams: 0 target, 1 draft noise, 2 acceptance coins, 3 residual draws,
4 XTC, 16 and up users' stages. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"
(2011).
"""

from __future__ import annotations

import torch
from torch import Tensor

TARGET_STREAM = 0
DRAFT_STREAM = 1
COIN_STREAM = 2
RESIDUAL_STREAM = 3
XTC_STREAM = 4
FIRST_USER_STREAM = 16

_LOW = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)


def philox(
    seed: Tensor, c0: Tensor, c1: Tensor, c2: int, c3: int = 0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The four output words of Philox4x32-10 as int64 in [0, 2^32); arguments broadcast.

    `seed` int64 is the bit pattern of an unsigned 64-bit key, its low half the first key word.
    """
    k0, k1 = seed & _LOW, (seed >> 32) & _LOW
    x0, x1 = (c0 & _LOW) | (c1 & 0), (c1 & _LOW) | (c0 & 0)  # both of the common shape
    x2, x3 = torch.full_like(x0, c2), torch.full_like(x0, c3)
    for _ in range(10):
        left, right = x0 * _MULTIPLIERS[0], x2 * _MULTIPLIERS[1]  # wraps modulo 2^64 as wanted
        x0, x1, x2, x3 = (
            ((right >> 32) & _LOW) ^ x1 ^ k0,
            right & _LOW,
            ((left >> 32) & _LOW) ^ x3 ^ k1,
            left & _LOW,
        )
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return x0, x1, x2, x3


def noise(seed: Tensor, tokens: Tensor, position: Tensor, stream: int, round: int = 0) -> Tensor:
    """What a draw subtracts from each logit, float32: the logarithm of an exponential variate.

    argmax(logit - noise) is a draw from softmax(logit) (Gumbel-max). The two logarithms are taken
    in float64 so that every backend gets the same float32 values.
    """
    word = philox(seed, tokens, position, stream, round)[0]
    v = ((word.float() + 0.5) * 2.0**-32).clamp_max(1.0 - 2.0**-24)
    return torch.log(-torch.log1p(-v.double())).float()


def uniform(seed: Tensor, position: Tensor, stream: int, round: int = 0) -> Tensor:
    """One number in (0, 1) per entry of `position`, float64."""
    word = philox(seed, torch.zeros_like(position), position, stream, round)[0]
    return (word.double() + 0.5) * 2.0**-32


def to_int64(seed: int) -> int:
    """The int64 with the bit pattern of an unsigned 64-bit seed."""
    return seed - 2**64 if seed >= 2**63 else seed


def derived_seed(seed: int, sample: int) -> int:
    """The seed of sample number `sample` of one request (`n`); sample 0 keeps the request's."""
    if sample == 0:
        return seed
    zero = torch.zeros((), dtype=torch.int64)
    words = philox(torch.tensor(to_int64(seed)), zero + sample, zero, 0, 1)
    return int(words[0]) | int(words[1]) << 32


def fresh_seed() -> int:
    """A seed from torch's global CPU generator: `torch.manual_seed` makes a run repeatable."""
    high, low = torch.randint(0, 2**32, (2,)).tolist()
    return int(high) << 32 | int(low)
