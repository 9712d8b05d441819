"""Allowed tokens, logit bias, bad words and min_new_tokens, on tables made by hand."""

from __future__ import annotations

import pytest
from helpers import BACKENDS, INF, applied, survivors

X = [1.0, 2.0, 3.0, 4.0, 5.0]
every_backend = pytest.mark.parametrize("backend", BACKENDS)


@every_backend
def test_allowed_token_ids_mask_all_others(backend: str) -> None:
    assert applied(X, backend, allowed_token_ids=[1, 4]) == [-INF, 2.0, -INF, -INF, 5.0]


@every_backend
def test_allowed_token_ids_work_across_the_words_of_the_mask(backend: str) -> None:
    # bits 31, 32, 63 and 64: both ends of 32-bit words; the mask is narrower than the logits
    kept = applied([0.5] * 200, backend, allowed_token_ids=[0, 31, 32, 63, 64])
    assert survivors(kept) == [0, 31, 32, 63, 64]
    assert survivors(applied([0.5] * 33, backend, allowed_token_ids=[32])) == [32]


@every_backend
def test_logit_bias_is_added(backend: str) -> None:
    # 1 + 0.5 = 1.5; 4 - 10 = -6
    assert applied(X, backend, logit_bias={0: 0.5, 3: -10.0}) == [1.5, 2.0, 3.0, -6.0, 5.0]


@every_backend
def test_a_bias_of_minus_infinity_bans_and_cannot_lift_a_ban(backend: str) -> None:
    assert applied(X, backend, logit_bias={4: -INF}) == [1.0, 2.0, 3.0, 4.0, -INF]
    assert applied([1.0, -INF], backend, logit_bias={1: 100.0}) == [1.0, -INF]


@every_backend
def test_bad_words_ban_the_token_that_would_complete_them(backend: str) -> None:
    words = [[0], [1, 2], [2, 1], [4, 1, 3]]
    # after ..4 1: [0] always, [1, 2] and [4, 1, 3] are one token short, [2, 1] is not
    assert survivors(applied(X, backend, [4, 1], bad_words_ids=words)) == [1, 4]
    # after ..2: [2, 1] is one short
    assert survivors(applied(X, backend, [1, 1, 2], bad_words_ids=words)) == [2, 3, 4]
    # nothing written yet: only the single token
    assert survivors(applied(X, backend, [], bad_words_ids=words)) == [1, 2, 3, 4]


@every_backend
def test_bad_words_begin_in_the_prompt_too(backend: str) -> None:
    kept = applied(X, backend, [3, 2], prompt_length=2, bad_words_ids=[[3, 2, 4]])
    assert survivors(kept) == [0, 1, 2, 3]


@every_backend
def test_min_new_tokens_masks_eos_and_stop_tokens_until_then(backend: str) -> None:
    # eos is 3 (helpers.EOS); the prompt does not count
    fields = {"min_new_tokens": 2, "stop_token_ids": [0]}
    assert survivors(applied(X, backend, [1, 1], prompt_length=2, **fields)) == [1, 2, 4]
    assert survivors(applied(X, backend, [1, 1, 1], prompt_length=2, **fields)) == [1, 2, 4]
    assert survivors(applied(X, backend, [1] * 4, prompt_length=2, **fields)) == [0, 1, 2, 3, 4]


@every_backend
def test_min_new_tokens_leaves_eos_alone_when_it_ends_nothing(backend: str) -> None:
    fields = {"min_new_tokens": 2, "stop_token_ids": [0], "ignore_eos": True}
    assert survivors(applied(X, backend, [1], prompt_length=1, **fields)) == [1, 2, 3, 4]
