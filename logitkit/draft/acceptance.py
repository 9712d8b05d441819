"""`Acceptance`: how often proposals turn out right, by source, strength and depth.

Pure, knows no model; below `draft.ledger` and `draft.cascade`. A proposal is judged by the tokens
that were committed in its place, whether or not it was verified, so that a source that stays
unused is judged too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

# What sources are given credit for before anything is known, by strength: the share of right first
# tokens, and of right tokens behind right ones. Measured on SmolLM2-135M and
# rounded down; a grammar knows, and a model that somebody chose is worth trying.
PRIORS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "adjacency": (
        (0.22, 0.28, 0.32, 0.36, 0.4, 0.42, 0.5, 0.55, 0.65),
        (0.4, 0.45, 0.45, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5),
    ),
    "grammar": ((0.97,), (0.97,)),
    "model": ((0.7,), (0.7,)),
    "ngram": (
        (0.2, 0.2, 0.4, 0.6, 0.65, 0.7, 0.75, 0.75, 0.85),
        (0.5, 0.5, 0.6, 0.7, 0.75, 0.8, 0.8, 0.8, 0.9),
    ),
}
UNKNOWN = ((0.5,), (0.5,))

_NEW = 0.95  # each observation of a class takes so much of the weight of those before
_TIME = 0.995  # and each token that passes so much of all of them
_TRUST = 4.0  # observations that the credit given is worth

_Key = TypeVar("_Key")


class _Seen(NamedTuple):
    """Discounted counts: right tokens, and how many were judged or expected to be right."""

    right: float = 0.0
    of: float = 0.0
    when: float = 0.0


class Acceptance:
    """Discounted counts of right and wrong tokens."""

    def __init__(self) -> None:
        # By source and depth (first token or later): right against what the priors promised.
        self._promised: dict[tuple[str, bool], _Seen] = {}
        # The same by strength: right against all.
        self._classes: dict[tuple[str, bool, int], _Seen] = {}
        self._now = 0.0

    def passed(self, num_tokens: float) -> None:
        """So many tokens were emitted; what was seen before them counts a little less."""
        self._now += num_tokens

    def judge(
        self, label: str, strength: int, proposed: Sequence[int], emitted: Sequence[int]
    ) -> int:
        """Enter a chain beside what was emitted in its place; returns how much of it was right."""
        for depth, (guess, token) in enumerate(zip(proposed, emitted, strict=False)):
            is_right, later = guess == token, depth > 0
            self._add(self._promised, (label, later), is_right, _prior(label, later, strength))
            self._add(self._classes, (label, later, strength), is_right, 1.0)
            if not is_right:
                return depth
        return min(len(proposed), len(emitted))

    def expected(self, label: str, strength: int, length: int) -> list[float]:
        """How many tokens of a chain will be right if it is cut to 0, 1, ..., `length` tokens."""
        total, reach = [0.0], 1.0
        first, later = (self._rate(label, is_later, strength) for is_later in (False, True))
        for depth in range(length):
            reach *= later if depth else first
            total.append(total[-1] + reach)
        return total

    def _rate(self, label: str, later: bool, strength: int) -> float:
        """The share of right tokens: of the class as far as it was seen, else as promised."""
        promised = self._faded(self._promised.get((label, later)))
        credit = _prior(label, later, strength)
        credit *= (promised.right + _TRUST * credit) / (promised.of + _TRUST * credit)
        seen = self._faded(self._classes.get((label, later, strength)))
        return min(1.0, (seen.right + _TRUST * min(credit, 1.0)) / (seen.of + _TRUST))

    def _add(self, table: dict[_Key, _Seen], key: _Key, is_right: bool, of: float) -> None:
        seen = self._faded(table.get(key))
        table[key] = _Seen(_NEW * seen.right + is_right, _NEW * seen.of + of, self._now)

    def _faded(self, seen: _Seen | None) -> _Seen:
        if seen is None:
            return _Seen()
        share = _TIME ** (self._now - seen.when)
        return _Seen(seen.right * share, seen.of * share, self._now)


def _prior(label: str, later: bool, strength: int) -> float:
    values = PRIORS.get(label, UNKNOWN)[later]
    return values[min(max(strength, 0), len(values) - 1)]
