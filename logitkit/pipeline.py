"""`LogitsPipeline`: the door to transformers' own loop, one object for a batch of requests.

transformers calls a processor with nothing but ids and scores, so all state here is a function of
each row's tokens: usually one token more than last time, or the same again; anything else is walked
anew. `stopping_criteria()` shares that state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers import LogitsProcessor, StoppingCriteria, StoppingCriteriaList

from logitkit.batch import Batch, backend_ops, check_chain, expand
from logitkit.ops import OK
from logitkit.params import ResolvedParams, SamplingParams, resolve
from logitkit.plan import Plan, make_plan
from logitkit.rows import PromptMemory
from logitkit.stage import Stage
from logitkit.stages import DEFAULT_STAGES
from logitkit.stops import StopRules

_STOP_FIELDS = ("stop", "stop_token_ids", "stop_regex", "max_new_tokens")


class LogitsPipeline(LogitsProcessor):
    """Per-request sampling inside `model.generate(logits_processor=[pipe])`.

    `params` is one `SamplingParams` for every prompt or a list with one per prompt. `eos_token_id`
    (int or list) and `pad_token_id` default to the tokenizer's. Leading pad ids of a row are not
    part of the request.

    With `select=True` the pipeline draws the token itself, by the request's own seed, and returns a
    row that is 0.0 at that token and `-inf` elsewhere: transformers adds its own warpers behind ours
    (top_k=50 is on by default there), and so they cannot change the result. `select=False` returns
    the filtered logits instead. **Beam search needs `select=False`**: it must compare scores.

    A generation starts when a row no longer has its prompt as prefix, is shorter than it, or is more
    than one token longer than the longest call so far; `reset()` forces it.
    """

    supports_continuous_batching: ClassVar[bool] = False

    def __init__(
        self,
        params: SamplingParams | Sequence[SamplingParams],
        tokenizer: Any = None,
        eos_token_id: int | Sequence[int] | None = None,
        pad_token_id: int | None = None,
        stages: Sequence[Stage] = DEFAULT_STAGES,
        backend: str = "auto",
        select: bool = True,
    ) -> None:
        self.params = (params,) if isinstance(params, SamplingParams) else tuple(params)
        self.tokenizer = tokenizer
        self.stages = tuple(stages)
        self.backend = backend
        self.select = select
        self.eos_token_ids = _ids(eos_token_id, tokenizer, "eos_token_id")
        pad = _ids(pad_token_id, tokenizer, "pad_token_id") or self.eos_token_ids
        self.pad_token_id = pad[0] if pad else None
        self._check()
        self._memory = PromptMemory()
        self._batch: Batch | None = None
        self._plan = make_plan(self.stages, self.params, backend_ops(backend, torch.device("cpu")))
        self._rules: list[StopRules] = []
        self._rows: list[ResolvedParams] = []
        self._over = torch.empty(0, dtype=torch.bool)  # ended by the request's own rules
        self._ignored = torch.empty(0, dtype=torch.bool)  # transformers only pads it
        self._drawn: Tensor | None = None
        self._ids = torch.empty(0, 0, dtype=torch.int64)  # [B, room] what the last call saw
        self._width = 0
        self._padding = torch.empty(0, dtype=torch.int64)
        self._prompt_lengths: int | Sequence[int] | None = None
        self._has_criteria = False

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Filtered or selected logits [B, V] for ids [B, L] and logits [B, V]; out of place."""
        if not self.select:
            return self.process(input_ids, scores)
        tokens = self.sample(input_ids, scores)
        selected = torch.full_like(scores, -torch.inf)
        return selected.scatter_(1, tokens[:, None], 0.0)

    def process(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """The logits after every stage, [B, V] float32, whatever `select` says.

        Raises `EmptyRowError` or `BadLogitsError` for rows that are not finished.
        """
        batch = self._follow(input_ids, scores)
        self._drawn = None
        rows = batch.rows()
        out, status = batch.plan.process(scores, rows)
        failed = (status != OK) & ~self._ignored
        if failed.any():
            batch.plan.refuse(scores, rows, torch.where(failed, status, OK), None)
        if self._forced is not None:
            out[self._over] = -torch.inf
            out[self._over, self._forced] = 0.0
        return out

    def sample(self, input_ids: Tensor, logits: Tensor) -> Tensor:
        """One token per row, [B] int64, without writing a [B, V] result; raises like `process`."""
        batch = self._follow(input_ids, logits)
        rows = batch.rows()
        tokens, status = batch.plan.draw(logits, rows)
        if status.any():
            failed = (status != OK) & ~self._ignored
            if failed.any():
                batch.plan.refuse(logits, rows, torch.where(failed, status, OK), tokens)
            tokens = tokens.clamp_min(0)
        if self._forced is not None:
            tokens = tokens.masked_fill(self._over, self._forced)
        self._drawn = tokens
        return tokens

    def reset(self, prompt_lengths: int | Sequence[int] | None = None) -> None:
        """Start a new generation at the next call.

        `prompt_lengths` (one number or one per row, padding not counted) says how many leading ids
        of that call are prompt; by default all are.
        """
        self._memory = PromptMemory()
        self._prompt_lengths = prompt_lengths

    def stopping_criteria(self) -> StoppingCriteriaList:
        """Criteria for `stop`, `stop_token_ids`, `stop_regex` and `max_new_tokens` of every row.

        Pass them as `stopping_criteria=`: requests then end exactly at the token. Without them the
        pipeline forces eos one token later.
        """
        self._has_criteria = True
        return StoppingCriteriaList([_Criteria(self)])

    @property
    def plan(self) -> Plan:
        """What is fused with what, on which backend; print it."""
        return self._plan if self._batch is None else self._batch.plan

    @property
    def _forced(self) -> int | None:
        """The eos id that over-long rows get, if any row needs it."""
        if self._has_criteria or not self._rules or not bool(self._over.any()):
            return None
        return self.eos_token_ids[0]

    def _check(self) -> None:
        if not self.params:
            raise ValueError("`params` is empty; give one SamplingParams, or one per prompt")
        for p in self.params:
            if not isinstance(p, SamplingParams):
                raise ValueError(f"`params` must hold SamplingParams, got {p!r}")
            for field, neutral in (("ignore_eos", False), ("logprobs", None)):
                if getattr(p, field) != neutral:
                    raise ValueError(
                        f"`{field}`={getattr(p, field)!r} is not possible inside transformers' "
                        "loop, which decides itself; use lk.generate(model, ..., params=...)"
                    )
            resolved = resolve(p, tokenizer=self.tokenizer, eos_token_ids=self.eos_token_ids)
            StopRules(resolved, self.tokenizer)
            if p.min_new_tokens and not (self.eos_token_ids or p.stop_token_ids):
                raise ValueError(
                    f"`min_new_tokens`={p.min_new_tokens} needs to know eos; "
                    "pass tokenizer= or eos_token_id="
                )
        check_chain(self.stages, self.params)

    def _follow(self, input_ids: Tensor, scores: Tensor) -> Batch:
        """Bring history, states and stop rules to what `input_ids` say."""
        if scores.ndim != 2 or input_ids.shape[:1] != scores.shape[:1] or input_ids.ndim != 2:
            raise ValueError(
                "`input_ids` [B, L] and `scores` [B, V] do not fit: got "
                f"{tuple(input_ids.shape)} and {tuple(scores.shape)}"
            )
        again = self._memory.prompt is not None and (
            input_ids.shape[1] == self._memory.prompt.shape[1] < self._memory.longest
        )
        if self._memory.starts(input_ids) or self._batch is None or (again and self._unseeded):
            return self._start(input_ids, scores)
        if scores.shape[1] != self._batch.vocab_size:
            raise ValueError(
                f"`scores` are {scores.shape[1]} wide, but this generation began with "
                f"{self._batch.vocab_size}; call pipe.reset() before using another model"
            )
        self._advance(input_ids)
        return self._batch

    @property
    def _unseeded(self) -> bool:
        return any(p.sampling_seed is None for p in self.params)

    def _start(self, input_ids: Tensor, scores: Tensor) -> Batch:
        size, width = input_ids.shape
        resolved = [
            resolve(
                p,
                tokenizer=self.tokenizer,
                eos_token_ids=self.eos_token_ids,
                vocab_size=scores.shape[1],
            )
            for p in self.params
        ]
        ids = input_ids.cpu()
        padding = self._leading_pads(ids)
        lengths = width - padding
        prompts = self._prompts(lengths)
        self._rows = self._expand(resolved, ids)
        self._batch = Batch.start(
            self._rows,
            [ids[r, padding[r] : padding[r] + prompts[r]] for r in range(size)],
            self.stages,
            vocab_size=scores.shape[1],
            device=scores.device,
            backend=self.backend,
        )
        shortest = int((padding + prompts).min()) if size else width
        self._memory.prompt = input_ids[:, :shortest].clone()
        self._prompt_lengths = None
        self._padding = padding
        self._walk(ids)
        return self._batch

    def _expand(self, resolved: list[ResolvedParams], ids: Tensor) -> list[ResolvedParams]:
        """One entry per row; with `select=False` every row may stand for several beams."""
        size = ids.shape[0]
        wanted = sum(p.n for p in resolved)
        beams = 1
        if not self.select and len(resolved) > 1 and size and size % wanted == 0:
            beams = size // wanted
        rows = [p for p in expand(resolved, size // beams) for _ in range(beams)]
        first = 0
        while self.select and first < size:
            n = rows[first].n
            if not torch.equal(ids[first : first + n], ids[first : first + 1].expand(n, -1)):
                raise ValueError(
                    f"rows {first} to {first + n - 1} belong to one request with `n`={n}, but have "
                    "different prompts; num_return_sequences must equal `n`"
                )
            first += n
        return rows

    def _leading_pads(self, ids: Tensor) -> Tensor:
        """How many pad ids every row begins with, [B]."""
        if self.pad_token_id is None:
            return torch.zeros(ids.shape[0], dtype=torch.int64)
        return (ids == self.pad_token_id).long().cumprod(1).sum(1)

    def _prompts(self, lengths: Tensor) -> Tensor:
        if self._prompt_lengths is None:
            return lengths
        prompts = torch.as_tensor(self._prompt_lengths).expand(lengths.shape)
        if bool((prompts < 0).any()) or bool((prompts > lengths).any()):
            raise ValueError(
                f"`prompt_lengths`={prompts.tolist()} must lie between 0 and the rows' lengths "
                f"{lengths.tolist()} (padding not counted)"
            )
        return prompts

    def _walk(self, ids: Tensor) -> None:
        """Take every row anew from its prompt to the end of `ids` (on the CPU)."""
        batch = self._batch
        assert batch is not None
        size, width = ids.shape
        self._ids = torch.zeros(size, 2 * width + 64, dtype=torch.int64)
        self._ids[:, :width] = ids
        self._width = width
        self._drawn = None
        self._over = torch.zeros(size, dtype=torch.bool, device=batch.device)
        self._ignored = self._over.clone()
        self._rules = self._make_rules()
        behind = self._padding + batch.history.prompt_length.cpu()
        new = [ids[r, behind[r] :] for r in range(size)]
        for r, tokens in enumerate(new):
            if self._rules:
                self._over[r] = any(self._rules[r].push(token) for token in tokens.tolist())
            if len(tokens):
                self._ignored[r] = self._over[r] or self._is_end(int(tokens[-1]))
        aligned = torch.nn.utils.rnn.pad_sequence(new, batch_first=True) if size else ids
        batch.replay(
            aligned.to(batch.device), torch.tensor([len(t) for t in new], device=batch.device)
        )

    def _is_end(self, token: int) -> bool:
        return token == self.pad_token_id or token in self.eos_token_ids

    def _make_rules(self) -> list[StopRules]:
        if not any(getattr(p, field) for p in self.params for field in _STOP_FIELDS):
            return []
        if not self.eos_token_ids and not self._has_criteria:
            raise ValueError(
                "`stop`, `stop_token_ids`, `stop_regex` and `max_new_tokens` end a row by eos: pass "
                "tokenizer= or eos_token_id=, or stopping_criteria=pipe.stopping_criteria()"
            )
        return [StopRules(p, self.tokenizer) for p in self._rows]

    def _advance(self, input_ids: Tensor) -> None:
        """One token more, or the same ids, without a walk; everything else walks."""
        batch = self._batch
        assert batch is not None
        ids = input_ids.cpu()
        width = ids.shape[1]
        known = min(width, self._width)
        if not torch.equal(ids[:, :known], self._ids[:, :known]) or not (
            0 <= width - self._width <= 1
        ):
            self._walk(ids)
            return
        if width == self._width:
            return
        if width > self._ids.shape[1]:
            self._ids = torch.cat([self._ids, torch.zeros_like(self._ids)], 1)
        new = ids[:, -1]
        self._ids[:, self._width] = new
        self._width = width
        on_device = new.to(batch.device)
        if self.pad_token_id is not None:
            padded = on_device == self.pad_token_id
            if self._drawn is not None:
                padded &= on_device != self._drawn
            self._ignored |= padded
        for eos in self.eos_token_ids:
            self._ignored |= on_device == eos
        for r, rules in enumerate(self._rules):
            if not self._over[r] and rules.push(int(new[r])):
                self._over[r] = self._ignored[r] = True
        batch.commit(on_device)


class _Criteria(StoppingCriteria):  # type: ignore[misc]
    """Says which rows are over by their own rules."""

    def __init__(self, pipe: LogitsPipeline) -> None:
        self.pipe = pipe

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        self.pipe._advance(input_ids)
        return self.pipe._over.to(input_ids.device)


def _ids(given: int | Sequence[int] | None, tokenizer: Any, name: str) -> tuple[int, ...]:
    """Token ids as given, or the tokenizer's."""
    if given is None:
        given = getattr(tokenizer, name, None)
    if given is None:
        return ()
    found = (given,) if isinstance(given, int) else tuple(given)
    if not found or any(isinstance(i, bool) or not isinstance(i, int) or i < 0 for i in found):
        raise ValueError(f"`{name}` must be a token id >= 0 or a list of them, got {given!r}")
    return found
