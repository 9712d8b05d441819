"""`Draft` and `DraftSource`: what is proposed ahead of the target model, and who proposes it.

Low in the line: `Batch.rows(draft)` turns a draft into rows, so nothing of the batch is imported
here. The sources themselves are in the modules beside this one, above `batch`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Draft:
    """A chain of proposed tokens per request.

    `tokens` [B, k] int64, `lengths` [B] int64 (0..k, what lies behind is padding), `logits`
    [B, k, V] what the tokens were drawn from (None: not drawn), `label` the source's name, or one
    name per request. `strength` [B] int64 says how sure the source is, in classes of its own (the
    length of a match, say); acceptance is counted by it. None: one class.
    """

    tokens: Tensor
    lengths: Tensor
    logits: Tensor | None = None
    label: str | tuple[str, ...] | None = ""
    strength: Tensor | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """The source's name for every request."""
        if isinstance(self.label, tuple):
            return self.label
        return (self.label or "",) * len(self.lengths)

    def cut(self, k: int) -> Draft:
        """The same draft with at most `k` tokens per request."""
        if k >= self.tokens.shape[1]:
            return self
        return dataclasses.replace(
            self,
            tokens=self.tokens[:, :k],
            lengths=self.lengths.clamp_max(k),
            logits=None if self.logits is None else self.logits[:, :k],
        )


class DraftSource:
    """Proposes tokens; `propose` is the only method that must be written.

    Any object with such a method will do; this class adds the rest. `label` is the source's name in
    the statistics. `cost` is a first guess of the time that one proposed token takes, in units of a
    plain step of the target (0: none to speak of).
    """

    label: str = ""
    cost: float = 0.0

    def start(self, batch: Any) -> None:
        """A generation begins with this `Batch`: forget everything of an earlier one."""

    def propose(self, batch: Any, k: int) -> Draft:
        """Up to `k` >= 1 tokens for each request of the `Batch`, to follow its history."""
        raise NotImplementedError(f"{type(self).__name__} must define propose(batch, k)")

    def observe(self, batch: Any, num_tokens: Tensor, logits: Tensor) -> None:
        """After the commit: the last `num_tokens` [B] tokens of each request are new.

        `logits` [B, n, V] are the target's raw logits of this step: row d of a request predicted
        its new token number d. Rows from `num_tokens` on were never reached.
        """
