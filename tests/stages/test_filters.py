"""top-k, top-p and min-p, on tables made by hand."""

from __future__ import annotations

import math

import pytest
from helpers import BACKENDS, INF, applied, survivors

P = [0.1, 0.4, 0.05, 0.3, 0.15]
X = [math.log(p) for p in P]
TIED = [2.0, 5.0, 2.0, 7.0, 2.0, 1.0]
every_backend = pytest.mark.parametrize("backend", BACKENDS)


def kept(backend: str, logits: list[float] = X, **fields: object) -> list[int]:
    return survivors(applied(logits, backend, **fields))


@every_backend
def test_top_k_keeps_the_k_best(backend: str) -> None:
    assert kept(backend, top_k=1) == [1]
    assert kept(backend, top_k=3) == [1, 3, 4]
    assert kept(backend, top_k=5) == kept(backend, top_k=99) == [0, 1, 2, 3, 4]


@every_backend
def test_top_k_keeps_ties(backend: str) -> None:
    assert kept(backend, TIED, top_k=2) == [1, 3]
    assert kept(backend, TIED, top_k=3) == [0, 1, 2, 3, 4]
    assert kept(backend, [1.0] * 7, top_k=2) == [0, 1, 2, 3, 4, 5, 6]


@every_backend
def test_top_p_keeps_the_smallest_set_that_reaches_p(backend: str) -> None:
    # sorted .4 .3 .15 .1 .05, running mass .4 .7 .85 .95 1
    assert kept(backend, top_p=0.35) == [1]
    assert kept(backend, top_p=0.45) == [1, 3]
    assert kept(backend, top_p=0.69) == [1, 3]
    assert kept(backend, top_p=0.71) == [1, 3, 4]
    assert kept(backend, top_p=0.951) == [0, 1, 2, 3, 4]
    assert kept(backend, top_p=1e-9) == [1]


@every_backend
def test_top_p_keeps_ties(backend: str) -> None:
    # four equal tokens of 0.25 each: one would do for p = 0.2, its ties stay
    assert kept(backend, [1.0] * 4, top_p=0.2) == [0, 1, 2, 3]
    assert kept(backend, [9.0, 1.0, 1.0, 9.0], top_p=0.2) == [0, 3]


@every_backend
def test_top_p_counts_the_mass_of_what_is_left(backend: str) -> None:
    # without token 1: .1 .05 .3 .15 of .6, sorted .5 .25 .167 .083
    assert kept(backend, [X[0], -INF, *X[2:]], top_p=0.49) == [3]
    assert kept(backend, [X[0], -INF, *X[2:]], top_p=0.6) == [3, 4]
    # behind top_k = 2: .4 / .7 = .571
    assert kept(backend, top_k=2, top_p=0.57) == [1]
    assert kept(backend, top_k=2, top_p=0.58) == [1, 3]


@every_backend
def test_min_p_compares_with_the_largest_probability(backend: str) -> None:
    # 0.4 * 0.3 = 0.12
    assert kept(backend, min_p=0.3) == [1, 3, 4]
    assert kept(backend, min_p=0.74) == [1, 3]
    assert kept(backend, min_p=0.76) == [1]
    assert kept(backend, TIED, min_p=1.0) == [3]
    assert kept(backend, [1.0] * 3, min_p=1.0) == [0, 1, 2]


@every_backend
def test_min_p_keeps_what_equals_the_floor(backend: str) -> None:
    # exactly one nat below the largest, and log(exp(-1)) is exactly -1
    assert kept(backend, [0.0, -1.0, -1.0000001], min_p=math.exp(-1)) == [0, 1]
    # floats around zero are far finer than the difference to the largest
    assert kept(backend, [1.0, 0.0, -1e-30, -1e-7], min_p=math.exp(-1)) == [0, 1, 2]


@every_backend
def test_what_survives_keeps_its_logit(backend: str) -> None:
    out = applied(TIED, backend, top_k=3, top_p=0.999, min_p=1e-3)
    assert out == [2.0, 5.0, 2.0, 7.0, 2.0, -INF]


@every_backend
def test_filters_never_empty_a_row(backend: str) -> None:
    for fields in ({"top_k": 1}, {"top_p": 5e-324}, {"min_p": 1.0}):
        assert kept(backend, [-INF, -3e38, -INF], **fields) == [1]
