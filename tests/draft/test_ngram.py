"""n-grams: hand-computed proposals, and the index against a search by brute force."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import start
from hypothesis import given, settings
from hypothesis import strategies as st

from logitkit import Batch, SamplingParams
from logitkit.draft.ngram import NgramDraft, NgramMemory
from logitkit.draft.ngram_index import SEPARATOR, NgramIndex
from logitkit.draft.source import Draft

GREEDY = SamplingParams(temperature=0.0, sampling_seed=0)


def batch_of(*prompts: list[int], vocab_size: int = 64) -> Batch:
    return start(GREEDY, prompts, vocab_size)


def proposals(draft: Draft) -> list[list[int]]:
    rows = zip(draft.tokens.tolist(), draft.lengths.tolist(), strict=True)
    return [tokens[:length] for tokens, length in rows]


def proposed(prompt: list[int], k: int = 16, **options: int) -> list[int]:
    return proposals(NgramDraft(**options).propose(batch_of(prompt), k))[0]


def search(text: list[int], query: list[int], max_order: int, last: int) -> tuple[int, int]:
    """The latest place before `last` that the longest suffix of `query` stands before."""
    for order in range(min(max_order, len(query)), 0, -1):
        suffix = query[len(query) - order :]
        if SEPARATOR in suffix:
            continue
        for place in range(last - 1, order - 1, -1):
            if text[place - order : place] == suffix and text[place] != SEPARATOR:
                return place, order
    return 0, 0


def test_the_longest_match_wins_over_a_later_shorter_one() -> None:
    # 7 8 stands before 1 2 3 4, 8 alone stood last before 5.
    assert proposed([7, 8, 1, 2, 3, 4, 8, 5, 6, 7, 8]) == [1, 2, 3, 4]


def test_the_latest_of_equally_long_matches_wins() -> None:
    assert proposed([7, 1, 1, 7, 2, 2, 7]) == [2, 2]


def test_a_match_of_one_token_proposes_two() -> None:
    assert proposed([7, 1, 2, 3, 4, 7]) == [1, 2]


def test_a_proposal_is_twice_as_long_as_its_match_and_at_most_max_tokens_or_k() -> None:
    head = list(range(10, 40))
    text = [*head, *head[:5]]
    assert proposed(text) == head[5:15]
    assert proposed(text, k=4) == head[5:9]
    assert proposed(text, max_tokens=7) == head[5:12]
    assert proposed([*head, *head[:12]]) == head[12:28]
    assert proposed(text, max_order=2) == head[5:9]


def test_a_match_at_the_end_goes_on_with_its_own_period() -> None:
    assert proposed([9, 1, 2, 3, 1, 2, 3]) == [1, 2, 3, 1, 2, 3]
    assert proposed([5, 5, 5]) == [5, 5, 5, 5]


def test_without_a_match_nothing_is_proposed() -> None:
    draft = NgramDraft().propose(batch_of([1, 2, 3]), 4)
    assert draft.tokens.shape == (1, 0)
    assert draft.lengths.tolist() == [0]
    assert draft.strength is not None
    assert draft.strength.tolist() == [0]


def test_requests_look_in_their_own_text_only() -> None:
    draft = NgramDraft().propose(batch_of([1, 2, 3, 1], [4, 5, 9, 8, 4, 5], [1, 6], [2, 7]), 16)
    assert proposals(draft) == [[2, 3], [9, 8, 4, 5], [], []]
    assert draft.strength is not None
    assert draft.strength.tolist() == [1, 2, 0, 0]
    assert draft.labels == ("ngram",) * 4


def test_committed_tokens_are_found_and_refused_drafts_are_not() -> None:
    batch = batch_of([1, 2], [3])
    source = NgramDraft()
    source.start(batch)
    source.propose(batch, 4)
    batch.rows(Draft(torch.tensor([[8, 9], [8, 9]]), torch.tensor([2, 2])))  # written past the head
    batch.commit(torch.tensor([[5, 1, 2], [3, 4, 0]]), torch.tensor([3, 1]))
    assert proposals(source.propose(batch, 16)) == [[5, 1, 2, 5], [3, 3]]
    batch.commit(torch.tensor([8, 8]), torch.tensor([0, 1]))
    assert proposals(source.propose(batch, 16)) == [[5, 1, 2, 5], []]


def test_a_token_that_the_target_lacks_ends_the_proposal() -> None:
    batch = start(GREEDY, [[7, 8, 3, 90, 4, 7, 8]], 64)
    assert proposals(NgramDraft().propose(batch, 16)) == [[3]]


def test_a_source_used_again_remembers_nothing() -> None:
    source = NgramDraft()
    first, second = batch_of([1, 2, 3, 4, 5]), batch_of([3])
    source.start(first)
    source.propose(first, 4)
    source.start(second)
    assert proposals(source.propose(second, 4)) == [[]]


def test_a_memory_offers_what_an_earlier_generation_wrote() -> None:
    memory = NgramMemory(max_tokens=100)
    source = NgramDraft(memory=memory)
    first = batch_of([1, 2, 3, 4], [9])
    source.start(first)
    source.propose(first, 4)
    first.commit(torch.tensor([[5, 6], [8, 7]]))
    source.propose(first, 4)
    second = batch_of([1, 2, 3], [9, 8], [2, 50, 2])
    again = NgramDraft(memory=memory)
    again.start(second)
    draft = again.propose(second, 16)
    # The match of one token in the third row's own text goes before one as long in the memory.
    assert proposals(draft) == [[4, 5, 6], [7], [50, 2]]
    assert draft.strength is not None
    assert draft.strength.tolist() == [3, 2, 1]


def test_a_memory_never_holds_more_than_it_may() -> None:
    memory = NgramMemory(max_tokens=10)
    for i in range(8):
        memory.follow([index_of([20 + i, 21 + i, 22 + i])])
        assert len(memory) <= 10
    memory.follow([index_of(list(range(40)))])
    memory.follow([])
    assert len(memory) == 10
    assert memory.index.tokens[:10].tolist() == [*range(31, 40), SEPARATOR]


def index_of(text: list[int], max_order: int = 8) -> NgramIndex:
    index = NgramIndex(max_order)
    index.extend(np.array(text, np.int64))
    return index


@settings(max_examples=150, deadline=None)
@given(
    parts=st.lists(st.lists(st.integers(SEPARATOR, 3), max_size=40), max_size=6),
    query=st.lists(st.integers(0, 3), max_size=10),
    max_order=st.integers(1, 8),
)
def test_the_index_finds_what_a_search_finds(
    parts: list[list[int]], query: list[int], max_order: int
) -> None:
    index, text = NgramIndex(max_order), []
    for part in parts:
        index.extend(np.array(part, np.int64))
        text += part
        end = len(text)
        assert index.find(index.tokens, end) == search(text, text, max_order, end)
    found = index.find(np.array(query, np.int64), len(query))
    assert found == search(text, query, max_order, len(text))


@settings(max_examples=50, deadline=None)
@given(text=st.lists(st.integers(0, 2), min_size=1, max_size=30), count=st.integers(1, 40))
def test_a_copy_is_what_going_on_token_by_token_gives(text: list[int], count: int) -> None:
    index = index_of(text)
    position, order = index.find(index.tokens, len(text))
    if order:
        grown = list(text)
        for i in range(count):
            grown.append(grown[position + i])
        assert index.copy(position, count).tolist() == grown[len(text) :]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_order": 0}, "`max_order`=0"),
        ({"max_order": 40}, "`max_order`=40"),
        ({"max_tokens": 0}, "`max_tokens`=0"),
        ({"memory": 5}, "`memory` is 5"),
    ],
)
def test_values_without_a_meaning_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NgramDraft(**options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`max_tokens`=0"):
        NgramMemory(0)
