"""`Prefixes`: the rows of one generation in transformers' loop, known by their ids alone.

It stands between `LogitsPipeline` and `Batch`. transformers hands its processors nothing but ids,
so everything here is a function of each row's tokens: usually one token more than last time, or
the same again; any other tokens behind the same prompt are walked anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from logitkit.batch import Batch
from logitkit.params import SamplingParams
from logitkit.stops import StopRules

_STOP_FIELDS = ("stop", "stop_token_ids", "stop_regex", "max_new_tokens")
_UNKNOWN = -2  # no width of ids follows it

Ids = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
Flags = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


def has_stops(params: SamplingParams) -> bool:
    """Whether a request has rules of its own that end it."""
    return any(getattr(params, field) for field in _STOP_FIELDS)


class Prefixes:
    """Keeps the history, the states and the stop rules of `batch` at what the rows' ids say.

    `ids` [B, L] are those of the first call, `padding` [B] how many of them are pads at the left.
    `over` [B] tells the rows that their own stop rules ended. `ended` [B] tells those and the rows
    that transformers ended, by eos or by a pad that was not drawn here: whatever comes out for them
    is overwritten by pads. `drawn` are the tokens of the last call, None if it drew none.
    """

    def __init__(
        self,
        batch: Batch,
        ids: Ids,
        padding: Ids,
        *,
        eos_token_ids: Collection[int] = (),
        pad_token_id: int | None = None,
        tokenizer: Any = None,
    ) -> None:
        self.batch = batch
        self.over: Flags = np.zeros(len(batch), np.bool_)
        self.ended: Flags = self.over.copy()
        self.any_over = self._any_ended = False
        self.drawn: Tensor | None = None
        self.longest = ids.shape[1]
        self._eos = frozenset(eos_token_ids)
        self._endings = self._eos | ({pad_token_id} - {None})
        self._tokenizer = tokenizer
        self._rules: dict[int, StopRules] = {}
        self._width = _UNKNOWN
        self._seen = ids
        self._own: Ids = padding + batch.history.prompt_length.cpu().numpy()  # [B] first new token
        self.prompt_width = int(self._own.max(initial=0))
        self._is_prompt = np.arange(self.prompt_width) < self._own[:, None]
        self._prompt = ids[:, : self.prompt_width].copy()
        self._walk(ids)

    def follow(self, ids: Ids) -> bool:
        """Go to `ids` [B, L]; False (and nothing done) if they belong to another generation.

        They do when a row lost its prompt as prefix, is shorter than it, or is more than one token
        longer than the longest call so far.
        """
        width, known = ids.shape[1], self._width
        if (
            known <= width <= known + 1
            and ids.shape[0] == len(self.over)
            and (ids[:, :known] == self._seen[:, :known]).all()
        ):
            if width > known:
                self._step(ids)
        elif self._continue(ids):
            self._walk(ids)
        else:
            return False
        self.longest = max(self.longest, width)
        return True

    def over_in(self, ids: Ids) -> Flags:
        """Which rows of `ids` [M, L] are over, where every row of the batch stands for M // B.

        Beam search asks this about its candidates; nothing is remembered.
        """
        share = ids.shape[0] // len(self.over)
        assert share * len(self.over) == ids.shape[0]
        slots = [r // share for r in range(ids.shape[0])]
        over = np.zeros(ids.shape[0], np.bool_)
        for r, slot in enumerate(slots):
            if slot in self._rules:
                rules = StopRules(self.batch.params[slot], self._tokenizer)
                over[r] = _push_all(rules, ids[r, self._own[slot] :].tolist())
        return over

    def _continue(self, ids: Ids) -> bool:
        size, width = ids.shape
        if size != len(self.over) or not self.prompt_width <= width <= self.longest + 1:
            return False
        same = ids[:, : self.prompt_width] == self._prompt
        return bool((same | ~self._is_prompt).all())

    def _step(self, ids: Ids) -> None:
        """One token more in every row."""
        _refuse_negative(ids[:, self._width :])
        at = self._width
        self._width = _UNKNOWN  # until all is done: after an error on the way the next call walks
        if at == self._seen.shape[1]:
            self._seen = np.concatenate([self._seen, np.zeros_like(self._seen)], 1)
        self._seen[:, at] = ids[:, at]
        tokens: list[int] = ids[:, at].tolist()
        if self._any_ended or not self._endings.isdisjoint(tokens):
            self._mark_ended(tokens)
        for r, rules in self._rules.items():
            if not self.over[r] and rules.push(tokens[r]):
                self.over[r] = self.ended[r] = self.any_over = self._any_ended = True
        new = torch.from_numpy(self._seen[:, at])
        self.batch.commit(new.to(self.batch.device))
        self._width = at + 1

    def _mark_ended(self, tokens: list[int]) -> None:
        """A row is ended from its eos, or from the first pad that was not drawn, on."""
        drawn = [-1] * len(tokens) if self.drawn is None else self.drawn.tolist()
        for r, token in enumerate(tokens):
            if token in self._endings:
                self.ended[r] |= token in self._eos or token != drawn[r]
            else:
                self.ended[r] = self.over[r]
        self._any_ended = bool(self.ended.any())

    def _walk(self, ids: Ids) -> None:
        """Take every row anew from its prompt to the end of `ids`."""
        _refuse_negative(ids)
        size, width = ids.shape
        self._width = _UNKNOWN
        self._seen = np.zeros((size, 2 * width + 64), np.int64)
        self._seen[:, :width] = ids
        self.drawn = None
        self._rules = {
            r: StopRules(p, self._tokenizer)
            for r, p in enumerate(self.batch.params)
            if has_stops(p)
        }
        new = [ids[r, begin:].tolist() for r, begin in enumerate(self._own)]
        for r, tokens in enumerate(new):
            self.over[r] = r in self._rules and _push_all(self._rules[r], tokens)
            self.ended[r] = self.over[r] or (bool(tokens) and tokens[-1] in self._endings)
        self.any_over, self._any_ended = bool(self.over.any()), bool(self.ended.any())
        lengths = torch.tensor([len(tokens) for tokens in new], dtype=torch.int64)
        aligned = torch.zeros(size, max(map(len, new), default=0), dtype=torch.int64)
        for r, tokens in enumerate(new):
            aligned[r, : len(tokens)] = torch.tensor(tokens, dtype=torch.int64)
        self.batch.replay(aligned.to(self.batch.device), lengths.to(self.batch.device))
        self._width = width


def _refuse_negative(ids: Ids) -> None:
    if ids.size and (least := int(ids.min())) < 0:
        raise ValueError(f"`input_ids` holds {least}; token ids are >= 0 (labels are not ids)")


def _push_all(rules: StopRules, tokens: Iterable[int]) -> bool:
    """Whether the request is over after these new tokens."""
    return any(rules.push(token) is not None for token in tokens)
