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

Logprobs = tuple[Tensor, Tensor, Tensor, Tensor]  # [B], [B, k], [B, k] ids, [B] survivors


class Record:
    """Scores, logits and log-probabilities of every new token; keeps only what is asked for.

    A column holds one token of every row, whichever step made it; 0 where a row is over.
    """

    def __init__(
        self, params: Sequence[ResolvedParams], *, scores: bool = False, logits: bool = False
    ) -> None:
        self._scores: list[Tensor] | None = [] if scores else None
        self._logits: list[Tensor] | None = [] if logits else None
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
        """Whether a step has to show the logits between its stages.

        What the mode "filtered" tells of the chosen token alone is found by the draw itself.
        """
        wants_best = any(self._counts[slot] for slot in self._slots["filtered"])
        return self._scores is not None or bool(self._slots["processed"]) or wants_best

    @property
    def scores(self) -> tuple[Tensor, ...] | None:
        """One [B, V] float32 per column of new tokens, if asked for."""
        return None if self._scores is None else tuple(self._scores)

    def add(
        self,
        logits: Tensor,
        choice: Choice,
        tokens: Tensor,
        start: Sequence[int],
        taken: Sequence[int],
    ) -> None:
        """Keep one step of B rows and n places.

        `logits` [B * n, V] as the model gave them, `choice` of as many rows, `tokens` [B, n]; row
        b took the first `taken[b]` of its tokens, which are its new tokens `start[b]` and on.
        """
        shows_logprobs = any(self._slots.values())
        if self._scores is None and self._logits is None and not shows_logprobs:
            return
        n = tokens.shape[1]
        first = min((s for s, t in zip(start, taken, strict=True) if t), default=0)
        last = max((s + t for s, t in zip(start, taken, strict=True) if t), default=0)
        for column in range(first, last):
            depth = [column - s for s in start]
            slots = [b for b, d in enumerate(depth) if 0 <= d < taken[b]]
            if not slots:
                continue
            row_of = {b: b * n + depth[b] for b in slots}
            index = torch.tensor(list(row_of.values()), device=tokens.device)
            if self._scores is not None:
                assert choice.scores is not None
                _put(self._scores, column, choice.scores, slots, index, len(start))
            if self._logits is not None:
                _put(self._logits, column, logits, slots, index, len(start))
            if shows_logprobs:
                self._put_logprobs(column, logits, choice, tokens.flatten(), row_of)

    def _put_logprobs(
        self,
        column: int,
        logits: Tensor,
        choice: Choice,
        tokens: Tensor,
        row_of: dict[int, int],
    ) -> None:
        """Enter one column's log-probabilities; `row_of` has the row of each slot."""
        while len(self._steps) <= column:
            size, shape = len(self._counts), (len(self._counts), self._num_top)
            self._steps.append(
                (
                    logits.new_full((size,), torch.nan, dtype=torch.float32),
                    logits.new_full(shape, torch.nan, dtype=torch.float32),
                    tokens.new_full(shape, -1),
                    tokens.new_zeros(size),
                )
            )
        source = {"raw": logits, "processed": choice.processed, "filtered": choice.scores}
        for mode, wanted in self._slots.items():
            shown = source[mode]
            mine = [slot for slot in wanted if slot in row_of]
            if not mine:
                continue
            rows = torch.tensor([row_of[slot] for slot in mine], device=tokens.device)
            if shown is not None:
                self._add_logprobs(
                    self._steps[column],
                    shown[rows],
                    tokens[rows],
                    mine,
                    filtered=mode == "filtered",
                )
            elif choice.logprobs is not None and choice.num_survivors is not None:
                index = torch.tensor(mine, device=tokens.device)
                self._steps[column][0][index] = choice.logprobs[rows]
                self._steps[column][3][index] = choice.num_survivors[rows]

    def _add_logprobs(
        self, step: Logprobs, shown: Tensor, chosen: Tensor, slots: list[int], *, filtered: bool
    ) -> None:
        index = torch.tensor(slots, device=chosen.device)
        if filtered:  # temperature 0 leaves one token
            greedy = torch.tensor([self._greedy[slot] for slot in slots], device=chosen.device)
            only = torch.full_like(shown, -torch.inf).scatter_(1, chosen[:, None], 0.0)
            shown = torch.where(greedy[:, None], only, shown)
            step[3][index] = (shown > -torch.inf).sum(-1)
        logprobs, top, ids = token_logprobs(shown, chosen, self._num_top)
        counts = torch.tensor([self._counts[slot] for slot in slots], device=chosen.device)
        beyond = torch.arange(self._num_top, device=chosen.device) >= counts[:, None]
        step[0][index] = logprobs
        step[1][index] = top.masked_fill(beyond, torch.nan)
        step[2][index] = ids.masked_fill(beyond, -1)

    def output(
        self, progress: Progress, cache: Any, pad: int | None, *, texts: bool, **fields: Any
    ) -> Any:
        """The generation's `DecoderOnlyOutput`; what a criterion cut off is emptied again."""
        width = max(progress.lengths)
        for column in range(width):
            over = [slot for slot, length in enumerate(progress.lengths) if length <= column]
            for kept in (self._scores or [])[column : column + 1] + (self._logits or [])[
                column : column + 1
            ]:
                kept[over] = 0.0
            for chosen, top, ids, survivors in self._steps[column : column + 1]:
                chosen[over], top[over], ids[over], survivors[over] = torch.nan, torch.nan, -1, 0
        extra: dict[str, Any] = dict(fields)
        if self._steps:
            columns = [torch.stack(parts, 1) for parts in zip(*self._steps[:width], strict=True)]
            extra["logprobs"] = columns[0]
            if self._slots["filtered"]:
                extra["num_survivors"] = columns[3]
            if self._num_top:
                ids = columns[2] if pad is None else columns[2].masked_fill(columns[2] < 0, pad)
                extra |= {"top_logprobs": columns[1], "top_token_ids": ids}
        finishes = [rules.finish for rules in progress.rules]
        output: DecoderOnlyOutput = decoder_only_output(
            progress.sequences,
            None if self._scores is None else tuple(self._scores[:width]),
            None if self._logits is None else tuple(self._logits[:width]),
            cache,
            lengths=torch.tensor(progress.lengths, device=progress.sequences.device),
            finish_reasons=list(progress.finish_reasons),
            stop_matched=[
                finish.matched if finish is not None and reason == "stop" else None
                for finish, reason in zip(finishes, progress.finish_reasons, strict=True)
            ],
            texts=[rules.text for rules in progress.rules] if texts else None,
            **extra,
        )
        return output


def _put(
    columns: list[Tensor], column: int, shown: Tensor, slots: list[int], index: Tensor, size: int
) -> None:
    """Enter the lines `index` of `shown` [R, V] as the rows `slots` of a column [size, V]."""
    while len(columns) <= column:
        columns.append(shown.new_zeros(size, shown.shape[-1], dtype=torch.float32))
    columns[column][slots] = shown[index].float()
