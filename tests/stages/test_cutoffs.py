"""top_n_sigma, top_h, typical, epsilon, eta and XTC, on tables made by hand."""

from __future__ import annotations

import math

import pytest
import torch
from helpers import BACKENDS, INF, applied, start, survivors

from logitkit import SamplingParams
from logitkit.randomness import XTC_STREAM

P = [0.1, 0.4, 0.05, 0.3, 0.15]
X = [math.log(p) for p in P]
ALL = [0, 1, 2, 3, 4]
every_backend = pytest.mark.parametrize("backend", BACKENDS)


def kept(backend: str, logits: list[float] = X, **fields: object) -> list[int]:
    return survivors(applied(logits, backend, **fields))


@every_backend
def test_top_n_sigma_counts_population_deviations_from_the_best(backend: str) -> None:
    # 0 2 4 4: mean 2.5, deviations 6.25 .25 2.25 2.25, variance 11 / 4, deviation 1.6583
    row = [0.0, 2.0, 4.0, 4.0]
    assert kept(backend, row, top_n_sigma=1.0) == [2, 3]  # 4 - 1.6583 = 2.34
    assert kept(backend, row, top_n_sigma=1.3) == [1, 2, 3]  # 4 - 2.16 = 1.84
    assert kept(backend, row, top_n_sigma=2.5) == [0, 1, 2, 3]  # 4 - 4.15 = -0.15
    # masked entries do not count
    assert kept(backend, [*row, -INF], top_n_sigma=1.0) == [2, 3]
    assert kept(backend, [*row, -INF], top_n_sigma=1.3) == [1, 2, 3]


@every_backend
def test_top_n_sigma_of_equal_logits_keeps_all(backend: str) -> None:
    assert kept(backend, [3.0, 3.0, -INF], top_n_sigma=0.5) == [0, 1]


@every_backend
def test_top_h_spends_a_share_of_the_entropy(backend: str) -> None:
    # terms -p log p, best first: .3665 .3612 .2846 .2303 .1498
    # running sums: .3665 .7277 1.0123 1.2426 1.3924
    assert kept(backend, top_h=0.2) == [1]  # .278: not even one fits, one stays
    assert kept(backend, top_h=0.5) == [1]  # .696
    assert kept(backend, top_h=0.53) == [1, 3]  # .738
    assert kept(backend, top_h=0.73) == [1, 3, 4]  # 1.016
    assert kept(backend, top_h=1.0) == ALL


@every_backend
def test_top_h_looks_at_a_hundred_tokens_and_keeps_ties(backend: str) -> None:
    row = [0.1 * i for i in range(150)]
    assert kept(backend, row, top_h=1.0) == list(range(50, 150))
    assert kept(backend, [1.0] * 150, top_h=0.3) == list(range(150))


@every_backend
def test_typical_takes_the_nearest_to_the_entropy_first(backend: str) -> None:
    # entropy 1.3924; surprises 2.303 .916 2.996 1.204 1.897; distances .910 .476 1.603 .188 .505
    # order 3 1 4 0 2, running mass .3 .7 .85 .95 1
    assert kept(backend, typical_p=0.29) == [3]
    assert kept(backend, typical_p=0.69) == [1, 3]
    assert kept(backend, typical_p=0.8) == [1, 3, 4]
    assert kept(backend, typical_p=0.9) == [0, 1, 3, 4]
    assert kept(backend, typical_p=0.99) == ALL


@every_backend
def test_typical_may_cut_the_best_and_keeps_ties(backend: str) -> None:
    assert kept(backend, [X[1], X[3], X[3]], typical_p=0.2) == [1, 2]
    assert kept(backend, [2.0] * 5, typical_p=0.1) == ALL
    assert kept(backend, [0.0] * 5000, typical_p=0.1) == list(range(5000))


@every_backend
def test_epsilon_keeps_probable_tokens_and_always_the_best(backend: str) -> None:
    assert kept(backend, epsilon_cutoff=0.12) == [1, 3, 4]
    assert kept(backend, epsilon_cutoff=0.5) == [1]
    assert kept(backend, [1.0, 1.0, 0.9], epsilon_cutoff=0.9) == [0, 1]


@every_backend
def test_eta_adapts_to_the_entropy(backend: str) -> None:
    # exp(-1.3924) = .2485: floor min(eta, sqrt(eta) * .2485)
    assert kept(backend, eta_cutoff=0.01) == ALL  # min(.01, .02485)
    assert kept(backend, eta_cutoff=0.0625) == [0, 1, 3, 4]  # min(.0625, .0621)
    assert kept(backend, eta_cutoff=0.2) == [1, 3, 4]  # min(.2, .1111)
    assert kept(backend, eta_cutoff=0.5) == [1, 3]  # min(.5, .1757)
    assert kept(backend, [9.0, 0.0], eta_cutoff=0.9) == [0]


@every_backend
def test_xtc_cuts_all_but_the_least_of_the_top_choices(backend: str) -> None:
    def cut(threshold: float) -> list[int]:
        return kept(backend, xtc_probability=1.0, xtc_threshold=threshold)

    assert cut(0.12) == [0, 2, 4]  # .4 .3 .15 reach it: .15 stays
    assert cut(0.25) == [0, 2, 3, 4]
    assert cut(0.35) == ALL  # one alone is never cut
    assert cut(0.6) == ALL
    assert cut(0.0) == [2]  # everything reaches it: the least stays


@every_backend
def test_xtc_counts_probabilities_of_what_is_left(backend: str) -> None:
    fields = {"xtc_probability": 1.0, "xtc_threshold": 0.4}
    # of 1 and 3 alone: .571 and .429
    assert kept(backend, top_k=2, **fields) == [3]
    assert kept(backend, [-INF, X[1], -INF, X[3], -INF], **fields) == [3]


@every_backend
def test_xtc_keeps_ties_of_the_least(backend: str) -> None:
    fields = {"xtc_probability": 1.0, "xtc_threshold": 0.2}
    assert kept(backend, [1.0, 1.0, 1.5], **fields) == [0, 1]


@every_backend
def test_xtc_finds_survivors_far_below_what_it_cut(backend: str) -> None:
    # the least token lies 400 nats down, where every exponential is zero
    row = [0.0] * 50 + [-400.0, -401.0]
    params = SamplingParams(xtc_probability=1.0, xtc_threshold=0.0, sampling_seed=1)
    assert kept(backend, row, xtc_probability=1.0, xtc_threshold=0.0) == [51]
    batch = start(params, [[]], 52, backend=backend)
    assert batch.plan.sample(torch.tensor([row]), batch.rows()).tolist() == [51]


@every_backend
def test_xtc_acts_as_often_as_its_coin_says(backend: str) -> None:
    acted = 0
    for seed in range(40):
        fields = {"xtc_probability": 0.5, "xtc_threshold": 0.12, "sampling_seed": seed}
        coin = bool(start(SamplingParams(**fields), [[]], 5).rows().uniform(XTC_STREAM) < 0.5)
        assert kept(backend, **fields) == ([0, 2, 4] if coin else ALL)
        acted += coin
    assert 8 <= acted <= 32  # outside with probability 5e-5, but the seeds are fixed
