"""A tiny random model of every family of caches, and what a row gives alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    Gemma2Config,
    GPT2Config,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    MptConfig,
    OPTConfig,
    Qwen2Config,
    Qwen3NextConfig,
)

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
def one_thread() -> Iterator[None]:
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
