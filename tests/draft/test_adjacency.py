"""`AdjacencyDraft`: the table by hand, from the rows that were reached only."""

from __future__ import annotations

import pytest
import torch
from helpers import start
from torch import Tensor

from logitkit import Batch, SamplingParams
from logitkit.draft.adjacency import AdjacencyDraft
from logitkit.draft.source import Draft

V = 12


def batch_of(*prompts: list[int]) -> Batch:
    return start(SamplingParams(temperature=0.0, sampling_seed=0), prompts, V)


def favouring(*rows: list[int], lead: float = 3.0) -> Tensor:
    """Logits [B, n, V] in which one token is `lead` ahead of the others."""
    logits = torch.zeros(len(rows), len(rows[0]), V)
    return logits.scatter(2, torch.tensor(rows)[..., None], lead)


def proposals(draft: Draft) -> list[list[int]]:
    rows = zip(draft.tokens.tolist(), draft.lengths.tolist(), strict=True)
    return [tokens[:length] for tokens, length in rows]


def test_a_chain_follows_the_top_successors() -> None:
    batch, source = batch_of([1]), AdjacencyDraft()
    source.start(batch)
    assert proposals(source.propose(batch, 4)) == [[]]
    # After 1 the target thinks of 2, after 2 of 3, after 3 of 1, whatever was really drawn.
    batch.commit(torch.tensor([[2, 3, 1]]))
    source.observe(batch, torch.tensor([3]), favouring([2, 3, 1]))
    assert proposals(source.propose(batch, 4)) == [[2, 3, 1, 2]]
    assert proposals(source.propose(batch, 20)) == [[2, 3, 1, 2, 3, 1, 2, 3]]  # max_tokens
    batch.commit(torch.tensor([7]))
    source.observe(batch, torch.tensor([1]), favouring([4]))
    assert proposals(source.propose(batch, 4)) == [[]]  # 7 was never met
    batch.commit(torch.tensor([1]))
    source.observe(batch, torch.tensor([1]), favouring([9]))
    assert proposals(source.propose(batch, 4)) == [[4]]  # after 1 the latest thought counts


def test_rows_behind_a_refused_token_teach_nothing() -> None:
    batch, source = batch_of([1], [5]), AdjacencyDraft()
    source.start(batch)
    batch.commit(torch.tensor([[2, 8, 8], [6, 7, 5]]), torch.tensor([1, 3]))
    source.observe(batch, torch.tensor([1, 3]), favouring([2, 9, 9], [6, 7, 5]))
    batch.commit(torch.tensor([[1, 0], [5, 6]]), torch.tensor([1, 2]))
    source.observe(batch, torch.tensor([1, 2]), favouring([3, 9], [7, 4]))
    # Row 0 knows 1 -> 2 and 2 -> 3. Row 1: 5 -> 4 replaced 5 -> 6, 6 -> 7, 7 -> 5.
    assert proposals(source.propose(batch, 3)) == [[2, 3], [7, 5, 4]]


def test_requests_do_not_share_a_table_and_a_row_that_is_over_learns_nothing() -> None:
    batch, source = batch_of([1], [1]), AdjacencyDraft()
    batch.commit(torch.tensor([[1], [0]]), torch.tensor([1, 0]))
    source.observe(batch, torch.tensor([1, 0]), favouring([2], [3]))
    assert proposals(source.propose(batch, 3)) == [[2], []]


def test_strength_is_the_lead_of_the_first_token_in_whole_nats() -> None:
    for lead, strength in ((0.4, 0), (2.7, 2), (50.0, 8)):
        batch, source = batch_of([1]), AdjacencyDraft()
        batch.commit(torch.tensor([1]))
        source.observe(batch, torch.tensor([1]), favouring([2], lead=lead).bfloat16())
        found = source.propose(batch, 3).strength
        assert found is not None
        assert found.tolist() == [strength]


def test_the_table_is_bounded_and_forgets_what_was_met_longest_ago() -> None:
    batch, source = batch_of([1]), AdjacencyDraft(max_entries=2)
    batch.commit(torch.tensor([[2, 1, 3]]))
    source.observe(batch, torch.tensor([3]), favouring([2, 1, 3]))  # 1 -> 2, 2 -> 1, then 1 -> 3
    batch.commit(torch.tensor([2]))
    source.observe(batch, torch.tensor([1]), favouring([5]))  # 3 -> 5 takes the place of 2 -> 1
    assert proposals(source.propose(batch, 1)) == [[]]
    batch.commit(torch.tensor([3]))
    assert proposals(source.propose(batch, 4)) == [[5]]


def test_a_source_used_again_remembers_nothing() -> None:
    batch, source = batch_of([1]), AdjacencyDraft()
    batch.commit(torch.tensor([1]))
    source.observe(batch, torch.tensor([1]), favouring([2]))
    assert proposals(source.propose(batch, 2)) == [[2]]
    again = batch_of([1])
    source.start(again)
    assert proposals(source.propose(again, 2)) == [[]]


def test_values_without_a_meaning_are_refused() -> None:
    with pytest.raises(ValueError, match="`max_tokens`=0"):
        AdjacencyDraft(max_tokens=0)
    with pytest.raises(ValueError, match="`max_entries`=-1"):
        AdjacencyDraft(max_entries=-1)
