"""`Acceptance`: how often proposals turned out right, by source, strength and depth.

Pure, knows no model; below `draft.ledger` and `draft.cascade`. A proposal is judged by the tokens
that were committed in its place, whether or not it was verified, so that a source that stays
unused is judged too.
"""

from __future__ import annotations

from collections.abc import Sequence

_NEW = 0.95  # each observation of a class takes so much of the weight of those before
_TIME = 0.995  # and each token that passes so much of all of them
_PRIOR = 3.0  # observations that the next wider class is worth
_START = 0.5  # what an unknown source is given credit for

_Key = tuple[str, int, int]  # source, strength, depth; -1: all of them


class Acceptance:
    """Discounted counts of right and wrong tokens."""

    def __init__(self) -> None:
        self._counts: dict[_Key, tuple[float, float, float]] = {}  # right, all, when
        self._now = 0.0

    def passed(self, num_tokens: float) -> None:
        """So many tokens were emitted; what was seen before them counts a little less."""
        self._now += num_tokens

    def judge(
        self, label: str, strength: int, proposed: Sequence[int], emitted: Sequence[int]
    ) -> int:
        """Enter a chain beside what was emitted in its place; returns how much of it was right."""
        for depth, (guess, token) in enumerate(zip(proposed, emitted, strict=False)):
            self._enter(label, strength, depth, guess == token)
            if guess != token:
                return depth
        return min(len(proposed), len(emitted))

    def expected(self, label: str, strength: int, length: int) -> list[float]:
        """How many tokens of a chain will be right if it is cut to 0, 1, ..., `length` tokens."""
        total, reach = [0.0], 1.0
        source = self._rate((label, -1, -1), _START)
        wide = self._rate((label, strength, -1), source)
        for depth in range(length):
            reach *= self._rate((label, strength, depth), wide)
            total.append(total[-1] + reach)
        return total

    def _enter(self, label: str, strength: int, depth: int, is_right: bool) -> None:
        for key in ((label, -1, -1), (label, strength, -1), (label, strength, depth)):
            right, count = self._seen(key)
            self._counts[key] = (_NEW * right + is_right, _NEW * count + 1.0, self._now)

    def _rate(self, key: _Key, wider: float) -> float:
        right, count = self._seen(key)
        return (right + _PRIOR * wider) / (count + _PRIOR)

    def _seen(self, key: _Key) -> tuple[float, float]:
        right, count, when = self._counts.get(key, (0.0, 0.0, 0.0))
        faded = _TIME ** (self._now - when)
        return right * faded, count * faded
