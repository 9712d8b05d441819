"""`MatcherBatch`: one call for many matchers, which may follow different grammars.

While matchers are in a batch their configurations live in one array, and a log of past arrays is
their history; a matcher that is asked by itself fetches its column first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from logitkit.grammar.matcher import Matcher
from logitkit.grammar.rows import RowStore

LOGGED = 1024  # steps, then they move into the matchers' own histories


class MatcherBatch:
    """See the module. All matchers are of one vocabulary; each is in one batch at a time, the last.

    `configurations` int64 [B, 3].
    """

    def __init__(self, matchers: Sequence[Matcher]) -> None:
        if not isinstance(matchers, Iterable):
            raise ValueError(f"`matchers` is {matchers!r}; give a sequence of lk.Matcher objects")
        self.matchers = tuple(matchers)
        for place, matcher in enumerate(self.matchers):
            if not isinstance(matcher, Matcher):
                raise ValueError(
                    f"`matchers[{place}]` is {matcher!r}; give lk.Matcher objects, as "
                    "grammar.matcher() makes them"
                )
        if not self.matchers:
            raise ValueError("matchers is empty: a batch needs at least one matcher")
        if len(set(map(id, self.matchers))) < len(self.matchers):
            raise ValueError("matchers names a matcher twice: use fork() for an independent copy")
        self.arena = self.matchers[0].grammar.arena
        if any(matcher.grammar.arena is not self.arena for matcher in self.matchers):
            raise ValueError("matchers must be of grammars over one vocabulary")
        self.left_by: Matcher | None = None
        self._log: list[tuple[NDArray[np.int64], NDArray[np.bool_]]] = []
        self.configurations = np.array([m.configuration for m in self.matchers], np.int64)
        for column, matcher in enumerate(self.matchers):
            if matcher._batch is not None:
                matcher._batch.left_by = matcher
            matcher._batch, matcher._column, matcher._seen = self, column, 0
        self._store: RowStore = self.arena.store

    def accept(self, tokens: Sequence[int] | NDArray[np.int64] | torch.Tensor) -> torch.Tensor:
        """One token for each matcher: who took it, bool [B]. The others stay as they were.

        An id outside of the vocabulary is refused like any other. ValueError for other than [B]
        integers.
        """
        self._check()
        if isinstance(tokens, torch.Tensor):
            tokens = tokens.cpu().numpy()
        given = np.asarray(tokens)
        if given.dtype.kind not in "iu":
            raise ValueError(f"`tokens` is of {given.dtype}; it must be [B] integers, token ids")
        ids = given.astype(np.int64, copy=False)
        if ids.shape != (len(self.matchers),):
            raise ValueError(f"tokens must be [{len(self.matchers)}], not {list(ids.shape)}")
        before = self.configurations
        self.configurations, accepted = self.arena.try_advance(before, ids)
        self._log.append((before, accepted))
        if len(self._log) == LOGGED:
            for matcher in self.matchers:
                self.pull(matcher)
                matcher._seen = 0
            self._log.clear()
        return torch.from_numpy(accepted)

    def row_ids(self) -> torch.Tensor:
        """The rows of the masks, int32 [B], as ids in `rows`."""
        self._check()
        self._store, ids = self.arena.masks(self.configurations)
        return torch.from_numpy(ids)

    @property
    def rows(self) -> torch.Tensor:
        """The rows int32 [N, W] that the last `row_ids` counted in; read only."""
        return self._store.tensor

    def fill(self, out: torch.Tensor) -> None:
        """Write all masks into `out`, int32 [B, W]."""
        self._check()
        shape = (len(self.matchers), self.arena.words)
        if out.shape != shape or out.dtype != torch.int32:
            raise ValueError(f"out must be int32 {list(shape)}, not {out.dtype} {list(out.shape)}")
        self._store, ids = self.arena.masks(self.configurations)
        if out.device.type == "cpu" and out.is_contiguous():
            np.take(self._store.data, ids, axis=0, out=out.numpy(), mode="clip")
        else:
            out.copy_(self._store.tensor[torch.from_numpy(ids).long()])

    def _check(self) -> None:
        if self.left_by is not None:
            raise ValueError(
                f"matcher {self.left_by._column} moved on to another MatcherBatch: use that one"
            )

    def pull(self, matcher: Matcher) -> None:
        """Bring a matcher's own history and position up to date."""
        column, log = matcher._column, self._log
        if matcher._seen == len(log):
            return
        for before, accepted in log[matcher._seen :]:
            if accepted[column]:
                state, node, counter = before[column].tolist()
                matcher._history.append((state, node, counter))
        matcher._seen = len(log)
        state, node, counter = self.configurations[column].tolist()
        matcher._position = matcher.grammar.position((state, node, counter))
