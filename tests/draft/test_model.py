"""`ModelDraft`: the target itself as its draft is always right, and its cache is always true."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from helpers import start
from tiny import VOCAB, tiny_model
from torch import Tensor
from transformers import T5Config, T5ForConditionalGeneration

from logitkit import Batch, SamplingParams
from logitkit.causal_lm import CausalLM
from logitkit.draft.model import ModelDraft
from logitkit.randomness import noise

PROMPTS = [[5, 6, 7], [9, 8, 7, 6, 5], [11, 12, 5, 9]]
SAMPLINGS = [
    SamplingParams(temperature=0.0, sampling_seed=5),
    SamplingParams(temperature=0.7, top_p=0.8, sampling_seed=5),
    SamplingParams(temperature=1.5, top_p=0.8, sampling_seed=6),
    SamplingParams(
        temperature=1.0, min_p=0.02, repetition_penalty=1.3, frequency_penalty=0.5, sampling_seed=7
    ),
]


def plain_decoding(model: Any, batch: Batch, num_tokens: int) -> Tensor:
    """What the model writes after the batch's prompts token by token, [B, num_tokens]."""
    ids, mask = padded(batch)
    lm = CausalLM(model, ids, mask)
    logits, written = lm.prefill(), []
    for _ in range(num_tokens):
        tokens = batch.plan.sample(logits[:, : batch.vocab_size].float(), batch.rows())
        batch.commit(tokens)
        written.append(tokens)
        logits = lm(tokens[:, None])[:, 0]
    return torch.stack(written, 1)


def padded(batch: Batch) -> tuple[Tensor, Tensor]:
    """The histories with padding on the left, and the mask of what is no padding."""
    heads = batch.history.head.tolist()
    width = max(heads)
    ids = torch.zeros(len(heads), width, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, head in enumerate(heads):
        ids[row, width - head :] = batch.history.tokens[row, :head]
        mask[row, width - head :] = 1
    return ids, mask


@pytest.mark.parametrize("params", SAMPLINGS, ids=["greedy", "0.7", "1.5", "penalties"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_target_as_its_own_draft_proposes_what_plain_decoding_emits(
    params: SamplingParams, dtype: torch.dtype
) -> None:
    model = tiny_model().to(dtype)
    written = plain_decoding(model, start(params, PROMPTS, VOCAB), 40)
    batch, source = start(params, PROMPTS, VOCAB), ModelDraft(model)
    source.start(batch)
    at = torch.zeros(3, dtype=torch.int64)
    generator = torch.Generator().manual_seed(1)
    rounds = 0
    while int(at.max()) < 30:
        k = int(torch.randint(1, 7, (1,), generator=generator))
        draft = source.propose(batch, k)
        steps = at[:, None] + torch.arange(k + 1)
        assert torch.equal(draft.tokens, written.gather(1, steps[:, :k]))
        assert draft.lengths.tolist() == [k] * 3
        assert draft.logits is None
        # Any number of them is kept, and rows that are over (0) take nothing.
        num_tokens = torch.randint(0, k + 2, (3,), generator=generator)
        batch.commit(written.gather(1, steps), num_tokens)
        at += num_tokens
        rounds += 1
    assert rounds > 6


@pytest.mark.parametrize("config", [{}, {"sliding": 8}], ids=["full", "sliding"])
@pytest.mark.parametrize("size", [1, 3])
def test_the_cache_equals_recomputation_after_every_number_of_kept_tokens(
    config: dict[str, int], size: int
) -> None:
    model = sliding_model(config["sliding"]) if config else tiny_model()
    model = model.double()
    batch = start(SAMPLINGS[1], PROMPTS[:size], VOCAB)
    source = ModelDraft(model)
    source.start(batch)
    generator = torch.Generator().manual_seed(3)
    for kept in [0, 1, 2, 3, 4, 0, 4, 4, 0, 0, 2]:
        draft = source.propose(batch, 4)
        ids, mask = padded(batch)
        fresh = CausalLM(model, ids, mask).prefill()
        torch.testing.assert_close(source._logits, fresh.float(), rtol=1e-6, atol=1e-6)
        counts = torch.full((size,), kept)
        if size > 1:  # ragged: the others keep as many as they like
            counts[1:] = torch.randint(0, 5, (size - 1,), generator=generator)
        tokens = torch.cat([draft.tokens, draft.tokens[:, :1]], 1)
        wrong = (tokens.gather(1, counts[:, None]) + 1) % VOCAB
        batch.commit(tokens.scatter(1, counts[:, None], wrong), counts + 1)


def test_what_the_draft_model_read_once_it_does_not_read_again() -> None:
    model = tiny_model()
    batch, source = start(SAMPLINGS[0], PROMPTS[:1], VOCAB), ModelDraft(model)
    read: list[int] = []
    model.register_forward_hook(
        lambda _, __, kwargs, ___: read.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    source.start(batch)
    first = source.propose(batch, 4)
    batch.commit(torch.cat([first.tokens, torch.tensor([[9]])], 1))  # all right, and one more
    second = source.propose(batch, 4)
    batch.commit(torch.tensor([[int(second.tokens[0, 0]), 9]]))  # one right, then another
    source.propose(batch, 2)
    # The prompt; three drafts of four; the fourth and the new token; three drafts; the new token;
    # one draft of two. A chain's last token is drawn and never read.
    assert read == [3, 1, 1, 1, 2, 1, 1, 1, 1, 1]


def sliding_model(window: int) -> Any:
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, sliding_window=window,
        initializer_range=0.5,
    )  # fmt: skip
    return MistralForCausalLM(config).eval()


@pytest.mark.parametrize(("size", "fits"), [(40, True), (96, True), (VOCAB + 1100, False)])
def test_vocabularies_of_unequal_width(size: int, fits: bool) -> None:
    model = tiny_model(vocab_size=size)
    batch = start(SAMPLINGS[2], [[5, 6, 7, 60], [9, 8]], VOCAB)
    source = ModelDraft(model)
    if not fits:
        with pytest.raises(ValueError, match="1164 ids and the target one of 64"):
            source.start(batch)
        return
    source.start(batch)
    for _ in range(4):
        draft = source.propose(batch, 5)
        assert int(draft.tokens.max()) < min(size, VOCAB)
        assert draft.lengths.tolist() == [5, 5]
        batch.commit(torch.tensor([[63, 5], [7, 60]]), torch.tensor([2, 2]))  # beyond the narrow


def test_a_row_that_cannot_be_drawn_ends_its_draft_and_harms_no_other() -> None:
    model = tiny_model()
    params = [
        SamplingParams(temperature=1.0, sampling_seed=1, allowed_token_ids=[50, 51]),
        SamplingParams(temperature=1.0, sampling_seed=2),
    ]
    narrow = tiny_model(vocab_size=40)  # gives none of the tokens that the first row may have
    batch = start(params, [[5, 6], [7, 8]], VOCAB)
    draft = ModelDraft(narrow).propose(batch, 4)
    assert draft.lengths.tolist() == [0, 4]
    alone = start(params[1], [[7, 8]], VOCAB)
    assert torch.equal(ModelDraft(narrow).propose(alone, 4).tokens[0], draft.tokens[1])
    both = ModelDraft(model).propose(start(params, [[5, 6], [7, 8]], VOCAB), 4)
    assert both.lengths.tolist() == [4, 4]


def test_a_draft_of_its_own_noise_says_what_it_was_drawn_from() -> None:
    model = tiny_model()
    batch = start(SAMPLINGS[2], PROMPTS, VOCAB)
    source = ModelDraft(model)
    draft = source.propose(batch, 3, coupled=False, round=9)
    assert draft.logits is not None
    assert draft.logits.shape == (3, 3, VOCAB)
    torch.testing.assert_close(draft.logits.exp().sum(-1), torch.ones(3, 3))
    for depth in range(3):
        rows = batch.rows(draft.cut(depth)).select(torch.arange(3) * (depth + 1) + depth)
        seen, _ = rows.tokens()
        for row in range(3):
            ids = seen[row : row + 1, : int(rows.position[row])]
            q = draft.logits[row, depth]
            own = batch.plan(model(ids).logits[0, -1:].float().repeat(3, 1), rows)[row]
            torch.testing.assert_close(q, own.log_softmax(-1), rtol=1e-4, atol=1e-4)
            drawn = q - noise(batch.seed[row], torch.arange(VOCAB), rows.position[row], 1, 9)
            assert int(drawn.argmax()) == int(draft.tokens[row, depth])
    other = source.propose(batch, 3, coupled=False, round=10)
    assert not torch.equal(other.tokens, draft.tokens)


def test_the_draft_model_and_its_config_are_not_changed() -> None:
    model = tiny_model()
    config = copy.deepcopy(model.config.to_dict())
    asked = copy.deepcopy(model.generation_config.to_dict())
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    source = ModelDraft(model)
    batch = start(SAMPLINGS[1], PROMPTS, VOCAB)
    source.propose(batch, 3)

    def fail(*_: Any) -> None:
        raise RuntimeError("stop")

    handle = model.register_forward_hook(fail)
    batch.commit(torch.tensor([1, 2, 3]))
    with pytest.raises(RuntimeError, match="stop"):
        source.propose(batch, 3)
    handle.remove()
    assert model.config.to_dict() == config
    assert model.generation_config.to_dict() == asked
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    # And the source serves the next generation.
    again = start(SAMPLINGS[1], PROMPTS, VOCAB)
    source.start(again)
    fresh = ModelDraft(model).propose(start(SAMPLINGS[1], PROMPTS, VOCAB), 3)
    assert torch.equal(source.propose(again, 3).tokens, fresh.tokens)


def test_the_global_generator_is_left_alone() -> None:
    batch = start(SAMPLINGS[2], PROMPTS, VOCAB)
    before = torch.get_rng_state()
    ModelDraft(tiny_model_without_seeding()).propose(batch, 3)
    ModelDraft(tiny_model_without_seeding()).propose(batch, 3, coupled=False)
    assert torch.equal(torch.get_rng_state(), before)


def tiny_model_without_seeding() -> Any:
    state = torch.get_rng_state()
    model = tiny_model()
    torch.set_rng_state(state)
    return model


def test_models_that_cannot_draft_are_refused_by_name() -> None:
    config = T5Config(vocab_size=VOCAB, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    with pytest.raises(ValueError, match="`draft`: T5ForConditionalGeneration is an encoder-dec"):
        ModelDraft(T5ForConditionalGeneration(config))
    with pytest.raises(ValueError, match="give a transformers model"):
        ModelDraft("gpt2")  # type: ignore[arg-type]


def test_a_recurrent_model_is_refused_by_name() -> None:
    from transformers import MambaConfig, MambaForCausalLM

    config = MambaConfig(
        vocab_size=VOCAB, hidden_size=16, state_size=4, num_hidden_layers=2, expand=2
    )
    source = ModelDraft(MambaForCausalLM(config).eval())
    with pytest.raises(ValueError, match="`draft`: MambaForCausalLM cannot forget"):
        source.start(start(SAMPLINGS[0], [[5, 6, 7]], VOCAB))
