"""What a model's config and modules say of its sizes, under the names of each release.

Read by `model` and by the draft model, which looks before it builds a cache.
"""

from __future__ import annotations

from typing import Any


def unwrapped(model: Any) -> Any:
    """Return the transformers model inside a compiled or PEFT one: their signatures say nothing."""
    model = getattr(model, "_orig_mod", model)
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def vocab_size(base: Any, config: Any) -> int:
    """The width of the logits, which a resized head has of its own."""
    head = base.get_output_embeddings()
    if head is None:
        return int(config.vocab_size)
    # Packed (quantised) weights have another shape than the layer that they stand for.
    return int(getattr(head, "out_features", None) or head.weight.shape[0])


def context_length(config: Any) -> int | None:
    """The positions that the config promises; None when it names none."""
    for name in ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"):
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return None


def table_length(model: Any) -> int | None:
    """The longest text that `model` has a table of positions for; None: any length."""
    config = unwrapped(model).config.get_text_config(decoder=True)
    # Every rotary model has `rope_parameters`; what remains looks positions up in a table.
    return None if hasattr(config, "rope_parameters") else context_length(config)
