"""A tiny random Llama with its tokenizer: `generate` with a pipeline, and stepping by hand."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from logitkit import Batch, LogitsPipeline, SamplingParams
from logitkit.params import resolve

EOS, PAD = 2, 0
STEPS = 12


@cache
def tiny_llama(vocab_size: int = 97, seed: int = 0) -> Any:
    """Two layers of width 32, with logits peaked enough that filters matter; knows no eos."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocab_size, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512,
        bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        model.lm_head.weight.normal_(0, 0.6)
        for parameter in model.model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(0, 0.3)
    return model


@cache
def tiny_tokenizer(vocab_size: int = 97) -> Any:
    """Token 10 * x + y is spelled as the letter number x and the digit y; 0 is pad, 2 is eos."""
    names = {f"{chr(97 + i // 10)}{i % 10}": i for i in range(vocab_size)}
    core = Tokenizer(models.WordLevel(names, unk_token="a1"))
    core.decoder = decoders.Fuse()
    make: Any = PreTrainedTokenizerFast
    return make(tokenizer_object=core, pad_token="a0", eos_token="a2", padding_side="left")


def prompt(length: int, seed: int = 0, vocab_size: int = 97) -> list[int]:
    """Ordinary tokens: neither pad nor eos."""
    g = torch.Generator().manual_seed(seed)
    return torch.randint(10, vocab_size, (length,), generator=g).tolist()


def padded(prompts: Sequence[Sequence[int]], pad: int = PAD) -> dict[str, Tensor]:
    """The prompts left-padded, with their attention mask."""
    width = max(map(len, prompts))
    ids = [[pad] * (width - len(p)) + list(p) for p in prompts]
    mask = [[0] * (width - len(p)) + [1] * len(p) for p in prompts]
    return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}


@torch.no_grad()
def stepped(
    model: Any, tokens: Sequence[int], params: SamplingParams, steps: int, eos: int | None = None
) -> list[int]:
    """New tokens of one request, alone: the plan by hand, the model without cache or padding."""
    resolved = resolve(params, eos_token_ids=() if eos is None else eos)
    batch = Batch.start([resolved], [tokens], vocab_size=model.config.vocab_size)
    ids = torch.tensor([tokens])
    for _ in range(steps):
        token = batch.plan.sample(model(ids).logits[:, -1].float(), batch.rows())
        batch.commit(token)
        ids = torch.cat([ids, token[:, None]], 1)
        if int(token) == eos:
            break
    new: list[int] = ids[0, len(tokens) :].tolist()
    return new


def generate(
    pipe: LogitsPipeline, inputs: Any, model: Any = None, **keywords: Any
) -> list[list[int]]:
    """The new tokens of every row."""
    inputs = padded(inputs) if isinstance(inputs, list) else inputs
    options = {"max_new_tokens": STEPS, "do_sample": True, "pad_token_id": PAD} | keywords
    if "logits_processor" not in options:
        options["logits_processor"] = [pipe]
    out = (model or tiny_llama()).generate(**inputs, **options)
    new: list[list[int]] = out[:, inputs["input_ids"].shape[1] :].tolist()
    return new


def alone(
    prompts: list[list[int]], params: list[SamplingParams], **options: Any
) -> list[list[int]]:
    """What every request gives by hand, without a neighbour."""
    options = {"steps": STEPS, "model": tiny_llama()} | options
    return [stepped(tokens=p, params=q, **options) for p, q in zip(prompts, params, strict=True)]


def until(tokens: list[int], last: int) -> list[int]:
    """The tokens up to and with the first `last`."""
    return tokens[: tokens.index(last) + 1] if last in tokens else tokens


def without_eos(**fields: Any) -> SamplingParams:
    """A request that draws neither eos nor pad."""
    return SamplingParams(
        **{"temperature": 1.5, "sampling_seed": 5, "logit_bias": {EOS: -100.0, PAD: -100.0}}
        | fields
    )
