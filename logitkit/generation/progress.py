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
    `failures` are the errors of the rows that ended by one, one each. `lengths` counts each row's
    new tokens.

    Rows may take several tokens a step and run ahead of each other. The streamer and the criteria
    are shown one column at a time, once every running row has it, as plain decoding shows them; a
    row that ran past its end by a criterion is cut back to it.
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
        self.lengths = [0] * len(rules)
        self.running = list(range(len(rules)))
        self._pad = pad
        self._idle = idle
        self._criteria = criteria
        self._streamer = streamer
        self._width = prompts.shape[1]
        self._sequences = prompts
        self._end = torch.full_like(prompts[:, -1], self._width)  # [B] behind the newest tokens
        self._num_shown = 0  # columns that the streamer and the criteria saw
        self._mask: Tensor | None = None  # [B] bool, None while every row runs

    @property
    def done(self) -> bool:
        return not self.running

    @property
    def sequences(self) -> Tensor:
        """Prompts and new tokens, [B, L + the longest row's]; `pad` behind the end of a row."""
        return self._sequences[:, : self._width + max(self.lengths)]

    @property
    def mask(self) -> Tensor | None:
        """Which rows run, [B] bool; None while all do."""
        return self._mask

    def advance(self, tokens: Tensor, num_tokens: Sequence[int]) -> tuple[Tensor | None, list[int]]:
        """Take the first `num_tokens` [B] of `tokens` [B, n] for each running row, up to its end.

        A token of -1 could not be drawn and ends its row by an error. Returns how many each row
        took [B] (None: all of them, in every row), and the rows that failed. Of all that a step
        does, this alone reads from the device, once.
        """
        size, n = tokens.shape
        taken = [0] * size
        failed = []
        ended: dict[int, str] = {}
        for slot, (drawn, count) in enumerate(zip(tokens.tolist(), num_tokens, strict=True)):
            if self.finish_reasons[slot] is not None:
                continue
            reason = None
            for token in drawn[:count]:
                if token < 0:
                    failed.append(slot)
                    reason = "error"
                    break
                taken[slot] += 1
                reason = self._push(slot, token)
                if reason is not None:
                    break
            if reason is not None:
                ended[slot] = reason
            self.lengths[slot] += taken[slot]
        every = all(count == n for count in taken)
        took = None if every else _sent(taken, tokens.device)
        self._append(tokens, took)
        self._stop(ended)
        newest = tokens[:, -1]
        if took is not None:
            newest = tokens.gather(1, (took - 1).clamp_min(0)[:, None]).squeeze(1)
        self.tokens = newest if self._mask is None else torch.where(self._mask, newest, self._idle)
        return took, failed

    def show(self, scores: tuple[Tensor, ...] | None) -> None:
        """Hand each column that every running row has to the streamer, then to the criteria."""
        if self._streamer is None and self._criteria is None:
            return
        while self._num_shown < self._common_length():
            self._num_shown += 1
            width = self._width + self._num_shown
            if self._streamer is not None:
                self._streamer.put(self._sequences[:, width - 1].cpu())
            if self._criteria is not None:
                shown = None if scores is None else scores[: self._num_shown]
                verdict = self._criteria(self._sequences[:, :width], shown)
                over = torch.as_tensor(verdict).expand(len(self.rules)).tolist()
                self._end_by_criteria([slot for slot, ends in enumerate(over) if ends], scores)

    def place(self, failure: RowError | StopRegexTimeout) -> tuple[int, int]:
        """Of which token a request's error is, counted from its first, and the slot."""
        slot = failure.slots[0]
        return self.lengths[slot] + isinstance(failure, RowError), slot  # no token was drawn

    def settle(self, device: torch.device) -> None:
        """Give back the room behind the sequences, and move them where the prompts came from."""
        self._sequences = self.sequences.to(device, copy=True)

    def _common_length(self) -> int:
        lengths = [self.lengths[slot] for slot in self.running]
        return min(lengths) if lengths else max(self.lengths)

    def _end_by_criteria(self, slots: Sequence[int], scores: tuple[Tensor, ...] | None) -> None:
        """End rows at the column shown last, unless they ended there or before by themselves.

        What they have in later `scores` is emptied: the criteria may look at those again.
        """
        length = self._num_shown
        ended = [
            slot
            for slot in slots
            if self.lengths[slot] > length
            or (self.lengths[slot] == length and self.finish_reasons[slot] in (None, "error"))
        ]
        for slot in ended:
            if self.finish_reasons[slot] == "error":
                self._forgive(slot)
            self.rules[slot].rewind(length)
            self.lengths[slot] = length
            self._sequences[slot, self._width + length :] = self._pad
            self._end[slot] = self._width + length
            for column in () if scores is None else scores[length:]:
                column[slot] = 0.0
        self._stop(dict.fromkeys(ended, "criteria"))

    def _forgive(self, slot: int) -> None:
        """Drop the error of a row that had ended before it."""
        self.failures = [error for error in self.failures if error.slots != (slot,)]

    def _push(self, slot: int, token: int) -> str | None:
        try:
            finish = self.rules[slot].push(token)
        except StopRegexTimeout as error:
            error.slots = (slot,)
            self.failures.append(error)
            return "error"
        return None if finish is None else finish.reason

    def _append(self, tokens: Tensor, taken: Tensor | None) -> None:
        """Write what each row took behind its end."""
        n = tokens.shape[1]
        need = self._width + max(self.lengths) + n
        have = self._sequences.shape[1]
        if need > have:
            room = self._sequences.new_full((len(tokens), max(64, have, need - have)), self._pad)
            self._sequences = torch.cat([self._sequences, room], 1)
        ahead = torch.arange(n, device=tokens.device)
        if taken is not None:
            tokens = torch.where(ahead < taken[:, None], tokens, self._pad)
        self._sequences.scatter_(1, self._end[:, None] + ahead, tokens)
        self._end = self._end + (n if taken is None else taken)

    def _stop(self, reasons: Mapping[int, str]) -> None:
        if not reasons:
            return
        for slot, reason in reasons.items():
            self.finish_reasons[slot] = reason
        runs = [reason is None for reason in self.finish_reasons]
        self.running = [slot for slot, running in enumerate(runs) if running]
        self._mask = _sent(runs, self._sequences.device)


def _sent(values: Sequence[int], device: torch.device) -> Tensor:
    """Numbers or bools on the device, without waiting for it."""
    return torch.tensor(values).to(device, non_blocking=True)
