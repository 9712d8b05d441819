"""Which drafted tokens are kept: the three rules of speculative decoding, as pure functions.

Beside `sampler`, below `generation`. Each takes what a step knows of B requests and k drafted
tokens, and returns the step's tokens [B, k + 1] and how many of them count [B], 1..k + 1: the kept
drafts, then the recovered token (or behind a whole draft the bonus token).

`exact` keeps what plain decoding would have drawn there. `ratio` (Leviathan et al., 2211.17192;
Chen et al., 2302.01318) and `block` (Sun et al., 2403.10444) keep the distribution only; they are
for research, in plain torch and float64. For both, p [B, k + 1, V] is what the target draws from
and q [B, k, V] what each draft token was really drawn from, zero rows behind a shorter draft; a row
of p that cannot be decided is zero too. A draft token with p = 0 is never kept, and a coin u keeps
a token where u < h, strictly.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from logitkit import randomness


class Kept(NamedTuple):
    """`num_kept` [B]: drafts that are kept; `residual` [B, V]: what the next token is drawn from.

    The residual is not normalised; it sums to more than 0.
    """

    num_kept: Tensor
    residual: Tensor


def exact(tokens: Tensor, draft: Tensor, lengths: Tensor) -> Tensor:
    """How many of `tokens` [B, k + 1], the target's own draws at every row, count: [B] int64.

    Drafts [B, k] are kept while they equal the draws; `lengths` [B] of them are real. The first
    unequal draw is the recovered token.
    """
    k = draft.shape[1]
    real = torch.arange(k, device=draft.device) < lengths[:, None]
    return 1 + ((draft == tokens[:, :k]) & real).long().cumprod(1).sum(1)


def ratio(p: Tensor, q: Tensor, draft: Tensor, lengths: Tensor, coins: Tensor) -> Kept:
    """Token by token: keep draft x while coin < p(x) / q(x); else draw from (p - q)+.

    draft [B, k], lengths [B], coins [B, k] in [0, 1).
    """
    k = draft.shape[1]
    at = draft[..., None]
    chance = p[:, :k].gather(-1, at).squeeze(-1) / q.gather(-1, at).squeeze(-1)
    real = torch.arange(k, device=draft.device) < lengths[:, None]
    kept = (coins < chance.nan_to_num(0.0)) & real
    num_kept = kept.long().cumprod(1).sum(1)
    return Kept(num_kept, _residual(p, q, num_kept, lengths, torch.ones_like(num_kept).double()))


def block(p: Tensor, q: Tensor, draft: Tensor, lengths: Tensor, coins: Tensor) -> Kept:
    """The whole block at once: the longest prefix whose coin is below its acceptance chance.

    With w_i = min(1, w_{i-1} p(x_i) / q(x_i)) and Z_i the sum of (w_i p - q)+ behind prefix i, the
    chance is Z_i / (Z_i + 1 - w_i), at the end of the draft w. The next token is drawn from
    (w_i p - q)+, behind a whole draft from p. Never keeps fewer tokens on average than `ratio`.
    """
    size, k = draft.shape
    weight = p.new_ones(size)
    num_kept = torch.zeros_like(lengths)
    chosen = weight
    for i in range(k):
        real = lengths > i
        x = draft[:, i : i + 1]
        odds = (p[:, i].gather(1, x) / q[:, i].gather(1, x)).squeeze(1).nan_to_num(0.0)
        weight = torch.where(real, (weight * odds).clamp_max(1.0), weight)
        chance = weight
        if i + 1 < k:
            left = (weight[:, None] * p[:, i + 1] - q[:, i + 1]).clamp_min(0.0).sum(1)
            # A row that cannot be decided is certain of what no draft can propose, its error.
            left = torch.where(p[:, i + 1].sum(1) > 0, left, weight)
            inner = (left / (left + 1.0 - weight)).nan_to_num(1.0)  # 0 / 0: w = 1 and p = q
            chance = torch.where(lengths == i + 1, weight, inner)
        kept = real & (coins[:, i] < chance) & (weight > 0)
        num_kept = torch.where(kept, i + 1, num_kept)
        chosen = torch.where(kept, weight, chosen)
    return Kept(num_kept, _residual(p, q, num_kept, lengths, chosen))


RULES = {"ratio": ratio, "block": block}


def judge(
    rule: str,
    p: Tensor,
    q: Tensor,
    draft: Tensor,
    lengths: Tensor,
    seed: Tensor,
    position: Tensor,
    round: int,
) -> tuple[Tensor, Tensor]:
    """One step by the rule of that name: tokens [B, k + 1], and how many of them count [B].

    `seed` [B], `position` [B, k + 1] of the predicted tokens. `round` is the step's number: coins
    that a round looked at and left behind must not come again in the next one.
    """
    coins = randomness.uniform(seed[:, None], position[:, :-1], randomness.COIN_STREAM, round)
    kept = RULES[rule](p, q, draft, lengths, coins)
    at = kept.num_kept[:, None]
    ids = torch.arange(p.shape[-1], device=p.device)
    noise = randomness.noise(
        seed[:, None], ids, position.gather(1, at), randomness.RESIDUAL_STREAM, round
    )
    last = (kept.residual.log() - noise.double()).argmax(-1, keepdim=True)
    return torch.cat([draft, last], 1).scatter(1, at, last), kept.num_kept + 1


def _residual(p: Tensor, q: Tensor, num_kept: Tensor, lengths: Tensor, weight: Tensor) -> Tensor:
    """(w p - q)+ behind the kept drafts; p behind a whole draft, and where rounding leaves none."""
    size, k = q.shape[:2]
    row = torch.arange(size, device=p.device)
    here = p[row, num_kept]
    if k == 0:
        return here
    left = (weight[:, None] * here - q[row, num_kept.clamp_max(k - 1)]).clamp_min(0.0)
    whole = (num_kept == lengths) | (left.sum(1) <= 0.0)
    return torch.where(whole[:, None], here, left)
