"""Regular grammars as tables, the way of batches on a device, beside the engine on the host.

On CPU tensors the tables serve only the interpreted Triton kernels (`tests/triton_ops`), so these
tests ask for them by hand, with the operations of the other backends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from helpers import INF, letters, start
from torch import Tensor

import logitkit as lk
from logitkit import Batch, Draft, SamplingParams
from logitkit.stages import structured
from logitkit.stages.structured import Grammar

SIZE = 97
EOS = SIZE - 1
REGULAR = [
    SamplingParams(regex="([a-e]{2})*(x[a-e]*)?", sampling_seed=1),
    SamplingParams(sampling_seed=2),
    SamplingParams(choice=["abab", "aab", "b"], sampling_seed=3),
    SamplingParams(regex="a{3,40}b", sampling_seed=4),
    SamplingParams(regex="([a-e]{2})*(x[a-e]*)?", sampling_seed=5, temperature=0.0),
]
RECURSIVE = SamplingParams(ebnf='root ::= "a" root? "b"', sampling_seed=6)

every_backend = pytest.mark.parametrize("backend", ["torch", "numba"])


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a batch that is served by tables where it can be."""

    def make(params: Sequence[SamplingParams], backend: str) -> Batch:
        def engine(grammars: Any, ops: Any, device: Any) -> Any:
            return structured._Table.of(grammars, ops) or structured._Host(grammars)

        with monkeypatch.context() as patch:
            patch.setattr(structured, "_engine", engine)
            return start(params, [[0]] * len(params), SIZE, backend=backend)

    return make


def host(params: Sequence[SamplingParams], backend: str) -> Batch:
    return start(params, [[0]] * len(params), SIZE, backend=backend)


def allowed(batch: Batch, draft: Draft | None = None) -> Tensor:
    """Which tokens each row may take, [R, V] bool."""
    rows = batch.rows(draft)
    (stage,) = (stage for stage in batch.plan.stages if isinstance(stage, Grammar))
    return stage.apply(torch.zeros(len(rows), SIZE), rows) > -INF


@every_backend
def test_random_texts_meet_the_same_masks(backend: str, tables: Any) -> None:
    g = torch.Generator().manual_seed(3)
    for _ in range(12):
        fast, slow = tables(REGULAR, backend), host(REGULAR, backend)
        assert "grammar[table]" in str(fast.plan) or "Grammar[table]" in str(fast.plan)
        assert "rammar[host]" in str(slow.plan)
        for _ in range(12):
            masks = allowed(slow)
            assert torch.equal(allowed(fast), masks)
            wild = torch.rand(len(REGULAR), SIZE, generator=g) < 0.005
            weights = (masks | wild).float() + 1e-9
            tokens = torch.multinomial(weights, 1, generator=g).squeeze(1)
            for batch in (fast, slow):
                batch.commit(tokens)


@every_backend
def test_drafts_and_draws_are_the_same(backend: str, tables: Any) -> None:
    g = torch.Generator().manual_seed(4)
    fast, slow = tables(REGULAR, backend), host(REGULAR, backend)
    for _ in range(8):
        tokens = torch.randint(6, (len(REGULAR), 3), generator=g)
        tokens[:, 2] = torch.where(torch.rand(len(REGULAR), generator=g) < 0.4, EOS, tokens[:, 2])
        draft = Draft(tokens, torch.full((len(REGULAR),), 3))
        assert torch.equal(allowed(fast, draft), allowed(slow, draft))
        logits = torch.randn(4 * len(REGULAR), SIZE, generator=g)
        found = [batch.plan.draw(logits, batch.rows(draft)) for batch in (fast, slow)]
        assert torch.equal(found[0][0], found[1][0])
        assert torch.equal(found[0][1], found[1][1])
        kept = torch.randint(3, (len(REGULAR),), generator=g)
        for batch in (fast, slow):
            batch.commit(tokens, kept)


def test_the_ends_of_a_text_are_states_of_their_own(tables: Any) -> None:
    batch = tables([SamplingParams(choice=["b"]), SamplingParams()], "torch")
    assert allowed(batch)[0].nonzero().flatten().tolist() == [1]
    batch.commit(torch.tensor([1, 1]))
    assert allowed(batch)[0].nonzero().flatten().tolist() == [EOS]
    batch.commit(torch.tensor([EOS, EOS]))
    assert allowed(batch)[0].nonzero().flatten().tolist() == [EOS]
    batch.commit(torch.tensor([2, EOS]))
    assert not allowed(batch)[0].any()
    assert allowed(batch)[1].all()
    with pytest.raises(lk.EmptyRowError, match=r"request 0.*the grammar does not allow"):
        batch.plan.sample(torch.zeros(2, SIZE), batch.rows())


def test_a_recursive_grammar_in_the_batch_is_served_by_the_host(tables: Any) -> None:
    batch = tables([*REGULAR, RECURSIVE], "numba")
    assert "grammar[host]" in str(batch.plan)


def test_grammars_share_masks_and_one_alone_is_found_again(tables: Any) -> None:
    batch = tables([REGULAR[0]] * 3, "numba")
    alone = tables([REGULAR[0]], "numba")
    assert batch.columns["grammar_moves"].shape == alone.columns["grammar_moves"].shape
    vocabulary = letters(SIZE)
    grammar = lk.compile_grammar(lk.Regex(REGULAR[0].regex.pattern), vocabulary)
    assert len(batch.columns["grammar_final"]) == len(grammar.table().final) + 1
