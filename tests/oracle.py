"""The filters once more, written from their definitions in numpy, one float64 row at a time.

Shares no code with logitkit. Each filter returns the survivors and the row's margin: how far the
quantity that decides is from its threshold, at the nearest. Below 1e-6 rounding may decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.float64]
Kept = NDArray[np.bool_]
Answer = tuple[Kept, float]

MARGIN = 1e-6


def probabilities(x: Row) -> Row:
    weights = np.exp((x - x.max()).astype(np.longdouble))
    return (weights / weights.sum()).astype(np.float64)


def entropy_terms(p: Row) -> Row:
    return np.where(p > 0, -p * np.log(np.where(p > 0, p, 1.0)), 0.0)


def nearest(values: Row, threshold: float) -> float:
    return float(np.abs(values - threshold).min(initial=np.inf))


def top_k(x: Row, k: int) -> Answer:
    """Everything that fewer than k entries exceed."""
    if k <= 0 or k >= x.size:
        return x > -np.inf, math.inf
    values, counts = np.unique(x, return_counts=True)
    larger = np.cumsum(counts[::-1])[::-1] - counts
    return np.isin(x, values[larger < k]) & (x > -np.inf), math.inf


def top_p(x: Row, p: float) -> Answer:
    """Groups of equal logits from the top, until what is above a group weighs p already."""
    if p >= 1:
        return x > -np.inf, math.inf
    values, group = np.unique(x, return_inverse=True)
    mass = np.bincount(group, probabilities(x))[::-1]
    above = np.cumsum(mass) - mass
    return np.isin(x, values[::-1][above < p]) & (x > -np.inf), nearest(above[1:], p)


def min_p(x: Row, p: float) -> Answer:
    if p <= 0:
        return x > -np.inf, math.inf
    return x - x.max() >= math.log(p), math.inf


def typical_p(x: Row, p: float) -> Answer:
    """The same by the distance of the surprise from the entropy."""
    if p >= 1:
        return x > -np.inf, math.inf
    prob = probabilities(x)
    left = x > -np.inf
    with np.errstate(divide="ignore", invalid="ignore"):
        log_p = (x - x.max()) - math.log(np.exp((x - x.max()).astype(np.longdouble)).sum())
    distance = np.where(
        left, np.abs(np.where(left, log_p, 0.0) + entropy_terms(prob).sum()), np.inf
    )
    values, group = np.unique(distance, return_inverse=True)
    mass = np.bincount(group, prob)
    before = np.cumsum(mass) - mass
    last = values[before < p].max()
    if not np.isfinite(last):
        last = values[np.isfinite(values)].max()
    sides = np.abs(distance[np.isfinite(distance)] - last)
    rivals = nearest(sides[sides > 0], 0.0)  # a nearly equal distance on the other side
    return distance <= last, min(nearest(before[1:], p), rivals)


def epsilon_cutoff(x: Row, epsilon: float) -> Answer:
    if epsilon <= 0:
        return x > -np.inf, math.inf
    prob = probabilities(x)
    return (prob >= epsilon) | (x == x.max()), nearest(prob / epsilon, 1.0)


def eta_cutoff(x: Row, eta: float) -> Answer:
    if eta <= 0:
        return x > -np.inf, math.inf
    prob = probabilities(x)
    floor = min(eta, math.sqrt(eta) * math.exp(-entropy_terms(prob).sum()))
    return (prob >= floor) | (x == x.max()), nearest(prob / floor, 1.0)


def top_n_sigma(x: Row, n: float) -> Answer:
    if n <= 0:
        return x > -np.inf, math.inf
    left = x[x > -np.inf].astype(np.longdouble)
    deviation = float(np.sqrt(((left - left.mean()) ** 2).mean()))
    floor = float(x.max()) - n * deviation
    relative = nearest(x, floor) / max(1.0, abs(floor))
    return (x >= floor) & (x > -np.inf), relative if deviation else math.inf


def top_h(x: Row, h: float) -> Answer:
    if h <= 0:
        return x > -np.inf, math.inf
    best = np.sort(x)[::-1][:100]
    spent = np.cumsum(entropy_terms(probabilities(best)))
    allowed = h * spent[-1]
    kept = max(1, int((spent <= allowed).sum()))
    certain = h == 1 or spent[-1] == 0
    margin = math.inf if certain else nearest(spent, allowed)
    return (x >= best[kept - 1]) & (x > -np.inf), margin


def xtc(x: Row, threshold: float) -> Answer:
    """The case in which the coin says yes."""
    prob = probabilities(x)
    above = (prob >= threshold) & (x > -np.inf)
    margin = nearest(prob / threshold, 1.0) if threshold else math.inf
    if not above.any():
        return x > -np.inf, margin
    return (x > -np.inf) & (x <= x[above].min()), margin


FILTERS: Mapping[str, Callable[[Row, float], Answer]] = {
    "top_n_sigma": top_n_sigma,
    "top_h": top_h,
    "top_k": top_k,  # type: ignore[dict-item]
    "top_p": top_p,
    "min_p": min_p,
    "typical_p": typical_p,
    "epsilon_cutoff": epsilon_cutoff,
    "eta_cutoff": eta_cutoff,
    "xtc_threshold": xtc,
}


def chain(x: Row, values: Mapping[str, float]) -> Answer:
    """The given filters one after the other in this order, each on what the ones before left."""
    margin = math.inf
    for name, rule in FILTERS.items():
        if name in values:
            kept, near = rule(x, values[name])
            x = np.where(kept, x, -np.inf)
            margin = min(margin, near)
    return x > -np.inf, margin
