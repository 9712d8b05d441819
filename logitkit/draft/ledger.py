"""`Ledger`: how many tokens to draft, so that drafting pays and never costs more than a little.

Pure, knows no model; above `draft.costs` and `draft.acceptance`. The unit is the time of one plain
step of the batch. A batch is done when its slowest request is, so what counts is by how much a step
shortens the longest way that is left; tokens of a request that is far ahead bring nothing.
Whatever the drafts do, the modelled time stays within 2 % of plain decoding and 0.3 steps: what was
gained may be spent again, beyond that a little credit comes with every token emitted, and probing
comes back by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from logitkit.draft.acceptance import Acceptance
from logitkit.draft.costs import CostTable
from logitkit.draft.source import Draft, DraftSource

ALLOWANCE = 0.3
SHARE = 0.02
# A draft must promise so much: refusing it takes time that v(n) does not count, and only plain
# steps tell what a plain step takes.
MARGIN = 1.05
# A gain of the past is no reason to waste it: so much of it is kept at most.
MOST_SAVINGS = 4.0


class Ledger:
    """What drafts cost and brought, per batch step; lengths are chosen by it.

    Before a step, `ask` says how many tokens to ask the source for and `choose` how many of them to
    verify; after it, `enter` takes in what came of it. `slack` [B] says by how many tokens each
    row is ahead of the one that has most to write (None: none is).
    """

    def __init__(self, cost: CostTable) -> None:
        self.cost = cost
        self.acceptance = Acceptance()
        self.balance = 0.0
        self.emitted = 0.0

    @property
    def budget(self) -> float:
        """What the next step may cost beyond a plain one, if nothing is accepted."""
        return self.balance + ALLOWANCE + SHARE * self.emitted

    def ask(self, source: DraftSource, k: int) -> int:
        """How many of at most `k` tokens to ask `source` for; 0: leave it alone in this step.

        A source that costs nothing is always asked, since its proposals are judged unverified too.
        """
        if source.cost == 0:
            return k
        price = self.cost.price(source.label, source.cost)
        return self._best(self.acceptance.expected(source.label, 0, k), price)

    def choose(
        self,
        draft: Draft,
        running: Sequence[bool] | None = None,
        slack: Sequence[int] | None = None,
        spent: float = 0,
    ) -> int:
        """The length with the most expected progress per cost, 0 where a plain step is as good.

        `spent`: what the making of the draft has cost already.
        """
        lengths, classes = draft.lengths.tolist(), strengths(draft)
        width = draft.tokens.shape[1]
        gain = [float(width)] * (width + 1)
        for b, length in enumerate(lengths):
            ahead = 0 if slack is None else slack[b]
            if ahead >= width or not (running is None or running[b]):
                continue
            expected = self.acceptance.expected(draft.labels[b], classes[b], length)
            for k in range(width + 1):
                gain[k] = min(gain[k], expected[min(k, length)] + ahead)
        return self._best(gain, 0.0, spent)

    def _best(self, expected: Sequence[float], price: float, spent: float = 0) -> int:
        best, length = MARGIN / (1.0 + spent), 0
        if 1.0 + expected[-1] <= best:  # no length promises enough even if it costs nothing
            return 0
        for k in range(1, len(expected)):
            extra = self.cost(k + 1) - 1.0 + price * k + spent
            if extra <= self.budget and (1.0 + expected[k]) / (1.0 + extra) > best:
                best, length = (1.0 + expected[k]) / (1.0 + extra), k
        return length

    def enter(
        self,
        draft: Draft | None,
        k: int,
        emitted: Sequence[Sequence[int]],
        *,
        slack: Sequence[int] | None = None,
        spent: float = 0.0,
        seconds: float | None = None,
    ) -> None:
        """One step is over.

        `draft`: as it was proposed, None where nobody was asked; `k`: how many tokens of it were
        verified (0: a plain step); `emitted`: the new tokens of every row, none for rows that were
        over before; `spent`: what making the draft cost; `seconds`: the time of the forward and the
        choice, None where it was not taken.
        """
        counts = [len(tokens) for tokens in emitted if tokens]
        if not counts:
            return
        ahead = [0] * len(emitted) if slack is None else slack
        progress = min(
            len(tokens) + more for tokens, more in zip(emitted, ahead, strict=True) if tokens
        )
        self.balance += progress - 1.0 - (self.cost(k + 1) - 1.0) - spent
        self.balance = min(self.balance, MOST_SAVINGS)
        self.emitted += progress
        self.acceptance.passed(sum(counts) / len(counts))
        if draft is not None:
            classes, lengths = strengths(draft), draft.lengths.tolist()
            for b, tokens in enumerate(draft.tokens.tolist()):
                self.acceptance.judge(draft.labels[b], classes[b], tokens[: lengths[b]], emitted[b])
        if seconds is not None:
            self.cost.measured(k + 1, seconds)


def strengths(draft: Draft) -> list[int]:
    """The class of every request's proposal."""
    strength: Tensor | None = draft.strength
    return [0] * len(draft.lengths) if strength is None else strength.tolist()
