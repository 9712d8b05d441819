"""Philox and the noise: known answers, the same bits in numba, and draws of the right frequency."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from helpers import BACKENDS, OPS, start
from numba import njit
from scipy import stats

from logitkit import SamplingParams
from logitkit.ops import numba_draw
from logitkit.randomness import derived_seed, fresh_seed, noise, philox, to_int64, uniform
from logitkit.rows import History

MASK = 0xFFFFFFFF
ZERO = torch.zeros((), dtype=torch.int64)


def by_hand(counter: list[int], key: list[int]) -> list[int]:
    """Philox4x32-10 in plain integers, as the paper writes it."""
    c, k = list(counter), list(key)
    for _ in range(10):
        left, right = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [right >> 32 ^ c[1] ^ k[0], right & MASK, left >> 32 ^ c[3] ^ k[1], left & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [  # the known answers of Random123's kat_vectors
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([MASK] * 4, [MASK] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_philox_gives_the_known_answers(
    counter: list[int], key: list[int], words: list[int]
) -> None:
    assert by_hand(counter, key) == words
    seed = torch.tensor(to_int64(key[0] | key[1] << 32))
    found = philox(seed, ZERO + counter[0], ZERO + counter[1], counter[2], counter[3])
    assert [int(word) for word in found] == words


def test_philox_of_zeros_is_the_documented_word() -> None:
    assert int(philox(ZERO, ZERO, ZERO, 0)[0]) == 0x6627E8D5


def test_derived_seeds_are_two_words_of_philox() -> None:
    seed = 2**63 + 12345
    assert derived_seed(seed, 0) == seed
    for sample in (1, 2, 1000):
        words = by_hand([sample, 0, 0, 1], [seed & MASK, seed >> 32])
        assert derived_seed(seed, sample) == words[0] | words[1] << 32
    assert len({derived_seed(7, sample) for sample in range(2000)}) == 2000


def test_seeds_keep_their_bit_pattern() -> None:
    assert to_int64(2**63 - 1) == 2**63 - 1
    assert to_int64(2**63) == -(2**63)
    assert to_int64(2**64 - 1) == -1


def test_fresh_seeds_follow_torchs_global_generator() -> None:
    torch.manual_seed(4)
    first = [fresh_seed() for _ in range(3)]
    torch.manual_seed(4)
    assert [fresh_seed() for _ in range(3)] == first
    assert len(set(first)) == 3
    assert all(0 <= seed < 2**64 for seed in first)


def test_noise_is_the_documented_formula() -> None:
    seed, tokens, position = 2**64 - 3, torch.arange(2000), 17
    found = noise(torch.tensor(to_int64(seed)), tokens, ZERO + position, 0)
    for token in range(2000):
        word = by_hand([token, position, 0, 0], [seed & MASK, seed >> 32])[0]
        v = min(np.float32(word) + np.float32(0.5), np.float32(2**32 - 256)) * np.float32(2**-32)
        assert found[token].item() == np.float32(math.log(-math.log1p(-float(v))))


def test_noise_is_finite_at_both_ends() -> None:
    lowest = math.log(-math.log1p(-0.5 * 2.0**-32))
    highest = math.log(-math.log1p(-(1 - 2.0**-24)))
    assert -22.9 < lowest < -22.8  # numba_draw.REACH relies on it
    assert 2.8 < highest < 2.9


def test_uniform_is_a_function_of_seed_position_and_stream() -> None:
    seeds, positions = torch.tensor([3, 3, 3, 4]), torch.tensor([5, 5, 6, 5])
    coins = uniform(seeds, positions, 16).tolist()
    assert coins[0] == coins[1]
    assert len(set(coins)) == 3
    assert coins[0] == (by_hand([0, 5, 16, 0], [3, 0])[0] + 0.5) / 2**32
    assert uniform(seeds, positions, 17).tolist() != coins


@njit
def _numba_noise(seed, count, position, out):  # type: ignore[no-untyped-def]
    for token in range(count):
        out[token] = numba_draw.noise(
            numba_draw.uniform(np.uint64(seed), np.uint64(token), np.uint64(position))
        )


@njit
def _numba_coins(seed, count, stream, out):  # type: ignore[no-untyped-def]
    for position in range(count):
        out[position] = numba_draw.coin(np.uint64(seed), position, stream)


@pytest.mark.parametrize("seed", [0, 12345, 2**63 + 9, 2**64 - 1])
def test_numba_noise_has_the_same_bits(seed: int) -> None:
    key = torch.tensor(to_int64(seed))
    for position in (0, 1, 4095, 2**31 - 1):
        found = np.empty(50_000, np.float32)
        _numba_noise(np.int64(to_int64(seed)), len(found), position, found)
        want = noise(key, torch.arange(len(found)), ZERO + position, 0)
        assert torch.equal(torch.from_numpy(found).view(torch.int32), want.view(torch.int32))
    coins = np.empty(1000)
    _numba_coins(np.int64(to_int64(seed)), len(coins), 4, coins)
    assert torch.equal(torch.from_numpy(coins), uniform(key, torch.arange(1000), 4))


@njit
def _rarest(seed, count):  # type: ignore[no-untyped-def]
    lowest, highest = 0, 0
    least, most = np.float32(1), np.float32(0)
    for token in range(count):
        v = numba_draw.uniform(np.uint64(seed), np.uint64(token), np.uint64(0))
        if v < least:
            least, lowest = v, token
        if v > most:
            most, highest = v, token
    return lowest, highest


def test_noise_agrees_at_its_rarest_values() -> None:
    # the extremes of 4e7 numbers: near 2.5e-8, and at the cap of 1 - 2^-24
    tokens = _rarest(77, 40_000_000)
    words = [by_hand([token, 0, 0, 0], [77, 0])[0] for token in tokens]
    assert words[0] < 1000
    assert words[1] > 2**32 - 1000
    for token, word in zip(tokens, words, strict=True):
        v = min((np.float32(word) + 0.5) * 2.0**-32, 1 - 2.0**-24)
        want = np.float32(math.log(-math.log1p(-v)))
        found = np.empty(1, np.float32)
        _numba_noise_of(77, token, found)
        assert found[0] == want
        assert noise(ZERO + 77, ZERO + token, ZERO, 0).item() == want


@njit
def _numba_noise_of(seed, token, out):  # type: ignore[no-untyped-def]
    out[0] = numba_draw.noise(numba_draw.uniform(np.uint64(seed), np.uint64(token), np.uint64(0)))


def draws(logits: torch.Tensor, count: int, seed: int, backend: str) -> torch.Tensor:
    """`count` tokens of one request, one per position: every row has the same logits."""
    batch = start(SamplingParams(sampling_seed=seed), [[]], len(logits), backend=backend)
    zeros = torch.zeros(count, dtype=torch.int64)
    history = History(zeros.expand(1, -1).contiguous(), zeros[:1], zeros[:1])
    rows = dataclasses.replace(
        batch.rows(), slot=zeros, depth=zeros, position=torch.arange(count), history=history
    )
    tokens, status = OPS[backend].sample_tokens(
        logits.expand(count, -1), rows.slot, rows.position, history.tokens,
        history.prompt_length, rows.seed,
    )  # fmt: skip
    assert not status.any()
    return tokens


@pytest.mark.parametrize("backend", BACKENDS)
def test_draws_have_the_frequencies_of_softmax(backend: str) -> None:
    """Chi-square over 16 tokens with 15 degrees of freedom; false alarms: 1e-6 per backend."""
    logits = torch.linspace(-3, 3, 16)[torch.randperm(16)]
    count = 200_000
    found = torch.bincount(draws(logits, count, 99, backend), minlength=16)
    expected = count * logits.double().softmax(0)
    assert expected.min() > 100
    chi_square = float(((found - expected) ** 2 / expected).sum())
    assert chi_square < stats.chi2.ppf(1 - 1e-6, 15)


def test_rare_tokens_are_as_frequent_as_they_should_be() -> None:
    """1,000 tokens of probability 1e-6 each: 10^6 draws hit them Poisson(1,000) times in all.

    Tested against the Poisson interval of false-alarm probability 1e-6, and so is the largest
    count of a single token (1,000 Poisson(1) variates).
    """
    logits = torch.full((1001,), math.log(1e-6))
    logits[500] = math.log(1 - 1e-3)
    found = torch.cat([draws(logits, 100_000, seed, "numba") for seed in range(10)])
    counts = torch.bincount(found, minlength=1001)
    rare = counts[torch.arange(1001) != 500]
    low, high = stats.poisson.ppf([5e-7, 1 - 5e-7], 1000)
    assert low <= int(rare.sum()) <= high
    assert int(rare.max()) <= stats.poisson.ppf(1 - 1e-9, 1)
    # tokens hit k times: about 1000 * exp(-1) / k!; five cells, false alarms 1e-6
    cells = [int((rare == k).sum()) for k in range(4)] + [int((rare > 3).sum())]
    expected = [1000 * stats.poisson.pmf(k, 1) for k in range(4)] + [1000 * stats.poisson.sf(3, 1)]
    chi_square = sum((f - e) ** 2 / e for f, e in zip(cells, expected, strict=True))
    assert chi_square < stats.chi2.ppf(1 - 1e-6, 4)


@pytest.mark.parametrize("backend", BACKENDS)
def test_neighbouring_positions_and_seeds_are_independent(backend: str) -> None:
    """Pairs of successive draws over 4 equal tokens: 16 cells, false alarms 1e-6 each."""
    flat = torch.zeros(4)
    here = draws(flat, 100_000, 5, backend)
    other = draws(flat, 100_000, 6, backend)
    for left, right in ((here[:-1:2], here[1::2]), (here, other)):
        pairs = torch.bincount(4 * left + right, minlength=16).double()
        expected = len(left) / 16
        assert float(((pairs - expected) ** 2 / expected).sum()) < stats.chi2.ppf(1 - 1e-6, 15)


@pytest.mark.parametrize("backend", BACKENDS)
def test_ties_of_the_score_go_to_the_lowest_token(backend: str) -> None:
    # at 3e38 the noise is lost in rounding, so all scores are equal
    assert draws(torch.full((700,), 3e38), 50, 1, backend).tolist() == [0] * 50
    logits = torch.full((700,), -3e38)
    logits[5:600] = 3e38
    assert draws(logits, 50, 1, backend).tolist() == [5] * 50
