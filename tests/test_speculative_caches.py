"""Speculation over the families of caches: equal to plain decoding, or refused by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from model_families import tiny
from scripted import Scripted

import logitkit as lk
from logitkit import SamplingParams

PROMPTS = torch.tensor([[0, 0, 0, 5, 6, 7, 8], [9, 8, 7, 6, 5, 4, 3], [0, 11, 12, 5, 9, 2, 4]])
MASK = torch.tensor([[0, 0, 0, 1, 1, 1, 1], [1] * 7, [0, 1, 1, 1, 1, 1, 1]])
FAMILIES = ("llama", "llama_eager", "gpt2", "opt", "qwen2", "mistral", "gemma2")


def written(model: Any, rows: slice, **keywords: Any) -> Any:
    params = [
        SamplingParams(temperature=0.8, sampling_seed=i, max_new_tokens=n, ignore_eos=True)
        for i, n in enumerate((30, 17, 24))
    ]
    ids, mask = PROMPTS[rows], MASK[rows]
    return lk.generate(
        model, ids, attention_mask=mask, params=params[rows], pad_token_id=0,
        eos_token_id=1, return_dict_in_generate=True, **keywords,
    )  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("rows", [slice(1, 2), slice(0, 3)], ids=["one row", "three rows"])
def test_refused_drafts_leave_no_trace_in_any_cache(name: str, rows: slice) -> None:
    """Windows are 8 wide, the texts three windows long."""
    model = tiny(name)
    plain = written(model, rows)
    for seed in range(3):
        for k in (1, 3, 5, 12):
            source = Scripted(plain.sequences[:, PROMPTS.shape[1] :], "mixed", seed)
            out = written(model, rows, draft=source, num_draft_tokens=k)
            assert torch.equal(out.sequences, plain.sequences)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_cache_can_draft(name: str) -> None:
    target, draft = tiny("llama"), tiny(name)
    plain = written(target, slice(0, 3))
    for k in (2, 6, "auto"):
        out = written(target, slice(0, 3), draft=draft, num_draft_tokens=k)
        assert torch.equal(out.sequences, plain.sequences)
        assert k == "auto" or out.speculation.num_drafted > 0


@pytest.mark.parametrize("name", ["mamba", "qwen3_next"])
def test_models_that_cannot_forget_are_refused_by_name(name: str) -> None:
    model = tiny(name)
    with pytest.raises(ValueError, match=f"{type(model).__name__} cannot forget"):
        written(model, slice(1, 2), draft="ngram")
    with pytest.raises(ValueError, match=f"`draft`: {type(model).__name__} cannot forget"):
        written(tiny("llama"), slice(1, 2), draft=model)
