"""`GrammarDraft`: the text that a request's grammar leaves no choice about.

A draft source, above `batch`. It costs nothing to speak of: keys, quotes and brackets of a schema
are known before the model writes them. How they are cut into tokens stays the target's choice, so
the last token of a forced string is left to it (it may merge with what follows).
"""

from __future__ import annotations

import torch

from logitkit.batch import Batch
from logitkit.draft.source import Draft, DraftSource
from logitkit.grammar import Matcher


class GrammarDraft(DraftSource):
    """Proposes the canonical tokens of the longest forced string, but for the last of them.

    Requests without a grammar get no proposal.
    """

    label = "grammar"

    def __init__(self) -> None:
        self._batch: Batch | None = None
        self._matchers: list[Matcher | None] = []
        self._read: list[int] = []  # how many tokens of each history the matchers have seen

    def start(self, batch: Batch) -> None:
        """A matcher for each request that has a grammar."""
        self._batch = batch
        self._matchers = [None if p.grammar is None else p.grammar.matcher() for p in batch.params]
        self._read = batch.history.prompt_length.tolist()

    def propose(self, batch: Batch, k: int) -> Draft:
        """Up to `k` tokens per request, [B, k'] where k' is the longest proposal."""
        self._catch_up(batch)
        forced = [[] if m is None else m.forced_tokens()[:k] for m in self._matchers]
        lengths = [len(tokens) for tokens in forced]
        width = max(lengths, default=0)
        padded = [tokens + [0] * (width - len(tokens)) for tokens in forced]
        return Draft(
            torch.tensor(padded, dtype=torch.int64, device=batch.device).view(len(forced), width),
            torch.tensor(lengths, dtype=torch.int64, device=batch.device),
            label=self.label,
        )

    def _catch_up(self, batch: Batch) -> None:
        """Show the matchers what was committed since the last call, in one small transfer."""
        heads = batch.history.head.tolist()
        back = any(head < read for head, read in zip(heads, self._read, strict=False))
        if batch is not self._batch or back:
            self.start(batch)
        first, last = min(self._read, default=0), max(heads, default=0)
        fresh = batch.history.tokens[:, first:last].tolist()
        for slot, (matcher, read, head) in enumerate(
            zip(self._matchers, self._read, heads, strict=True)
        ):
            if matcher is None:
                continue
            if not all(matcher.accept(token) for token in fresh[slot][read - first : head - first]):
                self._matchers[slot] = None  # the text has left its grammar: nothing is forced
        self._read = heads
