"""Fixed, zero and dynamic temperature, on tables made by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers import BACKENDS, INF, applied

X = [1.0, 3.0, -2.0, 3.0]
every_backend = pytest.mark.parametrize("backend", BACKENDS)


@every_backend
def test_temperature_divides(backend: str) -> None:
    assert applied(X, backend, temperature=2.0) == [0.5, 1.5, -1.0, 1.5]
    assert applied(X, backend, temperature=0.25) == [4.0, 12.0, -8.0, 12.0]


@every_backend
def test_temperature_rounds_a_quotient_not_a_product(backend: str) -> None:
    row = [float(np.float32(v)) for v in np.linspace(-9, 9, 1001)]
    want = [float(np.float32(v) / np.float32(0.7)) for v in row]
    assert applied(row, backend, temperature=0.7) == want
    assert want != [float(np.float32(v) * np.float32(1 / 0.7)) for v in row]


@every_backend
def test_temperature_zero_keeps_the_first_of_the_best(backend: str) -> None:
    assert applied(X, backend, temperature=0.0) == [-INF, 3.0, -INF, -INF]
    assert applied([5.0], backend, temperature=0.0) == [5.0]


@every_backend
def test_dynamic_temperature_follows_the_entropy(backend: str) -> None:
    # flat: relative entropy 1, the highest temperature 1 + 0.5
    flat = applied([3.0] * 8, backend, dynatemp_range=0.5)
    assert flat == pytest.approx([2.0] * 8)
    # one token of probability 1: entropy 0, the lowest temperature 1 - 0.5
    sharp = applied([100.0, 0.0], backend, dynatemp_range=0.5)
    assert sharp == pytest.approx([200.0, 0.0])
    # p = 3/4, 1/4: entropy 0.5623, relative 0.5623 / ln 2 = 0.8113, T = 0.5 + 0.8113 = 1.3113
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    temperature = 0.5 + entropy / math.log(2)
    found = applied([math.log(3), 0.0], backend, dynatemp_range=0.5)
    assert found == pytest.approx([math.log(3) / temperature, 0.0])
    # bent by an exponent of 2: T = 0.5 + 0.8113 ** 2 = 1.1582
    temperature = 0.5 + (entropy / math.log(2)) ** 2
    found = applied([math.log(3), 0.0], backend, dynatemp_range=0.5, dynatemp_exponent=2.0)
    assert found == pytest.approx([math.log(3) / temperature, 0.0])


@every_backend
def test_dynamic_temperature_counts_only_what_is_left(backend: str) -> None:
    found = applied([2.0, -INF, 2.0, -INF], backend, dynatemp_range=1.0)
    assert found == pytest.approx([1.0, -INF, 1.0, -INF])  # flat over two tokens: T = 2


@every_backend
def test_dynamic_temperature_leaves_a_lone_token_alone(backend: str) -> None:
    assert applied([-INF, 7.0], backend, temperature=0.5, dynatemp_range=0.4) == [-INF, 7.0]


@every_backend
def test_a_range_below_zero_is_cut_at_zero(backend: str) -> None:
    # entropy about 0 and a lowest temperature of max(0, 1 - 2) = 0: the best stay, as they are
    assert applied([900.0, 0.0], backend, dynatemp_range=2.0) == [900.0, -INF]
    # flat over all: 1 + 2
    assert applied([3.0] * 4, backend, dynatemp_range=2.0) == pytest.approx([1.0] * 4)


@every_backend
def test_temperature_zero_ignores_the_dynamic_range(backend: str) -> None:
    assert applied(X, backend, temperature=0.0, dynatemp_range=5.0) == [-INF, 3.0, -INF, -INF]
