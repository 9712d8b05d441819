"""`CausalLM` against the models: whole unpadded rows, in one forward without a cache."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    BartConfig,
    BartForConditionalGeneration,
    BloomConfig,
    Gemma2Config,
    GPT2Config,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MistralConfig,
    MptConfig,
    OPTConfig,
    Qwen2Config,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen3NextConfig,
)

from logitkit.causal_lm import CausalLM, DecoderOnlyOutput, decoder_only_output

VOCAB = 64
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 96,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
CONFIGS: dict[str, Callable[[], Any]] = {
    "llama": lambda: LlamaConfig(**SIZES),
    "llama_eager": lambda: LlamaConfig(**SIZES, attn_implementation="eager"),
    "gpt2": lambda: GPT2Config(
        vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=96, pad_token_id=0
    ),
    "opt": lambda: OPTConfig(
        **SIZES, ffn_dim=48, word_embed_proj_dim=32, do_layer_norm_before=True
    ),
    "qwen2": lambda: Qwen2Config(**SIZES),
    # Windows far shorter than the rows, so that entries are dropped from the cache.
    "mistral": lambda: MistralConfig(**SIZES, sliding_window=8, head_dim=8),
    "gemma2": lambda: Gemma2Config(**SIZES, sliding_window=8, head_dim=8),
    "bloom": lambda: BloomConfig(vocab_size=VOCAB, hidden_size=32, n_layer=2, n_head=4),
    "mpt": lambda: MptConfig(
        vocab_size=VOCAB, d_model=32, n_layers=2, n_heads=4, max_seq_len=96, expansion_ratio=2
    ),
}
RECURRENT: dict[str, Callable[[], Any]] = {
    "mamba": lambda: MambaConfig(
        vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, state_size=4, pad_token_id=0
    ),
    "qwen3_next": lambda: Qwen3NextConfig(
        **SIZES,
        head_dim=8,
        layer_types=["linear_attention", "full_attention"],
        linear_num_value_heads=2,
        linear_num_key_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
    ),
}
IDS = torch.tensor([[5, 6, 7], [5, 6, 7]])
_MODELS: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Work this small is slower on several threads, and stalls when the cores are busy."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def tiny(name: str) -> Any:
    """A random model in eval mode, made once; its spread of logits is about that of a real one."""
    if name not in _MODELS:
        torch.manual_seed(11)
        config = {**CONFIGS, **RECURRENT}[name]()
        config.initializer_range = config.init_std = 0.3
        _MODELS[name] = AutoModelForCausalLM.from_config(config).eval()
    return _MODELS[name]


def prompts(lengths: list[int], seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(3, VOCAB, (n,), generator=generator).tolist() for n in lengths]


def left_padded(rows: list[list[int]], pad: int = 0) -> tuple[Tensor, Tensor]:
    width = max(map(len, rows))
    ids = torch.tensor([[pad] * (width - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    return ids, mask


@torch.no_grad()
def alone(model: Any, row: list[int], num_last: int = 1) -> Tensor:
    """The last logits of `row`, from one forward over all of it, without padding or cache."""
    logits: Tensor = model(input_ids=torch.tensor([row]), use_cache=False).logits
    return logits[0, -num_last:]


def assert_close(ours: Tensor, theirs: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=tolerance)


# -- rows are strangers


@pytest.mark.parametrize("name", [*CONFIGS, *RECURRENT])
def test_a_padded_row_equals_the_row_alone(name: str) -> None:
    model = tiny(name)
    # A recurrence is summed in another order when it is run over the whole prompt.
    tolerance = 1e-4 if name in RECURRENT else 1e-5
    rows = prompts([3, 14, 1, 9])
    lm = CausalLM(model, *left_padded(rows))
    logits = lm.prefill()
    for row, got in zip(rows, logits, strict=True):
        assert_close(got, alone(model, row)[0], tolerance)
    for step in range(12):
        new = [5 + step, 40 - step, 7, 63 - 2 * step]
        logits = lm(torch.tensor(new)[:, None])
        for row, token, got in zip(rows, new, logits, strict=True):
            row.append(token)
            assert_close(got[0], alone(model, row)[0], tolerance)
    assert lm.lengths.tolist() == [15, 26, 13, 21]


@pytest.mark.parametrize("name", [*CONFIGS, *RECURRENT])
def test_padding_ids_change_nothing(name: str) -> None:
    rows = prompts([2, 6])
    a, b = (CausalLM(tiny(name), *left_padded(rows, pad)) for pad in (0, 33))
    assert_close(a.prefill(), b.prefill())


def test_pad_ids_inside_a_prompt_are_tokens() -> None:
    row = [0, 0, 5, 0]
    lm = CausalLM(tiny("llama"), torch.tensor([row]))
    assert lm.lengths.tolist() == [4]
    assert_close(lm.prefill()[0], alone(tiny("llama"), row)[0])


def test_greedy_tokens_equal_those_of_generate() -> None:
    model = tiny("llama")
    ids, mask = left_padded(prompts([4, 11, 7]))
    theirs = model.generate(
        ids, attention_mask=mask, max_new_tokens=12, do_sample=False, eos_token_id=None
    )
    lm = CausalLM(model, ids, mask)
    tokens = [lm.prefill().argmax(-1)]
    for _ in range(11):
        tokens.append(lm(tokens[-1][:, None])[:, 0].argmax(-1))
    assert torch.equal(torch.stack(tokens, 1), theirs[:, ids.shape[1] :])


# -- several tokens at once, and forgetting some of them


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("batch", [1, 3])
def test_refused_tokens_leave_no_trace(name: str, batch: int) -> None:
    model = tiny(name)
    rows = prompts([4, 12, 9][:batch])
    lm = CausalLM(model, *left_padded(rows))
    lm.prefill()
    assert lm.croppable
    generator = torch.Generator().manual_seed(3)
    for step in range(10):
        fed = torch.randint(3, VOCAB, (batch, 4), generator=generator)
        # Uneven, all kept, even, and one row that refuses all but the first again and again.
        kept = [[1, 4, 2], [4, 4, 4], [2, 2, 2], [1, 3, 4]][step % 4][:batch]
        logits = lm(fed)
        for i, row in enumerate(rows):
            assert_close(logits[i], alone(model, row + fed[i].tolist(), 4))
            row += fed[i, : kept[i]].tolist()
        lm.keep(torch.tensor(kept))
        assert lm.lengths.tolist() == [len(row) for row in rows]
    last = lm(torch.full((batch, 1), 9))
    for i, row in enumerate(rows):
        assert_close(last[i, 0], alone(model, [*row, 9])[0])


def test_the_cache_stays_near_the_longest_row() -> None:
    lm = CausalLM(tiny("llama"), *left_padded(prompts([8, 8])))
    lm.prefill()
    for step in range(12):
        lm(torch.full((2, 5), 7))
        lm.keep(torch.tensor([5, 1] if step % 2 else [1, 5]))
        width = lm.cache.get_seq_length()
        assert width <= 1.25 * int(lm.lengths.max())
    assert width < 8 + 12 * 5


def test_keeping_all_does_no_work() -> None:
    lm = CausalLM(tiny("llama"), *left_padded(prompts([3, 5])))
    lm.prefill()
    lm(torch.full((2, 3), 7))
    before = [layer.keys for layer in lm.cache.layers]
    lm.keep(torch.tensor([3, 3]))
    assert all(a is layer.keys for a, layer in zip(before, lm.cache.layers, strict=True))


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_models_are_not_croppable(name: str) -> None:
    lm = CausalLM(tiny(name), torch.tensor(prompts([5])))
    lm.prefill()
    assert not lm.croppable


def test_a_recurrent_model_that_must_forget_is_refused_by_name() -> None:
    lm = CausalLM(tiny("qwen3_next"), torch.tensor(prompts([5])))
    lm.prefill()
    lm(torch.tensor([[5, 6, 7]]))
    lm.keep(torch.tensor([3]))
    lm(torch.tensor([[5, 6, 7]]))
    with pytest.raises(ValueError, match=r"cannot forget.*LinearAttentionLayer"):
        lm.keep(torch.tensor([2]))


def test_a_block_as_long_as_the_window_cannot_be_refused() -> None:
    lm = CausalLM(tiny("mistral"), torch.tensor(prompts([5])))
    lm.prefill()
    lm(torch.tensor([[5] * 8]))
    with pytest.raises(ValueError, match="window is 8"):
        lm.keep(torch.tensor([2]))


# -- positions


def test_rows_past_the_table_of_positions_do_not_crash_their_neighbours() -> None:
    model = tiny("gpt2")
    rows = prompts([96, 5])
    lm = CausalLM(model, *left_padded(rows))
    lm.prefill()
    assert (lm.context_length, lm.position_limit) == (96, 96)
    for token in (9, 10, 11):
        logits = lm(torch.tensor([[token], [token]]))
        rows[1].append(token)
        assert_close(logits[1, 0], alone(model, rows[1])[0])


def test_rotary_models_have_no_position_limit() -> None:
    lm = CausalLM(tiny("llama"), torch.tensor([[5]]))
    assert (lm.context_length, lm.position_limit) == (96, None)


def test_a_prompt_longer_than_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`input_ids` reach position 96.*96 positions"):
        CausalLM(tiny("gpt2"), torch.full((1, 97), 5))


def test_given_positions_go_on_from_the_last_one() -> None:
    model, row = tiny("gpt2"), [5, 6, 7, 8]
    lm = CausalLM(model, torch.tensor([row]), position_ids=torch.tensor([[10, 11, 12, 13]]))
    lm.prefill()
    got = lm(torch.tensor([[9, 10]]))
    with torch.no_grad():
        want = model(
            input_ids=torch.tensor([[*row, 9, 10]]), position_ids=torch.arange(10, 16)[None]
        )
    assert_close(got, want.logits[:, -2:])


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


# -- refused at the door


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
