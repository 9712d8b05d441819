"""`Speculative`: the loop in which a draft proposes and the target verifies.

Beside `strategy`. One step is a straight line: propose, one forward of the target over the newest
token and the draft, the plan over every row of it, keep what the rule keeps, forget the rest.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from logitkit import verify as rules
from logitkit.draft.cascade import Cascade
from logitkit.draft.costs import CostTable
from logitkit.draft.ledger import Ledger
from logitkit.draft.legal import check_drawn, check_logits, checked, legal_draft
from logitkit.draft.model import ModelDraft
from logitkit.draft.source import Draft, DraftSource
from logitkit.draft.sources import as_source
from logitkit.generation.call import Generation
from logitkit.generation.progress import Progress
from logitkit.generation.settings import Settings
from logitkit.generation.speculation import ForwardMode, Tally
from logitkit.generation.strategy import GenerationStrategy, take
from logitkit.ops import OK
from logitkit.params import SamplingParams
from logitkit.params.checks import shown
from logitkit.rows import Rows
from logitkit.sampler import Choice
from logitkit.stage import Stage
from logitkit.stages import DEFAULT_STAGES

MAX_DRAFT_TOKENS = 64
AUTO_DRAFT_TOKENS = 16  # beyond, a forward grows faster than what good drafts bring
# transformers' processors that count their calls or run a model of their own.
COUNTS_CALLS = frozenset(
    {"UnbatchedClassifierFreeGuidanceLogitsProcessor", "SynthIDTextWatermarkLogitsProcessor"}
)


class Speculative(GenerationStrategy):
    """Speculative decoding: `draft` proposes tokens, the target verifies them by its own plan.

    `draft`: a source, a transformers model with the same tokenizer, or "ngram", "adjacency",
    "grammar", "auto". `num_draft_tokens`: at most so many a step (1..64), or "auto", which spends
    on drafts only what they bring back. `cost`: the cost table of an earlier run, so that "auto"
    does not depend on this run's clock.

    `verify`: "exact" emits what plain decoding emits, token for token (in float32; a forward of
    several tokens rounds otherwise than one of a single token in bfloat16). "ratio" and "block"
    keep the distribution only and need an integer `num_draft_tokens`.
    """

    def __init__(
        self,
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        tokenizer: Any = None,
        *,
        draft: Any = "auto",
        num_draft_tokens: int | str = "auto",
        verify: str = "exact",
        cost: Any = None,
        stages: Sequence[Stage] = DEFAULT_STAGES,
        backend: str = "auto",
        streamer: Any = None,
    ) -> None:
        super().__init__(params, tokenizer, stages=stages, backend=backend, streamer=streamer)
        check_speculation(num_draft_tokens, verify, cost)
        if draft is None:
            raise ValueError("`draft` is None: give a draft, or use lk.Sampling")
        as_source(draft)  # raises where it is none
        self.draft = draft
        self.num_draft_tokens = num_draft_tokens
        self.verify = verify
        self.cost = cost
        self.keeps_logits = verify != "exact"

    @torch.no_grad()
    def generate(self, model: Any, input_ids: Tensor, settings: Settings) -> Any:
        """As `GenerationStrategy.generate`; processors that count their calls are refused."""
        check_processors(settings.processors)
        return super().generate(model, input_ids, settings)

    def run(self, generation: Generation) -> None:
        lm, batch, progress = generation.lm, generation.batch, generation.progress
        tally = Tally(len(batch))
        source, ledger = as_source(self.draft), None
        with tally.time("target"):
            logits = lm.prefill().to(batch.device)
        lm.check_croppable()
        if self.num_draft_tokens == "auto":
            ledger = Ledger(self._cost_table(logits, len(batch)))
        if isinstance(source, Cascade):
            source.ledger = ledger
        tally.modes.append(ForwardMode.EXTEND)
        with tally.time("draft"):
            source.start(batch)
        with tally.time("pipeline"):
            rows = batch.rows()
            taken = take(generation, logits, rows, generation.sampler.choose(logits, rows))
        while not progress.done:
            with tally.time("draft"):
                source.observe(batch, taken, logits.view(len(batch), -1, logits.shape[-1]))
                slack = _slack(progress, generation.limits)
                offer = self._propose(generation, source, ledger, slack, tally)
            before, begin = list(progress.lengths), perf_counter()
            running = list(progress.running)
            with tally.time("target"):
                logits = lm(_fed(progress.tokens, offer.draft)).to(batch.device).flatten(0, 1)
            with tally.time("pipeline"):
                taken, tokens = self._verify(generation, logits, offer.draft, tally)
                # In a table of columns, rows that are over must not grow on beside the others.
                is_tight = lm.columns_left is not None and len(running) < len(batch)
                if offer.draft is not None or is_tight:
                    kept = torch.zeros_like(taken)
                    kept[running] = taken[running].clamp_min(1)
                    lm.keep(kept)
            if ledger is not None:
                emitted = _emitted(tokens, before, progress.lengths)
                ledger.enter(
                    offer.proposed, 0 if offer.draft is None else offer.draft.tokens.shape[1],
                    emitted, slack=slack, spent=offer.spent, seconds=perf_counter() - begin,
                )  # fmt: skip
        generation.speculation = tally.result(None if ledger is None else ledger.cost.values())

    def _cost_table(self, logits: Tensor, size: int) -> CostTable:
        if self.cost is not None:
            return CostTable.given(self.cost)
        return CostTable.stored(logits.device.type, logits.element_size() <= 2, size)

    def _propose(
        self,
        generation: Generation,
        source: DraftSource,
        ledger: Ledger | None,
        slack: Sequence[int],
        tally: Tally,
    ) -> Offer:
        """Ask the source for a draft of the rows that run, as long as the ledger allows."""
        progress, batch = generation.progress, generation.batch
        runs = [reason is None for reason in progress.finish_reasons]
        room = [
            limit - length - 1 if running else 0
            for limit, length, running in zip(
                generation.limits, progress.lengths, runs, strict=True
            )
        ]
        most = AUTO_DRAFT_TOKENS if ledger is not None else int(self.num_draft_tokens)
        lm = generation.lm
        for block in (lm.longest_block, lm.columns_left):
            if block is not None:
                most = min(most, block - 1)  # the newest token is fed too
        k = min(max(room), most)
        if ledger is not None and k:
            k = ledger.ask(source, k)
        if k < 1:
            return Offer()
        tally.modes.append(ForwardMode.DRAFT_EXTEND)
        begin = perf_counter()
        if self.verify != "exact" and isinstance(source, ModelDraft):
            draft = source.propose(batch, k, coupled=False, round=tally.num_steps)
        else:
            draft = source.propose(batch, k)
        draft = checked(draft, len(batch), batch.device)
        if self.verify != "exact":
            check_logits(draft, batch.vocab_size)
        elif draft.logits is not None:  # equality asks nothing of them
            draft = dataclasses.replace(draft, logits=None)
        legal = legal_draft(draft, [min(k, n) for n in room], generation.lm.num_tokens)
        if legal is not None:
            check_drawn(legal)
        if ledger is None:
            return Offer(legal, legal)
        width = draft.tokens.shape[1]
        spent = source.spent if isinstance(source, Cascade) else 0.0
        if source.cost > 0 and width:
            # By the price that `ask` knew: what is measured now counts from the next step on.
            spent = width * ledger.cost.price(source.label, source.cost)
            ledger.cost.drafted(source.label, width, perf_counter() - begin)
        if legal is None:
            return Offer(spent=spent)
        length = ledger.choose(legal, runs, slack, spent)
        return Offer(legal.cut(length) if length else None, legal, spent)

    def _verify(
        self, generation: Generation, logits: Tensor, draft: Draft | None, tally: Tally
    ) -> tuple[Tensor, Tensor]:
        """Choose, keep and commit one step's tokens.

        Returns how many each row took [B], and the tokens [B, n].
        """
        batch, progress = generation.batch, generation.progress
        running = list(progress.running)
        rows = batch.rows(draft)
        choice = generation.sampler.choose(logits, rows)
        tally.modes.append(ForwardMode.DECODE if draft is None else ForwardMode.TARGET_VERIFY)
        tally.step(running)
        if self.verify != "exact":
            choice, num_tokens = self._verify_by_ratio(choice, rows, draft, tally.num_steps)
        elif draft is None:
            num_tokens = torch.ones_like(batch.history.head)
        else:
            tokens = choice.tokens.view(len(batch), -1)
            num_tokens = rules.exact(tokens, draft.tokens, draft.lengths)
        taken = take(generation, logits, rows, choice, num_tokens.tolist())
        if draft is not None:
            over = {slot for slot in running if progress.finish_reasons[slot] is not None}
            _count(tally, draft, running, over, num_tokens, taken)
        return taken, choice.tokens.view(len(batch), -1)

    def _verify_by_ratio(
        self, choice: Choice, rows: Rows, draft: Draft | None, round: int
    ) -> tuple[Choice, Tensor]:
        """`verify` = "ratio" or "block": the tokens [B * n] and how many of each row count, [B]."""
        assert choice.scores is not None
        size = len(rows.seed)
        p = choice.scores.double().softmax(-1)
        greedy = rows.columns.get("greedy", torch.zeros_like(rows.seed, dtype=torch.bool))
        only = torch.zeros_like(p).scatter_(1, choice.tokens.clamp_min(0)[:, None], 1.0)
        p = torch.where(greedy[rows.slot][:, None], only, p)
        good = choice.status == OK
        p = torch.where(good[:, None], p, 0.0).view(size, -1, p.shape[-1])
        proposed, lengths, q = _as_drawn(draft, p)
        tokens, num_tokens = rules.judge(
            self.verify, p, q, proposed, lengths, rows.seed, rows.position.view(size, -1), round
        )
        reached = good.view(size, -1).gather(1, num_tokens[:, None] - 1)
        last = tokens.gather(1, num_tokens[:, None] - 1).where(reached, -1)
        tokens = tokens.scatter(1, num_tokens[:, None] - 1, last)
        return choice._replace(tokens=tokens.flatten()), num_tokens


class Offer(NamedTuple):
    """What a step drafts: the `draft` to verify, what was `proposed`, and what making it cost."""

    draft: Draft | None = None
    proposed: Draft | None = None
    spent: float = 0.0


def check_speculation(num_draft_tokens: Any, verify: Any, cost: Any = None) -> None:
    """Refuse a length, a rule or a cost table that there is not."""
    if verify not in ("exact", *rules.RULES):
        raise ValueError(f"`verify` is {shown(verify)}: give 'exact', 'ratio' or 'block'")
    if num_draft_tokens == "auto" and isinstance(num_draft_tokens, str):
        if verify != "exact":
            raise ValueError(
                f"`verify`={verify!r} needs an integer `num_draft_tokens`: a length chosen from "
                "what was accepted would change the distribution"
            )
        if cost is not None:
            CostTable.given(cost)
        return
    is_number = isinstance(num_draft_tokens, int) and not isinstance(num_draft_tokens, bool)
    if not is_number or not 1 <= num_draft_tokens <= MAX_DRAFT_TOKENS:
        raise ValueError(
            f"`num_draft_tokens` is {shown(num_draft_tokens)}: give 'auto' or an integer from 1 "
            f"to {MAX_DRAFT_TOKENS}"
        )
    if cost is not None:
        raise ValueError(
            f"`cost` says what 'auto' may spend, but `num_draft_tokens`={num_draft_tokens}: "
            "leave one of them out"
        )


def check_processors(processors: Sequence[Any]) -> None:
    """Refuse processors whose answer depends on the calls before: a step asks about k + 1 rows."""
    for processor in processors:
        for name in (kind.__name__ for kind in type(processor).__mro__):
            if name in COUNTS_CALLS:
                raise ValueError(
                    f"`logits_processor` holds {type(processor).__name__}, which keeps a state "
                    "from call to call and cannot look at drafts: generate without `draft`"
                )


def _slack(progress: Progress, limits: Sequence[int]) -> list[int]:
    """By how many tokens each row is ahead of the running row that may write most."""
    left = [limit - length for limit, length in zip(limits, progress.lengths, strict=True)]
    most = max(left[slot] for slot in progress.running)
    return [max(0, most - n) for n in left]


def _fed(newest: Tensor, draft: Draft | None) -> Tensor:
    """What the target reads: the newest token of each row [B], and the draft."""
    return newest[:, None] if draft is None else torch.cat([newest[:, None], draft.tokens], 1)


def _emitted(tokens: Tensor, before: Sequence[int], after: Sequence[int]) -> list[list[int]]:
    """The tokens that each row took in a step, none for rows that were over."""
    return [
        drawn[: now - then] for drawn, then, now in zip(tokens.tolist(), before, after, strict=True)
    ]


def _as_drawn(draft: Draft | None, p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The draft's tokens, lengths and q; a token that was not drawn is certain."""
    if draft is None:
        return (
            p.new_zeros(len(p), 0, dtype=torch.int64),
            p.new_zeros(len(p), dtype=torch.int64),
            p[:, :0],
        )
    if draft.logits is not None:
        return draft.tokens, draft.lengths, draft.logits.double().softmax(-1)
    q = torch.zeros_like(p[:, :-1]).scatter_(2, draft.tokens[..., None], 1.0)
    return draft.tokens, draft.lengths, q


def _count(
    tally: Tally,
    draft: Draft,
    slots: Sequence[int],
    over: set[int],
    num_tokens: Tensor,
    taken: Tensor,
) -> None:
    """Enter a step's drafts; what lies behind the end of a row that is `over` was not drafted."""
    lengths, kept, took = draft.lengths.tolist(), num_tokens.tolist(), taken.tolist()
    for slot in slots:
        drafted = min(lengths[slot], took[slot]) if slot in over else lengths[slot]
        if drafted:
            accepted = min(kept[slot] - 1, took[slot])
            tally.drafted(slot, draft.labels[slot], drafted, accepted)
