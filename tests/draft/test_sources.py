"""What `draft=` may be."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import start
from tiny import tiny_model
from transformers import T5Config, T5ForConditionalGeneration

from logitkit import SamplingParams
from logitkit.draft.adjacency import AdjacencyDraft
from logitkit.draft.cascade import Cascade
from logitkit.draft.model import ModelDraft
from logitkit.draft.ngram import NgramDraft
from logitkit.draft.source import Draft, DraftSource
from logitkit.draft.sources import as_source


def test_names_build_fresh_sources_at_every_call() -> None:
    for name, kind in (
        ("adjacency", AdjacencyDraft), ("auto", Cascade), ("ngram", NgramDraft)
    ):  # fmt: skip
        source = as_source(name)
        assert type(source) is kind
        assert as_source(name) is not source


def test_a_source_stays_itself_and_a_model_becomes_one() -> None:
    source = NgramDraft()
    assert as_source(source) is source
    model = tiny_model()
    drafting = as_source(model)
    assert isinstance(drafting, ModelDraft)
    assert drafting.model is model


class Bare:
    """A user's own source, with the one method that it needs."""

    def propose(self, batch: Any, k: int) -> Draft:
        return Draft(torch.full((len(batch), k), 4), torch.full((len(batch),), k))


class Full(Bare):
    label = "mine"
    cost = 0.5

    def __init__(self) -> None:
        self.seen: list[str] = []

    def start(self, batch: Any) -> None:
        self.seen.append("start")

    def observe(self, batch: Any, num_tokens: Any, logits: Any) -> None:
        self.seen.append("observe")


def test_an_object_that_proposes_is_a_source() -> None:
    batch = start(SamplingParams(temperature=0.0, sampling_seed=0), [[1], [2]], 8)
    bare = as_source(Bare())
    bare.start(batch)
    bare.observe(batch, torch.tensor([1, 1]), torch.zeros(2, 1, 8))
    assert bare.propose(batch, 3).lengths.tolist() == [3, 3]
    assert bare.propose(batch, 3).labels == ("Bare", "Bare")
    assert Cascade(Bare()).propose(batch, 3).labels == ("Bare", "Bare")
    assert (bare.label, bare.cost) == ("Bare", 0.0)
    full = as_source(own := Full())
    full.start(batch)
    full.observe(batch, torch.tensor([1, 1]), torch.zeros(2, 1, 8))
    assert own.seen == ["start", "observe"]
    assert (full.label, full.cost) == ("mine", 0.5)


def test_a_source_that_returns_something_else_is_told_so() -> None:
    class Loose:
        def propose(self, batch: Any, k: int) -> Any:
            return torch.zeros(1, k)

    with pytest.raises(ValueError, match="Loose\\.propose returned a Tensor"):
        as_source(Loose()).propose(None, 2)


class Short:
    def propose(self, batch: Any) -> None: ...


class Blind(Bare):
    def observe(self, batch: Any) -> None: ...


@pytest.mark.parametrize(
    ("draft", "message"),
    [
        ("n-gram", "`draft`='n-gram' is no source's name; the names are"),
        (5, "`draft` is an int"),
        (None, "`draft` is a NoneType"),
        (NgramDraft, "`draft` is the class NgramDraft: give an object"),
        (Short(), r"`draft`: Short.propose must take \(batch, k\)"),
        (Blind(), r"`draft`: Blind.observe must take \(batch, num_tokens, logits\)"),
    ],
    ids=str,
)
def test_anything_else_is_refused(draft: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        as_source(draft)


def test_an_encoder_decoder_model_is_refused() -> None:
    config = T5Config(vocab_size=64, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    with pytest.raises(ValueError, match="`draft`: T5ForConditionalGeneration"):
        as_source(T5ForConditionalGeneration(config))


def test_a_source_without_propose_says_what_is_missing() -> None:
    with pytest.raises(NotImplementedError, match="propose"):
        DraftSource().propose(None, 1)


def test_a_draft_is_cut_with_its_lengths_and_logits() -> None:
    draft = Draft(
        torch.tensor([[1, 2, 3], [4, 0, 0]]), torch.tensor([3, 1]), torch.zeros(2, 3, 8), "x"
    )
    short = draft.cut(2)
    assert short.tokens.tolist() == [[1, 2], [4, 0]]
    assert short.lengths.tolist() == [2, 1]
    assert short.logits is not None
    assert short.logits.shape == (2, 2, 8)
    assert draft.cut(3) is draft
    assert short.labels == ("x", "x")
    assert Draft(draft.tokens, draft.lengths, label=None).labels == ("", "")
