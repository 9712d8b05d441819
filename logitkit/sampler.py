"""Choosing a token, and the log-probabilities of what was chosen.

Beside `plan`, below `strategy`. When nobody wants to see the logits in between, a choice is one
call of the plan; otherwise the plan is cut where its filters begin, and each part runs once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from logitkit.ops import OK
from logitkit.params import ResolvedParams
from logitkit.plan import Plan, make_plan
from logitkit.rows import Rows


class Choice(NamedTuple):
    """One token per row, and the logits on the way to it if they are kept.

    `tokens` [R] int64, -1 where `status` [R] is not OK. `processed` [R, V] float32 is after edits,
    masks and temperature, `scores` [R, V] float32 after everything; temperature 0 counts as 1 in
    both, and its rows are not filtered. Where no logits are kept, `logprobs` [R] float32 may be
    those of the tokens after everything, among `num_survivors` [R] int64.
    """

    tokens: Tensor
    status: Tensor
    processed: Tensor | None = None
    scores: Tensor | None = None
    logprobs: Tensor | None = None
    num_survivors: Tensor | None = None


class Sampler:
    """Chooses tokens by a batch's plan; `keeps_logits`: the choice shows what it was made from."""

    def __init__(
        self, plan: Plan, params: Sequence[ResolvedParams], *, keeps_logits: bool = False
    ) -> None:
        self.plan = plan
        self.keeps_logits = keeps_logits
        self._shows_details = any(
            p.logprobs is not None and p.logprob_mode == "filtered" for p in params
        )
        stages = plan.stages
        first = next((i for i, stage in enumerate(stages) if stage.is_filter), len(stages))
        bare = [stage for stage in stages[first:] if not stage.is_filter]
        self._before_filters = make_plan(stages[:first], params, plan.ops)
        self._from_filters = make_plan(stages[first:], params, plan.ops)
        self._without_filters = make_plan(bare, params, plan.ops)

    def choose(self, logits: Tensor, rows: Rows) -> Choice:
        """One token for each line of `logits` [R, V]; raises nothing, the status tells."""
        if not self.keeps_logits:
            tokens, status, *details = self.plan.draw(logits, rows, details=self._shows_details)
            return Choice(tokens, status, None, None, *details)
        edited, before = self._before_filters.run(logits, rows)
        processed, status = edited, before
        if self._without_filters.stages:
            processed, _ = self._without_filters.run(edited, rows)
        scores = processed
        if self._from_filters.stages:
            scores, behind = self._from_filters.run(edited, rows)
            status = torch.where(before == OK, behind, before)
        tokens, drawn = self._draw(scores, rows)
        status = torch.where(status == OK, drawn, status)
        return Choice(torch.where(status == OK, tokens, -1), status, processed, scores)

    def _draw(self, scores: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """What the plan draws from logits that are through all its stages."""
        arguments = {"greedy": rows.columns["greedy"]} if "greedy" in rows.columns else {}
        history = rows.history
        tokens, status = self.plan.ops.sample_tokens(
            scores, rows.slot, rows.position, history.tokens, history.prompt_length, rows.seed,
            **arguments,
        )  # fmt: skip
        return tokens, status


def token_logprobs(logits: Tensor, tokens: Tensor, num_top: int) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities under `logits` [R, V]: of `tokens` [R], and of the best tokens of each row.

    Returns [R] and [R, num_top] float32 and the best tokens' ids [R, num_top], best first and the
    lowest id first among equals. Where a row has fewer tokens left: NaN, and the id -1.
    """
    exact = logits.double()
    total = exact.logsumexp(-1, keepdim=True)
    chosen = exact.gather(-1, tokens[:, None]) - total
    top = exact.new_full((len(tokens), num_top), torch.nan)
    ids = tokens.new_full((len(tokens), num_top), -1)
    if num_top:
        k = min(num_top, exact.shape[-1])
        least = exact.topk(k).values[:, -1]
        for r in range(len(tokens)):
            # topk leaves open which of several equals it takes: ask for all and sort them.
            (found,) = ((exact[r] >= least[r]) & (exact[r] > -torch.inf)).nonzero(as_tuple=True)
            values, order = exact[r, found].sort(descending=True, stable=True)
            size = min(k, len(found))
            top[r, :size] = values[:size] - total[r]
            ids[r, :size] = found[order[:size]]
    return chosen.squeeze(-1).float(), top.float(), ids
