"""Repetition, presence and frequency penalties, on tables made by hand."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import BACKENDS, INF, applied

X = [4.0, -4.0, 2.0, 0.0, 1.0]
HISTORY = [0, 1, 2, 2, 1]  # with prompt_length 2: prompt 0 1, output 2 2 1
every_backend = pytest.mark.parametrize("backend", BACKENDS)


@every_backend
def test_repetition_penalty_divides_above_zero_and_multiplies_below(backend: str) -> None:
    # 4 / 2, -4 * 2, 2 / 2; 3 and 4 were not seen
    want = [2.0, -8.0, 1.0, 0.0, 1.0]
    assert applied(X, backend, HISTORY, 2, repetition_penalty=2.0) == want
    # below 1 it rewards: 4 / 0.5, -4 * 0.5, 2 / 0.5
    want = [8.0, -2.0, 4.0, 0.0, 1.0]
    assert applied(X, backend, HISTORY, 2, repetition_penalty=0.5) == want


@every_backend
def test_presence_penalty_concerns_the_output_only_and_counts_once(backend: str) -> None:
    # output tokens 1 and 2: -4 - 0.5, 2 - 0.5
    want = [4.0, -4.5, 1.5, 0.0, 1.0]
    assert applied(X, backend, HISTORY, 2, presence_penalty=0.5) == want


@every_backend
def test_frequency_penalty_counts_every_occurrence(backend: str) -> None:
    # token 1 once, token 2 twice: -4 - 0.5, 2 - 2 * 0.5
    want = [4.0, -4.5, 1.0, 0.0, 1.0]
    assert applied(X, backend, HISTORY, 2, frequency_penalty=0.5) == want


@every_backend
def test_penalties_follow_each_other(backend: str) -> None:
    fields = {"repetition_penalty": 2.0, "presence_penalty": 0.25, "frequency_penalty": 0.5}
    # 0: 4 / 2; 1: -4 * 2 - 0.25 - 0.5; 2: 2 / 2 - 0.25 - 1
    want = [2.0, -8.75, -0.25, 0.0, 1.0]
    assert applied(X, backend, HISTORY, 2, **fields) == want


@every_backend
def test_a_prompt_alone_is_only_repeated(backend: str) -> None:
    fields = {"presence_penalty": 1.0, "frequency_penalty": 1.0}
    assert applied(X, backend, HISTORY, 5, **fields) == X
    assert applied(X, backend, [], 0, repetition_penalty=2.0, **fields) == X


@every_backend
def test_a_masked_token_stays_masked_whatever_the_reward(backend: str) -> None:
    for fields in (
        {"repetition_penalty": 1e-30},
        {"presence_penalty": -3e38},
        {"frequency_penalty": -3e38},  # twice this is -inf, and -inf - -inf would be NaN
    ):
        assert applied([-INF, 0.5], backend, [0, 0], 0, **fields) == [-INF, 0.5]


@every_backend
def test_penalties_round_as_float32_without_fusing(backend: str) -> None:
    # 3 * float32(0.1) = 0.3000000119..., then subtracted: two roundings
    want = np.float32(1.0) - np.float32(np.float32(0.1) * np.float32(3))
    assert applied([1.0, 5.0], backend, [0] * 3, 0, frequency_penalty=0.1)[0] == want
