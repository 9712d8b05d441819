"""`Record`: what an output shows beside the tokens, collected step by step.

Below `strategy`, above `sampler`: scores, logits and log-probabilities, and how they become the
output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from logitkit.causal_lm import DecoderOnlyOutput, decoder_only_output
from logitkit.generation.progress import Progress
from logitkit.params import ResolvedParams
from logitkit.sampler import Choice, token_logprobs

Logprobs = tuple[Tensor, Tensor, Tensor]  # [B], [B, k], [B, k] ids


class Record:
    """Scores, logits and log-probabilities of every step; keeps only what is asked for."""

    def __init__(
        self, params: Sequence[ResolvedParams], *, scores: bool = False, logits: bool = False
    ) -> None:
        self.scores: tuple[Tensor, ...] | None = () if scores else None
        self._logits: tuple[Tensor, ...] | None = () if logits else None
        self._steps: list[Logprobs] = []
        self._num_top = max((p.logprobs or 0 for p in params), default=0)
        self._counts = [-1 if p.logprobs is None else p.logprobs for p in params]
        self._greedy = [p.temperature == 0 for p in params]
        self._slots = {
            mode: [
                slot
                for slot, p in enumerate(params)
                if p.logprobs is not None and p.logprob_mode == mode
            ]
            for mode in ("raw", "processed", "filtered")
        }

    @property
    def keeps_logits(self) -> bool:
        """Whether a step has to show the logits between its stages."""
        return self.scores is not None or bool(self._slots["processed"] or self._slots["filtered"])

    def add(self, logits: Tensor, choice: Choice, tokens: Tensor, taken: Tensor | None) -> None:
        """Keep one step: `logits` [B, V] as the model gave them, and which rows took a token."""
        if self.scores is not None:
            assert choice.scores is not None
            self.scores += (choice.scores,)
        if self._logits is not None:
            self._logits += (logits.to(torch.float32, copy=True),)
        if not any(self._slots.values()):
            return
        shape = (len(tokens), self._num_top)
        step = (
            logits.new_full((len(tokens),), torch.nan, dtype=torch.float32),
            logits.new_full(shape, torch.nan, dtype=torch.float32),
            tokens.new_full(shape, -1),
        )
        source = {"raw": logits, "processed": choice.processed, "filtered": choice.scores}
        took = [True] * len(tokens) if taken is None else taken.tolist()
        for mode, slots in self._slots.items():
            shown = source[mode]
            slots = [slot for slot in slots if took[slot]]
            if slots and shown is not None:
                self._add_logprobs(step, shown, tokens, slots, filtered=mode == "filtered")
        self._steps.append(step)

    def _add_logprobs(
        self, step: Logprobs, shown: Tensor, tokens: Tensor, slots: list[int], *, filtered: bool
    ) -> None:
        index = torch.tensor(slots, device=tokens.device)
        shown, chosen = shown[index], tokens[index]
        if filtered:  # temperature 0 leaves one token
            greedy = torch.tensor([self._greedy[slot] for slot in slots], device=tokens.device)
            only = torch.full_like(shown, -torch.inf).scatter_(1, chosen[:, None], 0.0)
            shown = torch.where(greedy[:, None], only, shown)
        logprobs, top, ids = token_logprobs(shown, chosen, self._num_top)
        counts = torch.tensor([self._counts[slot] for slot in slots], device=tokens.device)
        beyond = torch.arange(self._num_top, device=tokens.device) >= counts[:, None]
        step[0][index] = logprobs
        step[1][index] = top.masked_fill(beyond, torch.nan)
        step[2][index] = ids.masked_fill(beyond, -1)

    def output(self, progress: Progress, cache: Any, pad: int | None, *, texts: bool) -> Any:
        """The generation's `DecoderOnlyOutput`."""
        extra: dict[str, Any] = {}
        if self._steps:
            columns = [torch.stack(parts, 1) for parts in zip(*self._steps, strict=True)]
            extra["logprobs"] = columns[0]
            if self._num_top:
                ids = columns[2] if pad is None else columns[2].masked_fill(columns[2] < 0, pad)
                extra |= {"top_logprobs": columns[1], "top_token_ids": ids}
        finishes = [rules.finish for rules in progress.rules]
        output: DecoderOnlyOutput = decoder_only_output(
            progress.sequences,
            self.scores,
            self._logits,
            cache,
            lengths=progress.lengths,
            finish_reasons=list(progress.finish_reasons),
            stop_matched=[
                finish.matched if finish is not None and reason == "stop" else None
                for finish, reason in zip(finishes, progress.finish_reasons, strict=True)
            ],
            texts=[rules.text for rules in progress.rules] if texts else None,
            **extra,
        )
        return output
