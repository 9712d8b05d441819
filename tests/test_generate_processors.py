"""The caller's logits processors in `lk.generate`: what they see, and where they run."""

from __future__ import annotations

import pytest
import torch
from tiny import (
    IDS,
    MASK,
    MIXED,
    PADDED,
    tiny_model,
)
from torch import Tensor
from transformers import (
    LogitsProcessor,
    LogitsProcessorList,
)

from logitkit import EmptyRowError, SamplingParams
from logitkit.generation.door import generate

MODEL = tiny_model()


class Watch(LogitsProcessor):
    """Keeps what it is shown, and bans a token in place."""

    def __init__(self, banned: int = 22) -> None:
        self.banned = banned
        self.ids: list[Tensor] = []
        self.scores: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.ids.append(input_ids.clone())
        self.scores.append(scores.clone())
        scores[:, self.banned] = -torch.inf
        return scores


def test_processors_are_shown_what_transformers_shows_them() -> None:
    edits = {"sequence_bias": {(13,): 1.5}, "bad_words_ids": [[57], [29, 38]]}
    call = {**PADDED, **edits, "max_new_tokens": 8, "eos_token_id": None}
    mine, theirs = Watch(), Watch()
    ours = generate(MODEL, **call, logits_processor=[mine])
    assert ours.equal(MODEL.generate(**call, logits_processor=LogitsProcessorList([theirs])))
    assert 22 not in ours[:, 5:]
    assert all(a.equal(b) for a, b in zip(mine.ids, theirs.ids, strict=True))
    for a, b in zip(mine.scores, theirs.scores, strict=True):
        assert a.dtype == torch.float32
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_processors_run_before_the_temperature_and_leave_masked_tokens_masked() -> None:
    class Lifts(LogitsProcessor):
        def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
            return torch.zeros_like(scores).index_fill(1, torch.tensor([6]), 4.0)

    out = generate(
        MODEL, IDS[:1], params=SamplingParams(temperature=2.0, allowed_token_ids=[5, 6]),
        max_new_tokens=1, logits_processor=[Lifts()], output_scores=True,
        return_dict_in_generate=True,
    )  # fmt: skip
    assert out.scores[0][0, [4, 5, 6]].tolist() == [-torch.inf, 0.0, 2.0]


def test_each_row_beside_a_processor_equals_the_request_alone() -> None:
    call = {"max_new_tokens": 12, "logits_processor": [Watch()]}
    batch = generate(MODEL, **PADDED, params=MIXED, **call)
    for row, p in enumerate(MIXED):
        alone = generate(MODEL, IDS[row : row + 1, MASK[row] == 1], params=p, **call)
        new = alone.shape[1] - int(MASK[row].sum())
        assert batch[row, 5 : 5 + new].tolist() == alone[0, -new:].tolist()


def test_a_row_that_is_over_may_be_masked_by_a_processor_without_harm() -> None:
    class EmptiesRowOne(LogitsProcessor):
        def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
            if input_ids.shape[1] > 7:
                scores[1] = -torch.inf
            return scores

    params = [SamplingParams(temperature=0.0), SamplingParams(temperature=0.0, max_new_tokens=2)]
    out = generate(
        MODEL, IDS[:2], params=params, max_new_tokens=6, logits_processor=[EmptiesRowOne()]
    )
    assert out.shape == (2, 11)


def test_prefix_allowed_tokens_fn_is_asked_for_the_prompt_of_every_row() -> None:
    asked = []

    def allowed(prompt: int, ids: Tensor) -> list[int]:
        asked.append(prompt)
        return [10 + prompt]

    params = [SamplingParams(n=2), SamplingParams()]
    out = generate(
        MODEL, IDS[:2], params=params, max_new_tokens=2, prefix_allowed_tokens_fn=allowed
    )
    assert out[:, 5:].tolist() == [[10, 10], [10, 10], [11, 11]]
    assert asked[:3] == [0, 0, 1]


def test_a_processor_that_empties_a_row_is_blamed_with_its_request() -> None:
    class Empties(LogitsProcessor):
        def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
            assert len(input_ids) == len(scores) == 3  # all rows, whoever asks
            scores[2] = -torch.inf
            return scores

    with pytest.raises(EmptyRowError, match=r"request 2, position 4: .* stage TransformersList"):
        generate(MODEL, **PADDED, max_new_tokens=2, logits_processor=[Empties()])


def test_a_processor_that_returns_another_shape_is_named() -> None:
    class Cuts(LogitsProcessor):
        def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
            return scores[:, :3]

    with pytest.raises(ValueError, match=r"Cuts returned \(3, 3\)"):
        generate(MODEL, IDS, logits_processor=[Cuts()], max_new_tokens=1)
