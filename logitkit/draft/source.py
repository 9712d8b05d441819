"""`Draft`: what a draft source hands to the step; `Batch.rows(draft)` turns it into rows."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Draft:
    """A chain of proposed tokens per request.

    `tokens` [B, k] int64, `lengths` [B] int64 (0..k, what lies behind is padding), `logits`
    [B, k, V] what the tokens were drawn from (None: not drawn), `label` the source's name.
    """

    tokens: Tensor
    lengths: Tensor
    logits: Tensor | None = None
    label: str = ""
