"""What reaches the model of a `CausalLM`, and what it hands back."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import pytest
import torch
import transformers
from model_families import (
    CONFIGS,
    IDS,
    RECURRENT,
    SIZES,
    VOCAB,
    alone,
    assert_close,
    left_padded,
    prompts,
    tiny,
)
from model_families import one_thread as one_thread  # a fixture of every test here
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
)

from logitkit.causal_lm import CausalLM, DecoderOnlyOutput, decoder_only_output

# -- what reaches the model


def test_mask_and_positions_are_always_explicit() -> None:
    model = copy.deepcopy(tiny("llama"))
    calls: list[dict[str, Any]] = []
    model.register_forward_pre_hook(lambda _, args, kwargs: calls.append(kwargs), with_kwargs=True)
    lm = CausalLM(model, torch.tensor([[5, 6, 7]]))
    lm.prefill()
    lm(torch.tensor([[8]]))
    assert [call["attention_mask"].tolist() for call in calls] == [[[1] * 3], [[1] * 4]]
    assert [call["position_ids"].tolist() for call in calls] == [[[0, 1, 2]], [[3]]]
    assert calls[0]["logits_to_keep"] == 1


def test_further_inputs_reach_the_first_forward_and_token_types_go_on() -> None:
    model = tiny("gpt2")
    rows, types = torch.tensor([[5, 6, 7]]), torch.tensor([[3, 3, 4]])
    lm = CausalLM(model, rows, token_type_ids=types)
    lm.prefill()
    got = lm(torch.tensor([[8]]))
    with torch.no_grad():
        want = model(
            input_ids=torch.tensor([[5, 6, 7, 8]]), token_type_ids=torch.tensor([[3, 3, 4, 4]])
        )
    assert_close(got[0, 0], want.logits[0, -1])


def test_images_are_placed_and_followed_as_in_generate() -> None:
    config = Qwen2VLConfig(
        text_config={
            **SIZES,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [1, 1, 2],
            },
        },
        vision_config={
            "depth": 1,
            "embed_dim": 32,
            "hidden_size": 32,
            "num_heads": 2,
            "mlp_ratio": 2,
            "patch_size": 4,
        },
        image_token_id=60,
        video_token_id=61,
        vision_start_token_id=62,
        vision_end_token_id=63,
    )
    torch.manual_seed(11)
    model = Qwen2VLForConditionalGeneration(config).eval()
    # 4x4 patches of 4x4 pixels become 2x2 placeholders: positions jump by 2, not by 4.
    ids = torch.tensor([[5, 6, 62, 60, 60, 60, 60, 63, 7]])
    inputs = {
        "pixel_values": torch.randn(16, 3 * 2 * 4 * 4),
        "image_grid_thw": torch.tensor([[1, 4, 4]]),
        "mm_token_type_ids": (ids == 60).long(),
    }
    theirs = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        **inputs,
        max_new_tokens=5,
        do_sample=False,
        eos_token_id=None,
        output_logits=True,
        return_dict_in_generate=True,
    )
    lm = CausalLM(model, ids, **inputs)
    logits = lm.prefill()
    for want in theirs.logits:
        assert_close(logits, want)
        logits = lm(logits.argmax(-1)[:, None])[:, 0]


def test_the_mask_buffer_grows() -> None:
    model, row = tiny("llama"), [5]
    lm = CausalLM(model, torch.tensor([row]))
    lm.prefill()
    for _ in range(10):
        row += [7, 8, 9] * 20
        got = lm(torch.tensor([[7, 8, 9] * 20]))
    assert_close(got[0, -1], alone(model, row)[0])


def test_model_config_and_mode_are_left_alone() -> None:
    model = copy.deepcopy(tiny("llama"))
    model.train()
    before, config = set(vars(model)), copy.deepcopy(model.config.to_dict())
    lm = CausalLM(model, torch.tensor([[5, 6]]))
    logits = lm.prefill()
    lm(torch.tensor([[8]]))
    assert model.training and model.config.to_dict() == config and set(vars(model)) == before
    assert not logits.requires_grad and not logits.is_inference()


@pytest.mark.parametrize("name", [*CONFIGS, *RECURRENT])
def test_shapes_dtypes_and_facts(name: str) -> None:
    model = copy.deepcopy(tiny(name)).to(torch.bfloat16)
    lm = CausalLM(model, *left_padded(prompts([3, 2])))
    assert lm.vocab_size == VOCAB
    logits = lm.prefill()
    assert logits.shape == (2, VOCAB)
    assert logits.untyped_storage().nbytes() == 2 * VOCAB * logits.element_size()
    assert lm(torch.tensor([[3], [5]])).shape == (2, 1, VOCAB)
    assert logits.dtype == model(input_ids=torch.tensor([[3]])).logits.dtype


def test_a_model_that_computes_all_logits_lets_go_of_them() -> None:
    class Plain(LlamaForCausalLM):
        def forward(
            self,
            input_ids: Any = None,
            attention_mask: Any = None,
            position_ids: Any = None,
            cache: Any = None,
            use_cache: Any = None,
            return_dict: Any = None,
        ) -> Any:
            parameters = inspect.signature(LlamaForCausalLM.forward).parameters
            name = "cache" if "cache" in parameters else "past_key_values"
            return super().forward(input_ids, attention_mask, position_ids, **{name: cache})

    model = Plain(LlamaConfig(**SIZES)).eval()
    lm = CausalLM(model, IDS)
    logits = lm.prefill()
    assert logits.untyped_storage().nbytes() == logits.numel() * logits.element_size()
    with torch.no_grad():
        assert_close(logits, LlamaForCausalLM.forward(model, IDS).logits[:, -1])


def test_vocab_size_is_the_width_of_the_logits() -> None:
    model = copy.deepcopy(tiny("llama"))
    model.resize_token_embeddings(70)
    lm = CausalLM(model, torch.tensor([[5]]))
    assert lm.vocab_size == 70
    assert lm.prefill().shape == (1, 70)


def test_models_on_an_accelerate_device_map_work() -> None:
    from accelerate import cpu_offload

    model = cpu_offload(copy.deepcopy(tiny("llama")), execution_device=torch.device("cpu"))
    rows = prompts([3, 5])
    lm = CausalLM(model, *left_padded(rows))
    lm.prefill()
    got = lm(torch.tensor([[7], [8]]))
    assert_close(got[0, 0], alone(tiny("llama"), [*rows[0], 7])[0])
    assert_close(got[1, 0], alone(tiny("llama"), [*rows[1], 8])[0])


def test_compiled_models_are_looked_through() -> None:
    model = torch.compile(tiny("llama"), backend="eager")
    assert CausalLM(model, IDS).vocab_size == VOCAB


# -- the output


def test_the_output_is_transformers_own_with_our_fields() -> None:
    sequences, cache = torch.tensor([[1, 2]]), object()
    out = decoder_only_output(sequences, cache=cache, lengths=torch.tensor([1]), texts=["a"])
    assert isinstance(out, transformers.generation.GenerateDecoderOnlyOutput)
    assert isinstance(out, DecoderOnlyOutput)
    assert out.sequences is sequences and out[0] is sequences
    assert out.past_key_values is cache and out["lengths"].tolist() == [1]
    assert out.texts == ["a"] and out.scores is None and "scores" not in out
    with pytest.raises(TypeError, match="lenghts"):
        decoder_only_output(sequences, lenghts=[1])
