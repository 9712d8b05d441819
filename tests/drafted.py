"""Generations with a draft, and the same ones without, everything shown."""

from __future__ import annotations

from typing import Any

import torch
from cases import NearBest, Streak
from scripted import Scripted
from tiny import IDS, PAD, PADDED, tiny_model

import logitkit as lk
from logitkit import DEFAULT_STAGES, SamplingParams

VOCAB = 67  # the cases name tokens up to 66
MODEL = tiny_model(vocab_size=VOCAB)
CHAIN = (*DEFAULT_STAGES[:9], Streak(), *DEFAULT_STAGES[9:], NearBest())
NEW = slice(IDS.shape[1], None)
EVERYTHING: dict[str, Any] = {
    "temperature": 0.9, "top_p": 0.95, "min_p": 0.01, "repetition_penalty": 1.2,
    "presence_penalty": 0.3, "frequency_penalty": 0.2, "no_repeat_ngram_size": 3,
    "min_new_tokens": 4, "dry_multiplier": 0.5, "dry_sequence_breakers": [[4]],
    "xtc_probability": 0.5, "xtc_threshold": 0.1,
}  # fmt: skip


def requests(**fields: Any) -> list[SamplingParams]:
    """Three requests of different length."""
    return [
        SamplingParams(**{"sampling_seed": 3 + i, "max_new_tokens": n, **fields})
        for i, n in enumerate((18, 7, 12))
    ]


def written(params: Any, **keywords: Any) -> Any:
    """One generation with everything shown."""
    shows = {"return_dict_in_generate": True, "output_scores": True, "output_logits": True}
    merged = {"pad_token_id": PAD, "stages": CHAIN, **PADDED, **shows, **keywords}
    return lk.generate(MODEL, params=params, **merged)


def assert_same(out: Any, plain: Any) -> None:
    assert torch.equal(out.sequences, plain.sequences)
    assert out.finish_reasons == plain.finish_reasons
    assert out.stop_matched == plain.stop_matched
    assert out.lengths.tolist() == plain.lengths.tolist()
    for name in ("scores", "logits"):
        ours, theirs = getattr(out, name), getattr(plain, name)
        assert len(ours) == len(theirs)
        for mine, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine, other, atol=1e-3, rtol=1e-3)
    for name in ("logprobs", "top_logprobs"):
        if getattr(plain, name) is not None:
            mine, other = getattr(out, name), getattr(plain, name)
            torch.testing.assert_close(mine, other, atol=1e-3, rtol=1e-3, equal_nan=True)
    if plain.top_token_ids is not None:
        assert torch.equal(out.top_token_ids, plain.top_token_ids)
    assert getattr(out, "texts", None) == getattr(plain, "texts", None)


def assert_drafts_change_nothing(params: Any, seeds: int = 3, **keywords: Any) -> None:
    plain = written(params, **keywords)
    for seed in range(seeds):
        source = Scripted(plain.sequences[:, NEW], seed=seed)
        out = written(params, draft=source, num_draft_tokens=1 + (seed * 2) % 5, **keywords)
        assert_same(out, plain)
        assert source.starts == 1
        assert source.observed <= plain.lengths.tolist()  # the last step is not observed
