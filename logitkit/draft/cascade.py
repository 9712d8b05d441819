"""`Cascade`: several draft sources, and in every step the best offer for each request.

A draft source, above the others. Chains of different sources are never put together.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from logitkit.batch import Batch
from logitkit.draft.acceptance import Acceptance
from logitkit.draft.costs import CostTable
from logitkit.draft.ledger import Ledger, strengths
from logitkit.draft.legal import checked
from logitkit.draft.source import Draft, DraftSource
from logitkit.draft.users import proposing
from logitkit.params.checks import kind


class Cascade(DraftSource):
    """Takes for each request the chain that promises most for what verifying it costs.

    All sources see all that is verified, and are judged by it whether they were taken or not. One
    that costs something is asked only when it promises more, its price subtracted, than the free
    ones did. Among equals the first one given is taken. `ledger`, which the strategy sets where it
    keeps one, knows the prices; `spent` is the modelled cost of the last `propose`. A cascade among
    the sources counts as the sources that it holds.
    """

    label = "cascade"

    def __init__(self, *sources: Any) -> None:
        if not sources:
            raise ValueError("`sources`: a cascade needs at least one")
        found: list[DraftSource] = []
        for given in sources:
            source = proposing(given)
            if source is None:
                raise ValueError(
                    f"`sources` holds {kind(given)}: give draft sources (for a model ModelDraft)"
                )
            # Only the outermost cascade knows the prices and tells what it spent.
            found += source.sources if isinstance(source, Cascade) else (source,)
        found.sort(key=lambda source: source.cost > 0)
        self.sources: tuple[DraftSource, ...] = tuple(found)
        self.ledger: Ledger | None = None
        self.spent = 0.0
        self._stored: CostTable | None = None
        self._acceptance = Acceptance()
        self._offers: list[Draft] = []

    def start(self, batch: Batch) -> None:
        """A new generation for every source; what was known of them is forgotten."""
        self._acceptance = Acceptance()
        self._offers = []
        self._stored = CostTable.stored(batch.device.type, True, len(batch))
        for source in self.sources:
            source.start(batch)

    def propose(self, batch: Batch, k: int) -> Draft:
        """The best chain for each request, of up to `k` tokens; `logits` is None."""
        if self._stored is None:
            self.start(batch)
        self._offers, self.spent = [], 0.0
        best = [0.0] * len(batch)
        taken = [0] * len(batch)
        for source in self.sources:
            if source.cost > 0:
                offer = self._bought(source, batch, k, sum(best) / len(best))
            else:
                offer = checked(source.propose(batch, k), len(batch), batch.device)
            if offer is None:
                continue
            for slot, value in enumerate(self._values(offer)):
                if value > best[slot]:
                    best[slot], taken[slot] = value, len(self._offers)
            self._offers.append(offer)
        return _merged(self._offers, taken, batch)

    def observe(self, batch: Batch, num_tokens: Tensor, logits: Tensor) -> None:
        """Judge every offer of this step, and let every source look."""
        counts = num_tokens.tolist()
        n = max(counts)
        ahead = torch.arange(n, device=batch.device)
        place = (batch.history.head - num_tokens)[:, None] + ahead
        last = batch.history.tokens.shape[1] - 1
        emitted = batch.history.tokens.gather(1, place.clamp_max(last)).tolist()
        for offer in self._offers:
            lengths, classes = offer.lengths.tolist(), strengths(offer)
            for slot, tokens in enumerate(offer.tokens.tolist()):
                self._acceptance.judge(
                    offer.labels[slot], classes[slot], tokens[: lengths[slot]],
                    emitted[slot][: counts[slot]],
                )  # fmt: skip
        self._offers = []
        self._acceptance.passed(sum(counts) / max(1, sum(count > 0 for count in counts)))
        for source in self.sources:
            source.observe(batch, num_tokens, logits)

    @property
    def _costs(self) -> CostTable:
        costs = self._stored if self.ledger is None else self.ledger.cost
        assert costs is not None
        return costs

    def _values(self, offer: Draft) -> list[float]:
        """What each request's chain promises: accepted tokens less the cost of verifying them."""
        classes, lengths = strengths(offer), offer.lengths.tolist()
        values = []
        for slot, length in enumerate(lengths):
            expected = self._acceptance.expected(offer.labels[slot], classes[slot], length)
            gains = [gain - self._costs(n) + 1.0 for n, gain in enumerate(expected, 1)]
            values.append(max(gains[1:], default=0.0))
        return values

    def _bought(self, source: DraftSource, batch: Batch, k: int, least: float) -> Draft | None:
        """The offer of a source that costs something, if it promises more than `least`."""
        price = self._costs.price(source.label, source.cost)
        budget = float("inf") if self.ledger is None else self.ledger.budget
        expected = self._acceptance.expected(source.label, 0, k)
        best, length = least, 0
        for n in range(1, k + 1):
            extra = self._costs(n + 1) - 1.0 + n * price
            if extra <= budget and expected[n] - extra > best:
                best, length = expected[n] - extra, n
        if not length:
            return None
        begin = perf_counter()
        offer = checked(source.propose(batch, length), len(batch), batch.device)
        width = offer.tokens.shape[1]
        self.spent += width * price
        if self.ledger is not None and width:
            self.ledger.cost.drafted(source.label, width, perf_counter() - begin)
        return offer


def _merged(offers: list[Draft], taken: list[int], batch: Batch) -> Draft:
    """Row by row the offer of the number in `taken`."""
    size, device = len(taken), batch.device
    if not offers:
        return Draft(
            torch.zeros(size, 0, dtype=torch.int64, device=device),
            torch.zeros(size, dtype=torch.int64, device=device),
        )
    if len(offers) == 1 or len(set(taken)) == 1:
        return offers[taken[0]]
    width = max(offer.tokens.shape[1] for offer in offers)
    tokens = torch.zeros(size, width, dtype=torch.int64, device=device)
    lengths = torch.zeros(size, dtype=torch.int64, device=device)
    for slot, number in enumerate(taken):
        offer = offers[number]
        tokens[slot, : offer.tokens.shape[1]] = offer.tokens[slot]
        lengths[slot] = offer.lengths[slot]
    return Draft(
        tokens,
        lengths,
        label=tuple(offers[number].labels[slot] for slot, number in enumerate(taken)),
        strength=torch.tensor(
            [strengths(offers[number])[slot] for slot, number in enumerate(taken)]
        ),
    )
