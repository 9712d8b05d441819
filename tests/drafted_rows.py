"""Requests of any length drafted for, row by row, on any model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tiny import IDS, PAD, PADDED, tiny_model
from torch import Tensor

import logitkit as lk
from logitkit import Draft, DraftSource, SamplingParams

VOCAB = 67
MODEL = tiny_model(vocab_size=VOCAB)
START = IDS.shape[1]


def written(params: Any, model: Any = MODEL, **keywords: Any) -> Any:
    shows = {"return_dict_in_generate": True, "pad_token_id": PAD}
    return lk.generate(model, params=params, **{**PADDED, **shows, **keywords})


def requests(*lengths: int, **fields: Any) -> list[SamplingParams]:
    return [
        SamplingParams(**{"sampling_seed": i, "max_new_tokens": n, "ignore_eos": True, **fields})
        for i, n in enumerate(lengths)
    ]


class Knows(DraftSource):
    """Proposes the `truth` [B, T] for the rows named, nothing for the others."""

    label = "knows"

    def __init__(self, truth: Tensor, slots: Sequence[int]) -> None:
        self.truth, self.slots = truth, slots

    def propose(self, batch: Any, k: int) -> Draft:
        written = (batch.history.head - batch.history.prompt_length).tolist()
        tokens = torch.zeros(len(batch), k, dtype=torch.int64)
        lengths = torch.zeros(len(batch), dtype=torch.int64)
        for slot in self.slots:
            known = self.truth[slot, written[slot] : written[slot] + k]
            tokens[slot, : len(known)], lengths[slot] = known, len(known)
        return Draft(tokens, lengths)


class Answers(DraftSource):
    """Gives the answer that it was made with."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def propose(self, batch: Any, k: int) -> Draft:
        answer: Draft = self.answer
        return answer
