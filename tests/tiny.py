"""A tiny random model, a tiny tokenizer, and models that write what they are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from logitkit import SamplingParams

VOCAB = 64
PAD, BOS, EOS = 0, 1, 2
# Prompts of different length, left-padded.
IDS = torch.tensor([[PAD, PAD, 5, 6, 7], [9, 8, 7, 6, 5], [PAD, 11, 12, 5, 9]])
MASK = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [0, 1, 1, 1, 1]])
PADDED: dict[str, Any] = {"input_ids": IDS, "attention_mask": MASK}
# A request for each of them, no two alike.
MIXED = [
    SamplingParams(temperature=0.8, top_p=0.9, repetition_penalty=1.2, sampling_seed=3),
    SamplingParams(temperature=0.0, presence_penalty=0.5, max_new_tokens=7),
    SamplingParams(top_k=9, min_p=0.02, xtc_probability=0.5, sampling_seed=4, max_new_tokens=12),
]


def tiny_model(seed: int = 0, **config: Any) -> Any:
    """A Llama of 64 tokens with random weights, peaked enough to have a mind of its own."""
    sizes = {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 96,
        "initializer_range": 0.5,
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
    }
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(**{**sizes, **config})).eval()


def tiny_tokenizer() -> Any:
    """One token a character: a is 3, z is 28, the space is 29; pad, bos and eos are special."""
    pieces = ["<pad>", "<s>", "</s>", *map(chr, range(ord("a"), ord("z") + 1)), " "]
    pieces += [chr(0x410 + i) for i in range(VOCAB - len(pieces))]
    core = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, []))
    core.decoder = decoders.Fuse()
    core.add_special_tokens([AddedToken(p, special=True) for p in pieces[:3]])
    make: Any = PreTrainedTokenizerFast
    return make(
        tokenizer_object=core, pad_token="<pad>", bos_token="<s>", eos_token="</s>",
        padding_side="left",
    )  # fmt: skip


@contextmanager
def logits_edited(model: Any, edit: Callable[[Tensor, int], Tensor]) -> Iterator[list[int]]:
    """`edit(logits [B, V], step)` replaces the last position's logits; yields the steps run."""
    steps: list[int] = []

    def hook(module: Any, arguments: Any, output: Any) -> Any:
        output.logits = output.logits.clone()
        output.logits[:, -1] = edit(output.logits[:, -1], len(steps))
        steps.append(len(steps))
        return output

    handle = model.register_forward_hook(hook)
    try:
        yield steps
    finally:
        handle.remove()


def writing(rows: Sequence[Sequence[int]]) -> Callable[[Tensor, int], Tensor]:
    """For `logits_edited`: row i writes the tokens `rows[i]`, then repeats its last one."""

    def edit(logits: Tensor, step: int) -> Tensor:
        wanted = torch.tensor([row[min(step, len(row) - 1)] for row in rows])
        return torch.full_like(logits, -9.0).scatter(1, wanted[:, None], 9.0)

    return edit
