"""`Reach`: which rows of a step plain decoding could come to.

Below `strategy`, which gives it to the caller's processors: these may be made for what is really
written, and are asked about nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from logitkit.generation.progress import Progress
from logitkit.params import ResolvedParams
from logitkit.rows import Rows


class Reach:
    """Tells rows that may be reached from those behind the end of a request.

    A request ends at its `limits` new tokens [B], at an eos or stop id, and for what `progress`
    says. What else may end it (strings, criteria) is not foreseen.
    """

    def __init__(
        self, params: Sequence[ResolvedParams], limits: Sequence[int], progress: Progress
    ) -> None:
        self._ends = [frozenset((*p.ending_eos_ids, *p.stop_token_ids)) for p in params]
        self._min_new_tokens = [p.min_new_tokens for p in params]
        self._limits = limits
        self._progress = progress

    def __call__(self, rows: Rows) -> Tensor:
        """Whether each of `rows` may be reached, [R] bool.

        True for rows of requests that are all over: that is a question about an error.
        """
        runs = self._progress.mask
        every = torch.ones_like(rows.depth, dtype=torch.bool)
        here = every if runs is None else runs[rows.slot]
        longest = int(rows.depth.max()) if len(rows) else 0
        if not here.any():
            return every
        if not longest:
            return here
        history = rows.history
        ahead = torch.arange(longest, device=here.device)
        drafted = history.tokens.gather(1, history.head[:, None] + ahead).tolist()
        written = (history.head - history.prompt_length).tolist()
        most = [-1] * len(written)
        for slot in self._progress.running:
            least = self._min_new_tokens[slot] - written[slot]
            ends = (
                depth
                for depth, token in enumerate(drafted[slot])
                if depth >= least and token in self._ends[slot]
            )
            most[slot] = min(self._limits[slot] - written[slot] - 1, next(ends, longest))
        return rows.depth <= torch.tensor(most, device=here.device)[rows.slot]
