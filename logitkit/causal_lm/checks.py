"""What `CausalLM` refuses at the door: models, prompts and inputs that it cannot serve exactly.

Knows tensors and signatures only; which names transformers uses for the cache is told by `cache`.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from logitkit.params.checks import kind

# What `forward` may take and the loop decides.
_LOOP_INPUTS = {
    "cache",
    "cache_params",
    "inputs_embeds",
    "labels",
    "logits_to_keep",
    "output_attentions",
    "output_hidden_states",
    "past_key_values",
    "return_dict",
    "use_cache",
}


def check_model(model: Any) -> None:
    """Refuse what is no model that transformers could generate with."""
    if isinstance(model, type) or any(
        not hasattr(model, name) for name in ("forward", "config", "generation_config")
    ):
        given = f"the class {model.__name__}" if isinstance(model, type) else kind(model)
        raise ValueError(
            f"`model` is {given}: give a transformers model that can generate, such as "
            "AutoModelForCausalLM.from_pretrained(...)"
        )


def cache_name(
    base: Any, parameters: Mapping[str, inspect.Parameter], names: tuple[str, ...]
) -> str:
    """Return the name under which `forward` takes the cache: the first of `names` it knows."""
    name = type(base).__name__
    if base.config.is_encoder_decoder:
        raise ValueError(f"`model`: {name} is an encoder-decoder model; give a decoder-only one")
    for known in names:
        if known in parameters:
            return known
    raise ValueError(
        f"`model`: {name}.forward takes no cache (none of {', '.join(names)}); "
        "give a model that does"
    )


def check_inputs(
    base: Any,
    parameters: Mapping[str, inspect.Parameter],
    model_inputs: dict[str, Any],
) -> None:
    """Refuse inputs that the model would not use; `**kwargs` would swallow a misspelt one."""
    prepare = getattr(base, "prepare_inputs_for_generation", None)
    known = {*parameters, *(inspect.signature(prepare).parameters if prepare else ())}
    known -= {"kwargs", "model_kwargs", "is_first_iteration", "next_sequence_length"}
    for name in model_inputs:
        if name in _LOOP_INPUTS:
            raise ValueError(f"`{name}` is not supported: the loop sets it itself; leave it out")
        if name not in known:
            near = difflib.get_close_matches(name, known - _LOOP_INPUTS, n=1)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            raise ValueError(f"`{name}` is no input of {type(base).__name__}.forward{hint}")


def checked_mask(input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Return the mask [B, L] with every row a run of zeros, then a run of at least one one."""
    if input_ids.ndim != 2 or 0 in input_ids.shape:
        raise ValueError(
            f"`input_ids` has shape {tuple(input_ids.shape)}: give [B, L] with at least one row "
            "and one token"
        )
    if attention_mask is None:
        return torch.ones_like(input_ids)
    if attention_mask.shape != input_ids.shape:
        raise ValueError(
            f"`attention_mask` has shape {tuple(attention_mask.shape)}: give the shape of "
            f"`input_ids`, {tuple(input_ids.shape)}"
        )
    if not ((attention_mask == 0) | (attention_mask == 1)).all():
        raise ValueError("`attention_mask` has values other than 0 (padding) and 1 (token)")
    mask = attention_mask.to(torch.int64)
    for row in (mask[:, -1] == 0).nonzero()[:1, 0].tolist():
        raise ValueError(
            f"`attention_mask` of row {row} ends in padding: pad on the left "
            '(`tokenizer.padding_side = "left"`)'
        )
    for row in (mask.diff(dim=1) < 0).any(1).nonzero()[:1, 0].tolist():
        raise ValueError(
            f"`attention_mask` of row {row} has padding between its tokens: move it to the left"
        )
    return attention_mask


def check_ids(input_ids: Tensor, num_embeddings: int | None) -> None:
    """Refuse ids without an embedding; `num_embeddings` is None where placeholders may stand."""
    if input_ids.is_floating_point() or input_ids.dtype in (torch.bool, torch.complex64):
        raise ValueError(f"`input_ids` has dtype {input_ids.dtype}: give token ids as int64")
    low, high = int(input_ids.min()), int(input_ids.max())
    if low < 0 or (num_embeddings is not None and high >= num_embeddings):
        size = f"0..{num_embeddings - 1} of the model's embedding" if num_embeddings else "0.."
        raise ValueError(
            f"`input_ids` has token id {low if low < 0 else high}, outside {size} "
            "(padding too needs a valid id)"
        )
