"""Law 7 on odd models: tables just long enough, short windows, tokens without an embedding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from drafted_rows import START, VOCAB, Knows, requests, written
from scripted import Scripted
from tiny import IDS, tiny_model
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPTNeoConfig,
    MistralConfig,
    MptConfig,
    TrOCRConfig,
    TrOCRForCausalLM,
)


def made(config: Any) -> Any:
    torch.manual_seed(11)
    config.initializer_range = config.init_std = 0.3
    auto: Any = AutoModelForCausalLM
    return auto.from_config(config).eval()


def neo(positions: int) -> Any:
    return made(
        GPTNeoConfig(
            vocab_size=VOCAB, hidden_size=32, num_layers=2, num_heads=4, window_size=6,
            attention_types=[[["global", "local"], 1]], max_position_embeddings=positions,
            bos_token_id=1, eos_token_id=2,
        )
    )  # fmt: skip


def mpt(positions: int) -> Any:
    return made(
        MptConfig(
            vocab_size=VOCAB, d_model=32, n_layers=2, n_heads=4, max_seq_len=positions,
            expansion_ratio=2,
        )
    )  # fmt: skip


def gpt2(positions: int) -> Any:
    return made(
        GPT2Config(
            vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=positions,
            bos_token_id=1, eos_token_id=2,
        )
    )  # fmt: skip


@pytest.mark.parametrize("make", [neo, mpt, gpt2])
def test_rows_far_apart_fit_a_table_that_is_just_long_enough(make: Any) -> None:
    """One row runs to the end of the table while the other still begins, and the other way."""
    model, params = make(48), requests(32, 32)
    prompt = {"input_ids": torch.arange(5, 37).view(2, 16), "attention_mask": None}
    plain = written(params, model, **prompt)
    truth = plain.sequences[:, 16:]
    for slots in ((0,), (1,), (0, 1)):
        for k in (3, 30):
            source = Knows(truth, slots)
            out = written(params, model, draft=source, num_draft_tokens=k, **prompt)
            assert torch.equal(out.sequences, plain.sequences)
    out = written(params, model, draft=Scripted(truth, seed=3), num_draft_tokens=5, **prompt)
    assert torch.equal(out.sequences, plain.sequences)


@pytest.mark.parametrize("make", [neo, mpt, gpt2])
def test_a_draft_model_with_a_short_table_gives_up_in_silence(make: Any) -> None:
    params = requests(30, 20, 24)
    plain = written(params)
    for positions, ks in ((START, (1, 5)), (START + 1, (4,)), (12, (5,))):
        for k in ks:
            out = written(params, draft=make(positions), num_draft_tokens=k)
            assert torch.equal(out.sequences, plain.sequences)
    with pytest.raises(ValueError, match=r"`draft`: .* has 4 positions, and a prompt has 5"):
        written(params, draft=make(4))


@pytest.mark.parametrize("window", [1, 2, 3])
def test_the_shortest_windows_draft_little_or_are_refused(window: int) -> None:
    model = made(
        MistralConfig(
            vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=2, head_dim=16, sliding_window=window,
        )
    )  # fmt: skip
    params = requests(14, 9, 12)
    plain, other = written(params, model), written(params)
    for k in (4, "auto"):
        out = written(params, model, draft="ngram", num_draft_tokens=k)
        assert torch.equal(out.sequences, plain.sequences)
        if window == 1:
            with pytest.raises(ValueError, match="`draft`: MistralForCausalLM cannot forget"):
                written(params, draft=model, num_draft_tokens=k)
            continue
        out = written(params, draft=model, num_draft_tokens=k)
        assert torch.equal(out.sequences, other.sequences)


def test_a_model_that_counts_the_columns_of_a_table_drafts_for_one_row_only() -> None:
    torch.manual_seed(11)
    trocr: Any = TrOCRForCausalLM
    model = trocr(
        TrOCRConfig(
            vocab_size=VOCAB, d_model=32, decoder_layers=2, decoder_attention_heads=4,
            decoder_ffn_dim=48, init_std=0.3,
        )
    ).eval()  # fmt: skip
    prompt = {"input_ids": IDS[1:2], "attention_mask": None}
    plain = written(requests(12), model, **prompt)
    source = Scripted(plain.sequences[:, START:])
    out = written(requests(12), model, draft=source, num_draft_tokens=3, **prompt)
    assert torch.equal(out.sequences, plain.sequences)
    two = {"input_ids": IDS[1:2].repeat(2, 1), "attention_mask": None}
    with pytest.raises(ValueError, match="TrOCRForCausalLM takes no `position_ids`"):
        written(requests(12, 12), model, draft="ngram", **two)


def test_a_draft_token_without_an_embedding_never_reaches_the_target() -> None:
    model = tiny_model(seed=3, vocab_size=VOCAB)
    model.lm_head = torch.nn.Linear(32, 80, bias=False)
    torch.nn.init.normal_(model.lm_head.weight, std=0.3)
    params = requests(12, 12, 12, allowed_token_ids=list(range(3, 60)))
    plain = written(params, model)
    for ids in (75, VOCAB):
        source = Scripted(torch.full((3, 12), ids), "right")
        out = written(params, model, draft=source, num_draft_tokens=3)
        assert torch.equal(out.sequences, plain.sequences)
