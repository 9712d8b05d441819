"""A draft source that is right, wrong, illegal, too long or silent on purpose."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from logitkit import Draft, DraftSource

MODES = ("right", "wrong", "until", "illegal", "silent", "long", "eos", "mixed")


class Scripted(DraftSource):
    """Knows the text that plain decoding writes, `truth` [B, T], and lies about it by `mode`.

    "right" proposes it, "wrong" never does, "until" is right up to a random place, "illegal" puts
    ids there that do not exist, "silent" proposes nothing, "long" twice as many tokens as asked
    for, "eos" an eos id in between; "mixed" takes one of these per row and round, of any length.
    """

    label = "scripted"

    def __init__(self, truth: Tensor, mode: str = "mixed", seed: int = 0, eos: int = 2) -> None:
        self.truth, self.mode, self.eos = truth, mode, eos
        self.vocab = 64
        self.random = torch.Generator().manual_seed(seed)
        self.starts = 0
        self.observed: list[int] = [0] * len(truth)

    def start(self, batch: Any) -> None:
        self.starts += 1
        self.vocab = batch.vocab_size

    def observe(self, batch: Any, num_tokens: Tensor, logits: Tensor) -> None:
        assert logits.ndim == 3 and logits.shape[0] == len(batch)
        for slot, count in enumerate(num_tokens.tolist()):
            assert count <= logits.shape[1]
            self.observed[slot] += count

    def propose(self, batch: Any, k: int) -> Draft:
        written = (batch.history.head - batch.history.prompt_length).tolist()
        width = 2 * k if self.mode == "long" else k
        tokens = torch.full((len(batch), width), -1)
        lengths = torch.full((len(batch),), width)
        for slot, done in enumerate(written):
            known = self.truth[slot, done : done + width].tolist()
            row = (known + [7] * width)[:width]
            mode = self.mode
            if mode == "mixed":
                mode = MODES[self.number(len(MODES) - 1)]
                lengths[slot] = self.number(width + 1)
            if mode == "wrong":
                row = [(token + 1) % self.vocab for token in row]
            elif mode == "until":
                place = self.number(width)
                row[place] = (row[place] + 1 + self.number(self.vocab - 1)) % self.vocab
            elif mode == "illegal":
                row[self.number(width)] = (self.vocab, self.vocab + 999, -5)[self.number(3)]
            elif mode == "eos":
                row[self.number(width)] = self.eos
            elif mode == "silent":
                lengths[slot] = 0
            tokens[slot] = torch.tensor(row)
        return Draft(tokens, lengths, label=self.label)

    def number(self, below: int) -> int:
        return int(torch.randint(0, below, (1,), generator=self.random))
