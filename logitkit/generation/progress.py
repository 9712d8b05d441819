"""`Progress`: what every row wrote so far, whether it still runs, and why it stopped.

Below `strategy`, which asks it once per step. It keeps the sequences as transformers shows them,
feeds the streamer and asks the caller's stopping criteria.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from logitkit.errors import RowError
from logitkit.stops import StopRegexTimeout, StopRules

Criteria = Callable[[Tensor, Any], Any]


class Progress:
    """The rows of one generation: `prompts` [B, L] as given, one `StopRules` each.

    `tokens` [B] is what the next forward gets: the newest token of every row, and for rows that are
    over `idle`, any token that the model has (`pad` may lie beyond its vocabulary).
    `finish_reasons` holds "eos", "stop", "length", "criteria", "error", or None while a row runs;
    `failures` are the errors of the rows that ended by one.
    """

    def __init__(
        self,
        prompts: Tensor,
        rules: Sequence[StopRules],
        pad: int,
        idle: int,
        criteria: Criteria | None = None,
        streamer: Any = None,
    ) -> None:
        self.rules = rules
        self.tokens = prompts[:, -1]
        self.finish_reasons: list[str | None] = [None] * len(rules)
        self.failures: list[RowError | StopRegexTimeout] = []
        self._pad = pad
        self._idle = idle
        self._criteria = criteria
        self._streamer = streamer
        self._width = prompts.shape[1]
        self._sequences = prompts
        self._running = list(range(len(rules)))
        self._lengths = [0] * len(rules)
        self._mask: Tensor | None = None  # [B] bool, None while every row runs

    @property
    def done(self) -> bool:
        return not self._running

    @property
    def sequences(self) -> Tensor:
        """Prompts and new tokens, [B, L + steps]; `pad` behind the end of a row."""
        return self._sequences[:, : self._width]

    @property
    def lengths(self) -> Tensor:
        """New tokens per row, [B] int64."""
        return torch.tensor(self._lengths, device=self._sequences.device)

    def fail(self, drawn: Sequence[int]) -> list[int]:
        """Stop the running rows for which no token could be drawn (-1), and return them."""
        failed = [slot for slot in self._running if drawn[slot] < 0]
        self._stop(dict.fromkeys(failed, "error"))
        return failed

    def advance(self, tokens: Tensor, drawn: Sequence[int]) -> Tensor | None:
        """Take one token per running row; return how many each row took [B], None for one each.

        `drawn` are the values of `tokens` [B].
        """
        mask = self._mask
        if mask is None:
            self.tokens = shown = tokens
        else:
            self.tokens = shown = torch.where(mask, tokens, self._idle)
            if self._pad != self._idle:
                shown = torch.where(mask, tokens, self._pad)
        self._append(shown)
        ended = {}
        for slot in self._running:
            self._lengths[slot] += 1
            reason = self._push(slot, drawn[slot])
            if reason is not None:
                ended[slot] = reason
        self._stop(ended)
        return None if mask is None else mask.long()

    def judge(self, scores: tuple[Tensor, ...] | None) -> None:
        """Ask the caller's criteria about the sequences so far, and stop the rows they end."""
        if self._criteria is None:
            return
        verdict = self._criteria(self.sequences, scores)
        over = torch.as_tensor(verdict).expand(len(self.rules)).tolist()
        self._stop({slot: "criteria" for slot in self._running if over[slot]})

    def stream(self) -> None:
        """Hand the newest tokens [B] to the streamer."""
        if self._streamer is not None:
            self._streamer.put(self.sequences[:, -1].cpu())

    def settle(self, device: torch.device) -> None:
        """Give back the room behind the sequences, and move them where the prompts came from."""
        self._sequences = self.sequences.to(device, copy=True)

    def _push(self, slot: int, token: int) -> str | None:
        try:
            finish = self.rules[slot].push(token)
        except StopRegexTimeout as error:
            self.failures.append(error)
            return "error"
        return None if finish is None else finish.reason

    def _append(self, tokens: Tensor) -> None:
        have = self._sequences.shape[1]
        if self._width == have:
            room = self._sequences.new_empty(len(tokens), max(64, have))
            self._sequences = torch.cat([self._sequences, room], 1)
        self._sequences[:, self._width] = tokens
        self._width += 1

    def _stop(self, reasons: Mapping[int, str]) -> None:
        if not reasons:
            return
        for slot, reason in reasons.items():
            self.finish_reasons[slot] = reason
        running = [reason is None for reason in self.finish_reasons]
        self._running = [slot for slot, runs in enumerate(running) if runs]
        self._mask = torch.tensor(running, device=self._sequences.device)
