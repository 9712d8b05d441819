"""`lk.generate`: the tokens of transformers, and rows as strangers on every backend."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny import (
    EOS,
    IDS,
    MASK,
    MIXED,
    PAD,
    PADDED,
    tiny_model,
)
from torch import Tensor

from logitkit import SamplingParams
from logitkit.generation.door import generate

MODEL = tiny_model()


def new_tokens(sequence: Tensor, width: int, length: int) -> list[int]:
    return sequence[width : width + length].tolist()


def unpadded(row: int) -> dict[str, Tensor]:
    """One prompt of `PADDED`, without its padding."""
    ids = IDS[row : row + 1, MASK[row] == 1]
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@pytest.mark.parametrize("eos", [EOS, [22, 57], None])
def test_greedy_equals_transformers_token_for_token(eos: Any) -> None:
    call = {**PADDED, "do_sample": False, "max_new_tokens": 25, "eos_token_id": eos}
    assert generate(MODEL, **call).equal(MODEL.generate(**call))


def test_greedy_equals_transformers_with_its_edits_and_a_pad_that_is_the_eos() -> None:
    call = {
        **PADDED, "max_new_tokens": 25, "eos_token_id": 51, "pad_token_id": 51,
        "repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "bad_words_ids": [[57], [29, 38]],
        "min_new_tokens": 4, "suppress_tokens": [45], "sequence_bias": {(13,): 1.5},
    }  # fmt: skip
    ours = generate(MODEL, **call)
    assert ours.equal(MODEL.generate(**call))
    assert (ours[:, 5:] == 51).any()


def test_scores_and_logits_equal_those_of_transformers() -> None:
    call = {
        **PADDED, "max_new_tokens": 6, "repetition_penalty": 1.3, "eos_token_id": None,
        "return_dict_in_generate": True, "output_scores": True, "output_logits": True,
    }  # fmt: skip
    ours = generate(MODEL, **call)
    for row in range(3):
        # without padding, which its repetition penalty counts as text in some releases
        theirs = MODEL.generate(**{**call, **unpadded(row)})
        for name in ("scores", "logits"):
            assert len(ours[name]) == 6
            for mine, other in zip(ours[name], theirs[name], strict=True):
                torch.testing.assert_close(mine[row : row + 1], other, rtol=1e-4, atol=1e-4)


def test_sampled_scores_are_the_logits_behind_every_stage() -> None:
    call = {
        **PADDED, "max_new_tokens": 1, "return_dict_in_generate": True, "output_scores": True,
        "temperature": 0.7, "top_k": 5, "do_sample": True,
    }  # fmt: skip
    ours, theirs = generate(MODEL, **call), MODEL.generate(**call)
    torch.testing.assert_close(ours.scores[0], theirs.scores[0], rtol=1e-4, atol=1e-4)
    assert (ours.scores[0] > -torch.inf).sum(1).tolist() == [5, 5, 5]


@pytest.mark.parametrize("backend", ["torch", "numba"])
def test_each_row_of_a_batch_equals_the_request_alone_and_unpadded(backend: str) -> None:
    batch = generate(
        MODEL, **PADDED, params=MIXED, max_new_tokens=20, backend=backend,
        return_dict_in_generate=True,
    )  # fmt: skip
    assert batch.lengths.tolist() == [20, 7, 12]
    for row, p in enumerate(MIXED):
        alone = generate(
            MODEL, IDS[row : row + 1, MASK[row] == 1], params=p, max_new_tokens=20, backend=backend
        )
        length = int(batch.lengths[row])
        assert new_tokens(batch.sequences[row], 5, length) == new_tokens(
            alone[0], int(MASK[row].sum()), length
        )
        assert (batch.sequences[row, 5 + length :] == PAD).all()


def test_backends_and_kept_scores_do_not_change_a_token() -> None:
    chosen = [*MIXED[:2], SamplingParams(top_p=0.8, typical_p=0.9, n=2, sampling_seed=1)]
    call = {**PADDED, "params": chosen, "max_new_tokens": 15}
    first = generate(MODEL, **call, backend="numba")
    assert first.equal(generate(MODEL, **call, backend="torch"))
    for backend in ("numba", "torch"):
        shown = generate(
            MODEL, **call, backend=backend, return_dict_in_generate=True, output_scores=True
        )
        assert first.equal(shown.sequences)


def test_missing_seeds_come_from_the_global_generator_and_nothing_else_does() -> None:
    torch.manual_seed(5)
    first = generate(MODEL, **PADDED, params=SamplingParams(), max_new_tokens=12)
    after = torch.get_rng_state()
    torch.manual_seed(5)
    assert first.equal(generate(MODEL, **PADDED, params=SamplingParams(), max_new_tokens=12))
    assert not first.equal(generate(MODEL, **PADDED, params=SamplingParams(), max_new_tokens=12))
    torch.manual_seed(5)
    torch.randint(0, 2**32, (2,)), torch.randint(0, 2**32, (2,)), torch.randint(0, 2**32, (2,))
    assert after.equal(torch.get_rng_state())


def test_a_given_seed_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    generate(MODEL, **PADDED, params=SamplingParams(sampling_seed=1), max_new_tokens=3)
    assert before.equal(torch.get_rng_state())


def test_samples_of_one_prompt_follow_each_other_and_differ() -> None:
    params = [SamplingParams(n=3, sampling_seed=8), SamplingParams(sampling_seed=8)]
    out = generate(MODEL, IDS[:2], attention_mask=MASK[:2], params=params, max_new_tokens=10)
    assert out.shape == (4, 15)
    assert out[:, :5].equal(IDS[[0, 0, 0, 1]])
    assert len({tuple(row) for row in out[:3].tolist()}) == 3
    alone = generate(
        MODEL, IDS[:1], attention_mask=MASK[:1], max_new_tokens=10,
        params=SamplingParams(sampling_seed=8),
    )  # fmt: skip
    assert out[0].equal(alone[0])  # sample 0 keeps the seed


def test_padding_is_told_by_the_mask_and_never_by_the_ids() -> None:
    call = {"params": SamplingParams(temperature=0.0), "max_new_tokens": 6}
    as_tokens = generate(MODEL, IDS, **call)
    assert as_tokens.equal(generate(MODEL, IDS, attention_mask=torch.ones_like(IDS), **call))
    assert not as_tokens.equal(generate(MODEL, **PADDED, **call))


def test_model_inputs_are_repeated_with_the_prompts() -> None:
    positions = (MASK.cumsum(1) - 1).clamp_min(0) + 3
    call = {**PADDED, "position_ids": positions, "max_new_tokens": 5}
    once = generate(MODEL, **call, params=SamplingParams(temperature=0.0))
    twice = generate(MODEL, **call, params=SamplingParams(temperature=0.0, n=2))
    assert twice.equal(once.repeat_interleave(2, 0))


@pytest.mark.network
def test_smollm2_greedy_equals_transformers_and_batches_equal_single_rows(
    smollm2: tuple[Any, Any],
) -> None:
    model, tokenizer = smollm2
    texts = ["The capital of France is", "Once upon a time, in a small village,"]
    inputs = tokenizer(texts, return_tensors="pt", padding=True, padding_side="left")
    call = {"max_new_tokens": 8, "do_sample": False}
    assert generate(model, **inputs, **call).equal(model.generate(**inputs, **call))
    params = [SamplingParams(temperature=0.7, top_p=0.9, sampling_seed=i) for i in range(2)]
    both = generate(model, **inputs, params=params, max_new_tokens=8, tokenizer=tokenizer)
    for row, text in enumerate(texts):
        alone = generate(
            model, **tokenizer(text, return_tensors="pt"), params=params[row], max_new_tokens=8
        )
        assert both[row].tolist()[-8:] == alone[0].tolist()[-8:]
