"""`DraftLM`: a `CausalLM` that is fed a chain token by token and can forget the chain's end.

Below `draft.model`. A target is fed a whole draft in one forward; a draft model makes it, one
forward per token, and learns later how much of it was right: possibly nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from logitkit.causal_lm import _MAX_WIDTH_RATIO, CausalLM, _is_sliding


class DraftLM(CausalLM):
    """`extend` instead of a call adds to the tokens that the next `keep` speaks of."""

    def extend(self, tokens: Tensor) -> Tensor:
        """Append `tokens` [B, 1] to the chain begun after the last `keep`; logits [B, 1, V]."""
        fed, before = self._fed, self._before
        if not fed:
            # Sliding layers drop their oldest entry in every forward; `keep` may want it back.
            layers: list[Any] = self._layers()
            before = [(x.keys, x.values) if _is_sliding(x) else None for x in layers]
        logits = self(tokens)
        self._fed, self._before = fed + tokens.shape[1], before
        return logits

    def keep(self, num_tokens: Tensor) -> None:
        """As `CausalLM.keep`, but for 0..n of the n tokens fed since the last `keep`."""
        n, self._fed = self._fed, 0
        counts = num_tokens.tolist()
        assert all(0 <= count <= n for count in counts)
        fewest, most = min(counts), max(counts)
        if fewest == n:
            return
        if fewest > 0:
            self._fed = n
            super().keep(num_tokens)
            self._fed = 0
            return
        window = min((x.sliding_window for x in self._layers() if _is_sliding(x)), default=n + 1)
        if n >= window:
            raise ValueError(
                f"`num_draft_tokens`: {n} tokens do not fit into the draft model's sliding window "
                f"of {window}: draft fewer"
            )
        kept = num_tokens.to(self._device)
        self.lengths = self.lengths - (n - kept)
        if not self._sliding and most < n:
            self._cache.crop(most - n)
            self._width -= n - most
            n = most
        if not n:
            return
        self._mask[:, self._width - n : self._width] = (
            torch.arange(n, device=self._device) < kept[:, None]
        )
        longest = int(self.lengths.max())
        by_column = self._sliding or not self._takes_positions
        if by_column or self._width > _MAX_WIDTH_RATIO * longest:
            self._gather(longest, n)
        self._before = []
