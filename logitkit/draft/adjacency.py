"""`AdjacencyDraft`: after each token, what the target last thought would follow it.

A draft source, above `batch`. A table of successors is filled from the logits that the target
computes anyway, and a draft follows it from token to token. After Luo et al., "Turning Trash into
Treasure" (token recycling, 2024), as a chain.
"""

from __future__ import annotations

import torch
from torch import Tensor

from logitkit.batch import Batch
from logitkit.draft.source import Draft, DraftSource

STRONGEST = 8


class AdjacencyDraft(DraftSource):
    """Follows the chain of top successors, at most `max_tokens` long.

    Each request has a table of its own, with the last `max_entries` tokens that it met. The
    `strength` of a proposal is how far the first token was ahead of the next best, in nats, at most
    8.
    """

    label = "adjacency"

    def __init__(self, max_tokens: int = 8, max_entries: int = 65_536) -> None:
        for name, value in (("max_tokens", max_tokens), ("max_entries", max_entries)):
            if value < 1:
                raise ValueError(f"`{name}`={value}: give at least 1")
        self.max_tokens = max_tokens
        self.max_entries = max_entries
        self._batch: Batch | None = None
        self._tables: list[dict[int, tuple[int, float]]] = []

    def start(self, batch: Batch) -> None:
        """Begin with empty tables."""
        self._batch = batch
        self._tables = [{} for _ in range(len(batch))]

    def propose(self, batch: Batch, k: int) -> Draft:
        """Up to `k` tokens per request, [B, k'] where k' is the longest chain."""
        if batch is not self._batch:
            self.start(batch)
        history = batch.history
        newest = history.tokens.gather(1, (history.head - 1).clamp_min(0)[:, None]).squeeze(1)
        chains, strengths = [], []
        for table, token in zip(self._tables, newest.tolist(), strict=True):
            chain: list[int] = []
            lead = 0.0
            while len(chain) < min(k, self.max_tokens) and token in table:
                token, margin = table[token]
                lead = lead if chain else margin
                chain.append(token)
            chains.append(chain)
            strengths.append(int(min(lead, STRONGEST)))  # the lead may be infinite
        lengths = [len(chain) for chain in chains]
        width = max(lengths, default=0)
        padded = [chain + [0] * (width - len(chain)) for chain in chains]
        device = batch.device
        return Draft(
            torch.tensor(padded, dtype=torch.int64, device=device).view(len(chains), width),
            torch.tensor(lengths, dtype=torch.int64, device=device),
            label=self.label,
            strength=torch.tensor(strengths, dtype=torch.int64),
        )

    def observe(self, batch: Batch, num_tokens: Tensor, logits: Tensor) -> None:
        """Enter the best successor at every row that was reached."""
        if batch is not self._batch:
            self.start(batch)
        n = logits.shape[1]
        ahead = torch.arange(n, device=batch.device)
        before = (batch.history.head - num_tokens - 1)[:, None] + ahead
        reached = (ahead < num_tokens[:, None]) & (before >= 0)
        slots, depths = reached.nonzero(as_tuple=True)
        if not len(slots):
            return
        best, successors = logits[slots, depths].float().topk(min(2, logits.shape[-1]))
        margin = best[:, 0] - best[:, -1]
        keys = batch.history.tokens[slots, before[slots, depths]]
        for slot, key, successor, lead in zip(
            slots.tolist(), keys.tolist(), successors[:, 0].tolist(), margin.tolist(), strict=True
        ):
            table = self._tables[slot]
            table.pop(key, None)  # the newest entries stand last
            table[key] = (successor, lead)
            if len(table) > self.max_entries:
                del table[next(iter(table))]
