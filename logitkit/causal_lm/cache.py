"""What a cache of transformers is called, what it can forget, and how its rows are moved together.

Below `model`, which keeps the mask and the widths that belong to the cache.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

# Newest name first: 5.24 says `cache`, before that attention models said `past_key_values` and
# Mamba `cache_params`. A forward that does not know a name may swallow it without an error.
NAMES = ("cache", "past_key_values", "cache_params")

# The cache layers whose keys and values are one entry per token, so that entries can be taken out.
_TOKEN_LAYERS = ("DynamicLayer", "DynamicSlidingWindowLayer", "DummyLayer")

Entries = tuple[Tensor, Tensor]  # keys and values, [B, heads, width, size] each


def layers(cache: Any) -> list[Any]:
    """The layers of a cache; none where its class has no such list."""
    return list(getattr(cache, "layers", []))


def is_sliding(layer: Any) -> bool:
    """Whether a layer drops what its window has left behind."""
    return bool(getattr(layer, "is_sliding", False))


def uncroppable(cache: Any) -> set[str]:
    """The classes of the cache that cannot forget a token: recurrent and hybrid layers."""
    if type(cache) is not DynamicCache:  # a model's own may hold more than its layers
        return {type(cache).__name__}
    return {type(layer).__name__ for layer in layers(cache)}.difference(_TOKEN_LAYERS)


def longest_block(cache: Any) -> int | None:
    """The most tokens of a forward of which some can be refused; None: any number.

    Sliding windows forget what came before a longer one.
    """
    windows = [layer.sliding_window for layer in layers(cache) if is_sliding(layer)]
    return min(windows) - 1 if windows else None


def sliding_entries(cache: Any) -> list[Entries | None]:
    """What every sliding layer holds now; None for the other layers.

    Such layers drop their oldest entries in a forward. They are replaced, not written to, so a
    reference is a snapshot.
    """
    return [(x.keys, x.values) if is_sliding(x) else None for x in layers(cache)]


def gather(cache: Any, mask: Tensor, longest: int, n: int, before: list[Entries | None]) -> None:
    """Move each row's entries to the right end of a cache of width `longest`.

    mask [B, width] of the present cache: 1 where an entry belongs to its row. n: the tokens of the
    last forwards, in front of which sliding layers held `before`.
    """
    for i, layer in enumerate(layers(cache)):
        if getattr(layer, "keys", None) is None:  # shares another layer's entries
            continue
        keys, values, size = layer.keys, layer.values, longest
        if is_sliding(layer):
            held = before[i]
            assert held is not None
            keys = torch.cat([held[0], keys[:, :, -n:]], dim=2)
            values = torch.cat([held[1], values[:, :, -n:]], dim=2)
            size = min(longest, layer.sliding_window - 1)
            layer.cumulative_length = longest
        # Stable, so holes and padding go to the front and the row's entries keep their order.
        columns = mask[:, -keys.shape[2] :].argsort(dim=1, stable=True)[:, -size:]
        columns = columns[:, None, :, None].to(keys.device)  # [B, 1, size, 1]
        layer.keys = torch.take_along_dim(keys, columns, dim=2)
        layer.values = torch.take_along_dim(values, columns, dim=2)
