"""The rules that cut the distribution, in plain torch: documentation and oracle.

Every function maps logits [R, V] float32 to the same logits with `-inf` where a token is cut. A
filter finds a threshold and keeps everything equal to it, so nothing depends on index order; it
renormalises over what is left at its place, sums masses in float64, and always keeps a token.
"""

from __future__ import annotations

import torch
from torch import Tensor

from logitkit import randomness
from logitkit.ops.reference_edits import row_sum
from logitkit.rows import Rows

TOP_H_CANDIDATES = 100


def top_n_sigma(logits: Tensor, rows: Rows) -> Tensor:
    """Keep logits within n population deviations of the largest (arXiv:2411.07641, llama.cpp)."""
    n = rows["top_n_sigma"]
    left = logits > -torch.inf
    count = left.sum(-1, keepdim=True).clamp_min(1)
    exact = torch.where(left, logits.double(), 0.0)
    mean = row_sum(exact) / count
    deviation = row_sum(torch.where(left, exact - mean, 0.0).square()).div(count).sqrt()
    floor = logits.amax(-1, keepdim=True).double() - n * deviation
    return logits.masked_fill((n > 0) & (logits.double() < floor), -torch.inf)


def top_h(logits: Tensor, rows: Rows) -> Tensor:
    """Keep the best of the 100 most probable tokens while their entropy is within h of the whole.

    The entropy is that of the renormalised 100 (arXiv:2509.02510, transformers).
    """
    h = rows["top_h"]
    best = logits.topk(min(TOP_H_CANDIDATES, logits.shape[-1]), dim=-1).values  # [R, 100]
    log_p = best.double().log_softmax(-1)
    terms = torch.where(log_p > -torch.inf, -log_p.exp() * log_p, 0.0)
    spent = terms.cumsum(-1)
    kept = (spent <= h * spent[:, -1:]).sum(-1, keepdim=True).clamp_min(1)
    floor = best.gather(-1, kept - 1)
    return logits.masked_fill((h > 0) & (logits < floor), -torch.inf)


def top_k(logits: Tensor, rows: Rows) -> Tensor:
    """Keep everything not below the k-th largest logit (Fan et al., 2018)."""
    k = rows["top_k"]
    width = logits.shape[-1]
    best = logits.topk(int(k.clamp(1, width).max()) if len(k) else 1, dim=-1).values
    floor = best.gather(-1, k.clamp(1, best.shape[-1]) - 1)
    return logits.masked_fill((k > 0) & (k < width) & (logits < floor), -torch.inf)


def top_p(logits: Tensor, rows: Rows) -> Tensor:
    """Keep the smallest set of most probable tokens with mass p or more (Holtzman et al., 2019)."""
    p = rows["top_p"]
    ordered = logits.sort(-1, descending=True).values
    mass = ordered.double().softmax(-1).cumsum(-1)
    needed = (mass < p).sum(-1, keepdim=True).clamp_max(logits.shape[-1] - 1)
    floor = ordered.gather(-1, needed)
    return logits.masked_fill((p < 1) & (logits < floor), -torch.inf)


def min_p(logits: Tensor, rows: Rows) -> Tensor:
    """Keep tokens of at least min_p times the largest probability (arXiv:2407.01082)."""
    p = rows["min_p"]
    gap = logits.double() - logits.amax(-1, keepdim=True).double()
    return logits.masked_fill((p > 0) & (gap < p.log()), -torch.inf)


def typical_p(logits: Tensor, rows: Rows) -> Tensor:
    """Keep the tokens whose surprise is nearest to the entropy, up to mass p (arXiv:2202.00666)."""
    p = rows["typical_p"]
    log_p = logits.double().log_softmax(-1)
    entropy = _entropy(log_p)
    distance = torch.where(log_p > -torch.inf, (log_p + entropy).abs(), torch.inf)
    ordered, order = distance.sort(-1)
    mass = log_p.exp().gather(-1, order).cumsum(-1)
    needed = (mass < p).sum(-1, keepdim=True).clamp_max(logits.shape[-1] - 1)
    bound = ordered.gather(-1, needed)
    return logits.masked_fill((p < 1) & (distance > bound), -torch.inf)


def epsilon_cutoff(logits: Tensor, rows: Rows) -> Tensor:
    """Keep tokens of probability epsilon or more, and the best ones (arXiv:2210.15191)."""
    epsilon = rows["epsilon_cutoff"]
    log_p = logits.double().log_softmax(-1)
    cut = (epsilon > 0) & (log_p < epsilon.log()) & (logits < logits.amax(-1, keepdim=True))
    return logits.masked_fill(cut, -torch.inf)


def eta_cutoff(logits: Tensor, rows: Rows) -> Tensor:
    """Keep tokens of probability min(eta, sqrt(eta) * exp(-entropy)) or more (arXiv:2210.15191)."""
    eta = rows["eta_cutoff"]
    log_p = logits.double().log_softmax(-1)
    log_floor = torch.minimum(eta.log(), eta.log() / 2 - _entropy(log_p))
    cut = (eta > 0) & (log_p < log_floor) & (logits < logits.amax(-1, keepdim=True))
    return logits.masked_fill(cut, -torch.inf)


def xtc(logits: Tensor, rows: Rows) -> Tensor:
    """With probability `xtc_probability`, cut all but the least of the tokens above the threshold.

    "Exclude top choices" (llama.cpp, text-generation-webui). The coin is the request's own.
    """
    chance, threshold = rows["xtc_probability"], rows["xtc_threshold"]
    act = rows.uniform(randomness.XTC_STREAM).unsqueeze(-1) < chance
    log_p = logits.double().log_softmax(-1)
    above = (log_p >= threshold.log()) & (logits > -torch.inf)
    ceiling = torch.where(above, logits, torch.inf).amin(-1, keepdim=True)
    return logits.masked_fill(act & (logits > ceiling), -torch.inf)


def _entropy(log_p: Tensor) -> Tensor:
    """Shannon entropy in nats, [R, 1] float64."""
    return -row_sum(torch.where(log_p > -torch.inf, log_p.exp() * log_p, 0.0))
