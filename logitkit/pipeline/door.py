"""`LogitsPipeline`: the door to transformers' own loop, one object for a batch of requests.

It checks what comes in, begins a `Batch` per generation and lets `Prefixes` follow the rows' ids;
`stopping_criteria()` shares that state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor, StoppingCriteria, StoppingCriteriaList

from logitkit.batch import Batch, backend_ops, check_chain, expand
from logitkit.ops import OK
from logitkit.params import ResolvedParams, SamplingParams, resolve
from logitkit.pipeline.checks import (
    on_cpu,
    prompt_lengths,
    refuse_beams,
    requests,
    token_ids,
)
from logitkit.pipeline.prefixes import Ids, Prefixes, has_stops
from logitkit.plan import Plan, make_plan
from logitkit.rows import Rows
from logitkit.stage import Stage
from logitkit.stages import DEFAULT_STAGES
from logitkit.stops import StopRules

_SCORES = (torch.float32, torch.bfloat16, torch.float16)


class LogitsPipeline(LogitsProcessor):
    """Per-request sampling inside `model.generate(logits_processor=[pipe])`.

    `params` is one `SamplingParams` for every prompt or a list with one per prompt; a request with
    `n` > 1 owns `n` rows, one after the other (`num_return_sequences` equal to `n`).
    `eos_token_id` (int or list) and `pad_token_id` default to the tokenizer's, the pad then to the
    eos as in transformers. The leading pads of a row are not part of the request.

    With `select=True` the pipeline draws the token itself, by the request's own seed, and returns
    a row that is 0.0 at that token and `-inf` elsewhere: transformers adds its own warpers behind
    ours (top_k=50 is on by default there), and so they cannot change the result. `select=False`
    returns the filtered logits instead, and transformers chooses.

    **Beam search needs `select=False`**, since it must compare scores; else it is refused. The row
    count may then be any multiple of the requests' rows.

    A generation starts when a row no longer has its prompt as prefix, is shorter than it, or is
    more than one token longer than the longest call so far, and for requests without a seed when
    the bare prompts come again. `reset()` forces it: call it before a prompt that continues an
    earlier one.

    Without `stopping_criteria()` a row that is over by its own rules gets eos as its next token.
    """

    supports_continuous_batching: bool | None = False

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
        self.params = requests(params)
        self.tokenizer = tokenizer
        self.stages = tuple(stages)
        self.backend = backend
        self.select = select
        self.eos_token_ids = token_ids(eos_token_id, tokenizer, "eos_token_id")
        pad = token_ids(pad_token_id, tokenizer, "pad_token_id")
        if len(pad) > 1:
            raise ValueError(f"`pad_token_id` must be one token id, got {pad_token_id!r}")
        self.pad_token_id = next(iter(pad or self.eos_token_ids), None)
        check_chain(self.stages, self.params)
        resolved = [self._check(p) for p in self.params]
        self._plan = make_plan(self.stages, resolved, backend_ops(backend, torch.device("cpu")))
        self._unseeded = any(p.sampling_seed is None for p in self.params)
        self._has_stops = any(has_stops(p) for p in self.params)
        self._has_criteria = False
        self._prompt_lengths: int | Sequence[int] | Tensor | None = None
        self._prefixes: Prefixes | None = None

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Selected (or filtered) logits [B, V] for ids [B, L] and logits [B, V]; out of place.

        Raises `EmptyRowError` or `BadLogitsError` for rows that are not finished.
        """
        if not self.select:
            return self.process(input_ids, scores)
        tokens = self.sample(input_ids, scores)
        selected = torch.full_like(scores, -torch.inf)
        return selected.scatter_(1, tokens[:, None], 0.0)

    def process(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """The logits after every stage, [B, V] float32, whatever `select` says; raises as above."""
        prefixes = self._follow(input_ids, scores)
        prefixes.drawn = None
        logits, rows = scores.to(prefixes.batch.device), prefixes.batch.rows()
        out, status = prefixes.batch.plan.process(logits, rows)
        if bool(status.any()):
            _refuse(prefixes, logits, rows, status, None)
        if prefixes.any_over and self.eos_token_ids:
            over = torch.from_numpy(prefixes.over).to(out.device)
            out = out.masked_fill(over[:, None], -torch.inf)
            out[over, self.eos_token_ids[0]] = 0.0
        return out.to(scores.device)

    def sample(self, input_ids: Tensor, logits: Tensor) -> Tensor:
        """One token per row, [B] int64, without writing a [B, V] result; raises as above."""
        prefixes = self._follow(input_ids, logits)
        batch, device = prefixes.batch, logits.device
        if device != batch.device:
            logits = logits.to(batch.device)
        rows = batch.rows()
        tokens, status = batch.plan.draw(logits, rows)
        prefixes.drawn = tokens
        if bool(status.any()):
            _refuse(prefixes, logits, rows, status, tokens)
            tokens = tokens.clamp_min(0)
        if prefixes.any_over and self.eos_token_ids:
            over = torch.from_numpy(prefixes.over).to(batch.device)
            tokens = tokens.masked_fill(over, self.eos_token_ids[0])
        return tokens.to(device)

    def reset(self, prompt_lengths: int | Sequence[int] | Tensor | None = None) -> None:
        """Start a new generation at the next call.

        `prompt_lengths` (one number or one per row, padding not counted) says how many leading ids
        of that call are prompt; by default all are.
        """
        self._prefixes = None
        self._prompt_lengths = prompt_lengths

    def stopping_criteria(self) -> StoppingCriteriaList:
        """Criteria for `stop`, `stop_token_ids`, `stop_regex` and `max_new_tokens` of every row.

        Pass them as `stopping_criteria=` beside the pipeline: requests then end exactly at the
        token. Without them the pipeline forces eos one token later. (transformers fills the rest of
        a finished row with pads only if it knows an eos, and asks criteria once per drafted block.)
        """
        self._has_criteria = True
        return StoppingCriteriaList([_Criteria(self)])

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, pickled or deep, has the same arguments and has seen nothing yet."""
        eos = list(self.eos_token_ids) or None
        given = (self.params, self.tokenizer, eos, self.pad_token_id, self.stages, self.backend)
        return type(self), (*given, self.select)

    @property
    def plan(self) -> Plan:
        """What is fused with what, on which backend; print it."""
        return self._plan

    def _check(self, params: SamplingParams) -> ResolvedParams:
        for field, neutral in (("ignore_eos", False), ("logprobs", None)):
            if getattr(params, field) != neutral:
                raise ValueError(
                    f"`{field}`={getattr(params, field)!r} is not possible inside transformers' "
                    "loop, which decides itself; use lk.generate(model, ..., params=...)"
                )
        resolved = resolve(params, tokenizer=self.tokenizer, eos_token_ids=self.eos_token_ids)
        StopRules(resolved, self.tokenizer)
        if params.min_new_tokens and not self.eos_token_ids:
            raise ValueError(
                f"`min_new_tokens`={params.min_new_tokens} masks eos and needs to know it; pass "
                "tokenizer= or eos_token_id="
            )
        return resolved

    def _follow(self, input_ids: Tensor, scores: Tensor) -> Prefixes:
        """Bring history, states and stop rules to what `input_ids` say."""
        if scores.ndim != 2 or input_ids.ndim != 2 or input_ids.shape[0] != scores.shape[0]:
            raise ValueError(
                "`input_ids` [B, L] and `scores` [B, V] do not fit: got "
                f"{tuple(input_ids.shape)} and {tuple(scores.shape)}"
            )
        if scores.dtype not in _SCORES:
            raise ValueError(
                f"`scores` must be float32, bfloat16 or float16, got {scores.dtype}; call .float()"
            )
        ids, prefixes = on_cpu(input_ids), self._prefixes
        if prefixes is None or (
            self._unseeded and prefixes.prompt_width == ids.shape[1] < prefixes.longest
        ):
            return self._start(ids, scores)
        if not prefixes.follow(ids):
            return self._start(ids, scores)
        if scores.shape[1] != prefixes.batch.vocab_size:
            raise ValueError(
                f"`scores` are {scores.shape[1]} wide, but this generation began with "
                f"{prefixes.batch.vocab_size}; call pipe.reset() before using another model"
            )
        return prefixes

    def _start(self, ids: Ids, scores: Tensor) -> Prefixes:
        """Begin a generation; an error here leaves the one before as it was."""
        resolved = [
            resolve(
                p,
                tokenizer=self.tokenizer,
                eos_token_ids=self.eos_token_ids,
                vocab_size=scores.shape[1],
            )
            for p in self.params
        ]
        if self._has_stops and not self.eos_token_ids and not self._has_criteria:
            raise ValueError(
                "`stop`, `stop_token_ids`, `stop_regex` and `max_new_tokens` end a row by eos: "
                "pass tokenizer= or eos_token_id=, or stopping_criteria=pipe.stopping_criteria()"
            )
        padding = (ids == self.pad_token_id).cumprod(1).sum(1)  # None: no id equals it
        lengths = prompt_lengths(self._prompt_lengths, ids.shape[1] - padding)
        prompts = [
            torch.from_numpy(ids[r, padding[r] : padding[r] + lengths[r]].copy())
            for r in range(len(ids))
        ]
        if self.select:
            refuse_beams(prompts, scores)
        batch = Batch.start(
            self._expand(resolved, prompts),
            prompts,
            self.stages,
            vocab_size=scores.shape[1],
            device=scores.device,
            backend=self.backend,
        )
        self._prefixes = Prefixes(
            batch,
            ids,
            padding,
            eos_token_ids=self.eos_token_ids,
            pad_token_id=self.pad_token_id,
            tokenizer=self.tokenizer,
        )
        self._plan = batch.plan
        self._prompt_lengths = None
        return self._prefixes

    def _expand(
        self, resolved: list[ResolvedParams], prompts: list[Tensor]
    ) -> list[ResolvedParams]:
        """One entry per row; with `select=False` every row may stand for several beams."""
        size, wanted, beams = len(prompts), sum(p.n for p in resolved), 1
        if not self.select and len(resolved) > 1 and size % wanted == 0:
            beams = max(1, size // wanted)
        rows = [p for p in expand(resolved, size // beams) for _ in range(beams)]
        first = 0
        while first < size:
            n, run = rows[first].n, rows[first].n * beams
            if not all(torch.equal(prompts[first], prompts[r]) for r in range(first, first + run)):
                raise ValueError(
                    f"rows {first} to {first + run - 1} belong to one request with `n`={n}, but "
                    "have different prompts; num_return_sequences must equal `n`, and there must "
                    "be one SamplingParams per prompt"
                )
            first += run
        return rows


class _Criteria(StoppingCriteria):
    """Says which rows are over by their own rules."""

    def __init__(self, pipe: LogitsPipeline) -> None:
        self.pipe = pipe

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        prefixes, ids = self.pipe._prefixes, on_cpu(input_ids)
        if prefixes is None or len(ids) % max(1, len(prefixes.over)):
            raise ValueError(
                "pipe.stopping_criteria() follows the pipeline's own calls: pass "
                "logits_processor=[pipe] as well"
            )
        if len(ids) == len(prefixes.over) and prefixes.follow(ids):
            over = prefixes.over
        else:
            over = prefixes.over_in(ids)
        return torch.tensor(over, device=input_ids.device)


def _refuse(
    prefixes: Prefixes, logits: Tensor, rows: Rows, status: Tensor, tokens: Tensor | None
) -> None:
    """Raise for the rows whose status is not OK, unless they are ended."""
    ended = torch.from_numpy(prefixes.ended).to(status.device)
    failed = (status != OK) & ~ended
    if bool(failed.any()):
        prefixes.batch.plan.refuse(logits, rows, torch.where(failed, status, OK), tokens)
