"""`Cascade`: the better offer is taken for each request, and every source is judged."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import start
from torch import Tensor

from logitkit import Batch, SamplingParams
from logitkit.draft.cascade import Cascade
from logitkit.draft.costs import CostTable
from logitkit.draft.ledger import Ledger
from logitkit.draft.source import Draft, DraftSource

V = 32


class Scripted(DraftSource):
    """Proposes the same chains every time."""

    def __init__(self, label: str, *chains: list[int], cost: float = 0.0) -> None:
        self.label, self.chains, self.cost = label, chains, cost
        self.calls: list[Any] = []

    def start(self, batch: Batch) -> None:
        self.calls.append("start")

    def propose(self, batch: Batch, k: int) -> Draft:
        self.calls.append(k)
        width = max(map(len, self.chains))
        tokens = [chain + [0] * (width - len(chain)) for chain in self.chains]
        lengths = [len(chain) for chain in self.chains]
        return Draft(
            torch.tensor(tokens, dtype=torch.int64).view(len(tokens), width),
            torch.tensor(lengths),
            label=self.label,
        ).cut(k)

    def observe(self, batch: Batch, num_tokens: Tensor, logits: Tensor) -> None:
        self.calls.append("observe")


def batch_of(size: int) -> Batch:
    return start(SamplingParams(temperature=0.0, sampling_seed=0), [[1]] * size, V)


def emit(cascade: Cascade, batch: Batch, tokens: list[list[int]], counts: list[int]) -> None:
    batch.commit(torch.tensor(tokens), torch.tensor(counts))
    cascade.observe(batch, torch.tensor(counts), torch.zeros(len(batch), len(tokens[0]), V))


def test_the_chain_with_the_most_expected_tokens_is_taken_for_each_request() -> None:
    batch = batch_of(3)
    long, short = Scripted("long", [5, 6, 7], [], [5, 5, 5]), Scripted("short", [8], [8, 9], [8])
    cascade = Cascade(long, short)
    cascade.start(batch)
    draft = cascade.propose(batch, 8)
    assert draft.lengths.tolist() == [3, 2, 3]
    assert draft.tokens.tolist() == [[5, 6, 7], [8, 9, 0], [5, 5, 5]]
    assert draft.labels == ("long", "short", "long")


def test_among_equal_offers_the_source_given_first_is_taken() -> None:
    batch = batch_of(1)
    cascade = Cascade(Scripted("a", [5, 6]), Scripted("b", [7, 8]))
    cascade.start(batch)
    assert cascade.propose(batch, 4).label == "a"


def test_a_source_is_judged_by_what_it_offered_even_if_it_was_not_taken() -> None:
    batch = batch_of(1)
    long, short = Scripted("long", [5, 6, 7]), Scripted("short", [8])
    cascade = Cascade(long, short)
    cascade.start(batch)
    for _ in range(4):
        assert cascade.propose(batch, 8).label == "long"
        emit(cascade, batch, [[8]], [1])
        if cascade.propose(batch, 8).label == "short":
            break
    else:
        raise AssertionError("long is always wrong and short always right")
    assert cascade.propose(batch, 8).tokens.tolist() == [[8]]


def test_every_source_starts_and_observes() -> None:
    batch = batch_of(1)
    sources = [Scripted("a", [5]), Scripted("b", [6])]
    cascade = Cascade(*sources)
    cascade.start(batch)
    cascade.propose(batch, 3)
    emit(cascade, batch, [[5, 5]], [2])
    cascade.start(batch)
    assert all(source.calls == ["start", 3, "observe", "start"] for source in sources)


def test_what_was_known_of_the_sources_is_forgotten_at_the_next_start() -> None:
    batch = batch_of(1)
    cascade = Cascade(Scripted("long", [5, 6, 7]), Scripted("short", [8]))
    for _ in range(2):
        cascade.start(batch)
        assert cascade.propose(batch, 8).label == "long"
        for _ in range(9):
            emit(cascade, batch, [[8]], [1])
            last = cascade.propose(batch, 8)
        assert last.label == "short"


def test_a_source_that_costs_is_asked_only_when_it_promises_more() -> None:
    batch = batch_of(1)
    model = Scripted("helper", [1, 2, 3, 4], cost=0.1)
    free = Scripted("grammar", [7, 7, 7, 7])  # known to be right nearly always
    cascade = Cascade(model, free)
    cascade.start(batch)
    assert cascade.propose(batch, 4).label == "grammar"
    assert model.calls == ["start"]
    assert cascade.spent == 0.0
    free.chains = ([],)
    assert cascade.propose(batch, 4).label == "helper"
    assert model.calls[1:] == [3]  # a fourth token would be right in 1 of 16 cases, and costs .1
    assert cascade.spent == pytest.approx(0.3)


def test_a_source_that_costs_is_not_asked_beyond_the_ledgers_budget() -> None:
    batch = batch_of(1)
    model = Scripted("helper", [1, 2, 3, 4], cost=0.1)
    cascade = Cascade(model)
    cascade.ledger = Ledger(CostTable.given({1: 1.0, 9: 1.08}))  # .01 a token
    cascade.start(batch)
    cascade.propose(batch, 4)
    assert model.calls[1:] == [2]  # 2 * (.1 + .01) fit into .3
    cascade.ledger.balance = -0.25
    assert cascade.propose(batch, 4).lengths.tolist() == [0]
    assert cascade.ledger.cost.values()["helper"] == 0.1


def test_a_cascade_needs_a_source() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Cascade()
    with pytest.raises(ValueError, match="`sources` holds a str"):
        Cascade("ngram")
