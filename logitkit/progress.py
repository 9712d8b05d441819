"""`Progress`: what every row wrote so far, whether it still runs, and why it stopped.

Below `strategy`, which asks it once per step. It keeps the sequences as transformers shows them,
feeds the streamer and asks the caller's stopping criteria.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from logitkit.stops import StopRegexTimeout, StopRules

Criteria = Callable[[Tensor, Any], Any]


class Progress:
    """The rows of one generation: `prompts` [B, L] as given, one `StopRules` each.

    `tokens` [B] is what the next forward gets: the newest token of every row, `pad` for rows that
    are over. `finish_reasons` holds "eos", "stop", "length", "criteria", "error", or None while a
    row runs. `failures` are the errors of the rows that ended by one.
    """

    def __init__(
        self,
        prompts: Tensor,
        rules: Sequence[StopRules],
        pad: int,
        criteria: Criteria | None = None,
        streamer: Any = None,
    ) -> None:
        self.rules = rules
        self.pad = pad
        self.tokens = prompts[:, -1]
        self.finish_reasons: list[str | None] = [None] * len(rules)
        self.failures: list[Exception] = []
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

    def failed(self, tokens: Sequence[int]) -> list[int]:
        """The running rows for which no token could be drawn (-1)."""
        return [slot for slot in self._running if tokens[slot] < 0]

    def advance(self, tokens: Tensor, drawn: Sequence[int]) -> Tensor | None:
        """Take one token per running row; return how many each row took [B], None for one each.

        `drawn` are the values of `tokens`. A row with -1 stops here and takes nothing.
        """
        ended = []
        for slot in self._running:
            reason = self._push(slot, drawn[slot])
            if reason is not None:
                self.finish_reasons[slot] = reason
                ended.append(slot)
        taken = None
        mask = self._mask
        if any(drawn[slot] < 0 for slot in ended):
            mask = tokens >= 0 if mask is None else mask & (tokens >= 0)
        if mask is not None:
            tokens = torch.where(mask, tokens, self.pad)
            taken = mask.long()
        self.tokens = tokens
        self._append(tokens)
        if ended:
            self._drop(ended)
        return taken

    def judge(self, scores: tuple[Tensor, ...] | None) -> None:
        """Ask the caller's criteria about the sequences so far, and stop the rows they end."""
        if self._criteria is None:
            return
        verdict = self._criteria(self.sequences, scores)
        over = torch.as_tensor(verdict).expand(len(self.rules)).tolist()
        ended = [slot for slot in self._running if over[slot]]
        for slot in ended:
            self.finish_reasons[slot] = "criteria"
        if ended:
            self._drop(ended)

    def stream(self) -> None:
        """Hand the newest tokens [B] to the streamer."""
        if self._streamer is not None:
            self._streamer.put(self.tokens.cpu())

    def settle(self, device: torch.device) -> None:
        """Give back the room behind the sequences, and move them where the prompts came from."""
        self._sequences = self.sequences.to(device, copy=True)

    def _push(self, slot: int, token: int) -> str | None:
        if token < 0:
            return "error"
        self._lengths[slot] += 1
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

    def _drop(self, ended: Sequence[int]) -> None:
        self._running = [slot for slot in self._running if slot not in ended]
        mask = [reason is None for reason in self.finish_reasons]
        self._mask = torch.tensor(mask, device=self._sequences.device)
