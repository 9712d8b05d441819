"""DRY and no_repeat_ngram, on tables made by hand."""

from __future__ import annotations

import pytest
from helpers import BACKENDS, INF, applied, survivors

ZEROS = [0.0] * 6
every_backend = pytest.mark.parametrize("backend", BACKENDS)


def dry(backend: str, history: list[int], **fields: object) -> list[float]:
    """What DRY takes from each of six tokens; multiplier 1, base 2, allowed length 2."""
    values = {"dry_multiplier": 1.0, "dry_base": 2.0, "dry_sequence_breakers": []} | fields
    return [-value for value in applied(ZEROS, backend, history, **values)]


@every_backend
def test_dry_takes_a_power_of_the_repetitions_length(backend: str) -> None:
    # 1 2 3 | 1 2: the end "1 2" stood before 3, length 2: 1 * 2 ** (2 - 2) = 1
    assert dry(backend, [1, 2, 3, 1, 2]) == [0, 0, 0, 1, 0, 0]
    # 0 1 2 3 | 0 1 2: length 3: 2 ** 1
    assert dry(backend, [0, 1, 2, 3, 0, 1, 2]) == [0, 0, 0, 2, 0, 0]
    # length 1 is below the allowed length
    assert dry(backend, [1, 3, 1]) == [0] * 6
    assert dry(backend, [1, 3, 1], dry_allowed_length=1) == [0, 0, 0, 1, 0, 0]


@every_backend
def test_dry_takes_the_longest_of_several_repetitions(backend: str) -> None:
    # the end "0 1 2" stood before 3 (length 3: 2), its last two tokens before 4 (length 2: 1)
    assert dry(backend, [0, 1, 2, 3, 5, 1, 2, 4, 0, 1, 2]) == [0, 0, 0, 2, 1, 0]
    # before 3 twice: lately with two tokens in common, earlier with three
    assert dry(backend, [0, 1, 2, 3, 5, 1, 2, 3, 0, 1, 2]) == [0, 0, 0, 2, 0, 0]
    # "2 2 2 2": the end overlaps itself, the longest earlier copy has 3 tokens
    assert dry(backend, [2, 2, 2, 2]) == [0, 0, 2, 0, 0, 0]


@every_backend
def test_dry_looks_back_only_so_far(backend: str) -> None:
    history = [1, 2, 3, 4, 1, 2]
    assert dry(backend, history) == [0, 0, 0, 1, 0, 0]
    assert dry(backend, history, dry_range=6) == [0, 0, 0, 1, 0, 0]
    assert dry(backend, history, dry_range=5) == [0] * 6  # "1" of the copy is out of sight
    assert dry(backend, history, dry_range=0) == [0] * 6


@every_backend
def test_a_breaker_ends_the_repetition(backend: str) -> None:
    history = [0, 1, 2, 3, 0, 1, 2]
    # the breaker 0 leaves "1 2", length 2: 2 ** 0
    assert dry(backend, history, dry_sequence_breakers=[[0]]) == [0, 0, 0, 1, 0, 0]
    # the breaker 1 leaves "2", which is too short
    assert dry(backend, history, dry_sequence_breakers=[[1]]) == [0] * 6
    # a breaker of two tokens
    assert dry(backend, history, dry_sequence_breakers=[[0, 1]]) == [0] * 6
    assert dry(backend, history, dry_sequence_breakers=[[3, 0]]) == [0, 0, 0, 1, 0, 0]
    assert dry(backend, history, dry_sequence_breakers=[[0, 2]]) == [0, 0, 0, 2, 0, 0]


@every_backend
def test_a_breaker_itself_is_never_penalised(backend: str) -> None:
    history = [1, 2, 3, 1, 2]
    assert dry(backend, history, dry_sequence_breakers=[[3]]) == [0] * 6
    # but the first token of a longer breaker is
    assert dry(backend, history, dry_sequence_breakers=[[3, 5]]) == [0, 0, 0, 1, 0, 0]


@every_backend
def test_dry_grows_with_multiplier_and_base(backend: str) -> None:
    history = [0, 1, 2, 3, 4, 0, 1, 2, 3]  # length 4, two above the allowed
    assert dry(backend, history, dry_multiplier=0.5, dry_base=3.0)[4] == 0.5 * 3**2
    assert dry(backend, history, dry_base=1.0)[4] == 1.0


@every_backend
def test_a_long_repetition_stays_finite(backend: str) -> None:
    # 2 ** 297 would leave float32: the exponent is capped at int(88.72 / ln 2) = 127
    assert dry(backend, [2] * 300)[2] == 2.0**127


@every_backend
def test_no_repeat_ngram_bans_what_would_repeat_one(backend: str) -> None:
    history = [1, 2, 3, 1, 2]

    def kept(size: int, seen: list[int] = history) -> list[int]:
        return survivors(applied(ZEROS, backend, seen, len(seen) // 2, no_repeat_ngram_size=size))

    assert kept(1) == [0, 4, 5]  # every token of the history
    assert kept(2) == [0, 1, 2, 4, 5]  # 2 was followed by 3
    assert kept(3) == [0, 1, 2, 4, 5]  # "1 2" was followed by 3
    assert kept(4) == [0, 1, 2, 3, 4, 5]
    assert kept(3, [1, 2]) == [0, 1, 2, 3, 4, 5]  # shorter than an n-gram
    assert kept(2, [4, 4]) == [0, 1, 2, 3, 5]  # 4 was followed by 4


@every_backend
def test_no_repeat_ngram_bans_several_followers(backend: str) -> None:
    kept = applied(ZEROS, backend, [1, 2, 1, 3, 1], no_repeat_ngram_size=2)
    assert kept == [0.0, 0.0, -INF, -INF, 0.0, 0.0]
