"""The prompts and the models that `CausalLM` refuses by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from model_families import IDS, SIZES, VOCAB, tiny
from torch import Tensor
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    LlamaConfig,
    LlamaForCausalLM,
)

from logitkit.causal_lm import CausalLM


@pytest.mark.parametrize(
    ("ids", "options", "message"),
    [
        (IDS[0], {}, r"`input_ids` has shape \(3,\)"),
        (IDS[:, :0], {}, r"`input_ids` has shape \(2, 0\)"),
        (IDS.float(), {}, "`input_ids` has dtype torch.float32"),
        (IDS + 60, {}, r"`input_ids` has token id 67, outside 0..63"),
        (-IDS, {}, "`input_ids` has token id -7"),
        (IDS, {"attention_mask": IDS[:, 1:]}, r"`attention_mask` has shape \(2, 2\)"),
        (IDS, {"attention_mask": IDS}, "`attention_mask` has values other than 0"),
        (IDS, {"attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0]])}, "row 1 ends in padding"),
        (IDS, {"attention_mask": torch.tensor([[0, 0, 0], [1, 1, 1]])}, "row 0 ends in padding"),
        (IDS, {"attention_mask": torch.tensor([[0, 1, 1], [1, 0, 1]])}, "row 1 has padding betw"),
        (IDS, {"position_ids": IDS[:, 1:]}, r"`position_ids` has shape \(2, 2\)"),
        (IDS, {"use_cache": False}, "`use_cache` is not supported"),
        (IDS, {"inputs_embeds": IDS}, "`inputs_embeds` is not supported"),
        (IDS, {"temprature": 0.5}, "`temprature` is no input of LlamaForCausalLM.forward"),
        (IDS, {"positions_ids": IDS}, "did you mean `position_ids`"),
    ],
)
def test_wrong_prompts_are_refused_by_name(
    ids: Tensor, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        CausalLM(tiny("llama"), ids, **options)


def test_encoder_decoder_models_are_refused_by_name() -> None:
    config = BartConfig(
        vocab_size=VOCAB,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
    )
    with pytest.raises(ValueError, match="BartForConditionalGeneration is an encoder-decoder"):
        CausalLM(BartForConditionalGeneration(config), IDS)


def test_models_without_a_cache_are_refused_by_name() -> None:
    config = transformers.OpenAIGPTConfig(vocab_size=VOCAB, n_embd=32, n_layer=1, n_head=2)
    with pytest.raises(ValueError, match=r"OpenAIGPTLMHeadModel.forward takes no cache"):
        CausalLM(transformers.OpenAIGPTLMHeadModel(config), IDS)


def test_padding_that_a_model_would_count_is_refused() -> None:
    config = transformers.BartConfig(
        vocab_size=VOCAB,
        d_model=32,
        decoder_layers=1,
        decoder_attention_heads=2,
        decoder_ffn_dim=32,
    )
    config.is_encoder_decoder, config.is_decoder = False, True
    model = transformers.BartForCausalLM(config).eval()
    CausalLM(model, IDS).prefill()
    with pytest.raises(ValueError, match="takes no `position_ids`"):
        CausalLM(model, IDS, torch.tensor([[1, 1, 1], [0, 1, 1]]))


def test_a_cache_that_stays_empty_is_an_error() -> None:
    class Forgetful(LlamaForCausalLM):
        def forward(self, input_ids: Any = None, cache: Any = None, **kwargs: Any) -> Any:
            return super().forward(input_ids, **{**kwargs, "use_cache": False})

    with pytest.raises(ValueError, match=r"Forgetful did not fill its cache.*model.eval\(\)"):
        CausalLM(Forgetful(LlamaConfig(**SIZES)), IDS).prefill()
