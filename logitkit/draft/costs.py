"""`CostTable`: what a forward of n tokens per row costs, in units of a plain step.

Pure, knows no model; below `draft.ledger`. It begins with what was measured once, and corrects
itself by the steps of the run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median_low
from typing import Any

# v(n) of a batch of at most so many rows. The CPU figures are of SmolLM2-135M, one row of 16 bits
# on two cores, the rest on one; the last sizes a little above what was measured.
_Points = tuple[tuple[int, float], ...]
_CPU_HALF: dict[int, _Points] = {
    1: ((2, 1.02), (3, 1.05), (4, 1.07), (5, 1.09), (6, 1.11), (8, 1.15), (9, 1.18), (12, 1.28),
        (16, 1.36), (32, 1.82), (64, 3.0)),
    2: ((2, 1.01), (3, 1.04), (5, 1.11), (9, 1.29), (17, 1.65), (64, 3.9)),
    4: ((2, 1.03), (3, 1.09), (5, 1.23), (9, 1.59), (17, 2.3), (64, 6.6)),
    16: ((2, 1.05), (3, 1.12), (5, 1.41), (9, 1.95), (17, 3.2), (64, 11.0)),
    64: ((2, 1.3), (3, 1.6), (5, 2.2), (9, 3.6), (17, 6.5), (64, 24.0)),
}  # fmt: skip
_CPU_FLOAT: dict[int, _Points] = {
    1: ((2, 1.61), (3, 2.0), (4, 1.55), (5, 1.76), (6, 1.78), (8, 1.83), (9, 2.02), (12, 2.07),
        (16, 2.39), (32, 3.46), (64, 6.4)),
    2: ((2, 1.1), (3, 1.2), (5, 1.4), (9, 1.9), (17, 3.0), (64, 9.5)),
    4: ((2, 1.28), (3, 1.49), (5, 1.85), (9, 2.63), (17, 4.2), (64, 14.0)),
    8: ((2, 1.43), (3, 1.77), (5, 2.42), (9, 3.53), (17, 5.8), (64, 19.0)),
    16: ((2, 1.65), (3, 2.1), (5, 2.9), (9, 4.7), (17, 8.3), (64, 29.0)),
}  # fmt: skip
# Elsewhere: a forward of so many tokens in all, for a model whose weights fill the memory bus. A
# guess, not measured.
_ACCELERATOR: _Points = (
    (1, 1.0), (8, 1.03), (16, 1.06), (32, 1.12), (64, 1.25), (128, 1.6), (256, 2.6), (512, 4.8),
)  # fmt: skip
_SIZES = (1, 2, 3, 5, 9, 17, 33, 65)

_TRUST = 4  # so many measurements weigh as much as the stored figure
_WINDOW = 15  # of so many of the latest measurements the median counts
_FEWEST = 3  # with fewer there is no median: one stall would be believed
# What a measurement may add to the stored figure; a size that seems dear is not tried again soon.
_MOST = 3.0

Cost = dict[int | str, float]


class CostTable:
    """v(n) for n = 1, 2, ..., and the price of a drafted token for each source.

    `values` maps n to v(n), and a source's label to the price of one of its tokens. Between the
    given n it is a straight line, beyond the last it goes on as at the end. A `frozen` table learns
    nothing, so that a run is repeatable.
    """

    def __init__(self, values: Mapping[int | str, float], *, frozen: bool = False) -> None:
        self.frozen = frozen
        self._stored = sorted((n, v) for n, v in values.items() if isinstance(n, int))
        self._exact = dict(self._stored)
        self._prices = {name: v for name, v in values.items() if isinstance(name, str)}
        self._guesses: dict[str, float] = {}
        self._seconds: dict[int, deque[float]] = {}
        self._draft_seconds: dict[str, deque[float]] = {}
        self._ratios: list[tuple[int, float]] = []  # measured by stored, by n

    @classmethod
    def stored(cls, device: str, is_half: bool, size: int) -> CostTable:
        """The figures to begin with: device type, a dtype of 16 bits or less, rows in the batch."""
        if device != "cpu":
            plain = _line(_ACCELERATOR, size)
            return cls({n: _line(_ACCELERATOR, n * size) / plain for n in _SIZES})
        tables = _CPU_HALF if is_half else _CPU_FLOAT
        points = tables[min((most for most in tables if most >= size), default=max(tables))]
        return cls({1: 1.0, **dict(points)})

    @classmethod
    def given(cls, cost: Any) -> CostTable:
        """The user's `cost=`, frozen: {n: v(n), label: price}, or (v(1), v(2), ...).

        Errors: ValueError.
        """
        if isinstance(cost, Sequence) and not isinstance(cost, str):
            cost = dict(enumerate(cost, 1))
        if not isinstance(cost, Mapping):
            raise ValueError(
                f"`cost` is {cost!r}: give the `.speculation.cost` of an earlier run, or "
                "(v(1), v(2), ...), the time of a forward of n tokens per row in plain steps"
            )
        for name, value in cost.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            is_name = isinstance(name, str) or (type(name) is int and name >= 1)
            if not is_name or not is_number or not 0 <= value < float("inf"):
                raise ValueError(
                    f"`cost`[{name!r}]={value!r}: the keys are numbers of tokens from 1 or names "
                    "of sources, the values numbers from 0"
                )
        if cost.get(1, 1) != 1 or not any(isinstance(n, int) and n > 1 for n in cost):
            raise ValueError("`cost` must hold v(n) for some n > 1, and v(1) is 1 by definition")
        return cls({1: 1.0, **cost}, frozen=True)

    def __call__(self, n: int) -> float:
        """v(n): the time of a forward of `n` tokens per row."""
        if n == 1:
            return 1.0
        return max(self._stored_at(n) * _between(self._ratios, n), 0.1)

    def price(self, label: str, guess: float) -> float:
        """The time of one drafted token of the source `label`."""
        if label in self._prices:
            return self._prices[label]
        self._guesses[label] = guess
        seconds, plain = self._draft_seconds.get(label), self._plain()
        if seconds is None or len(seconds) < _FEWEST or plain is None:
            return guess
        weight = len(seconds)
        return (_TRUST * guess + weight * median_low(seconds) / plain) / (_TRUST + weight)

    def measured(self, n: int, seconds: float) -> None:
        """A forward of `n` tokens per row, with the choice of its tokens, took so long."""
        if self.frozen:
            return
        self._seconds.setdefault(n, deque(maxlen=_WINDOW)).append(seconds)
        plain = self._plain()
        if plain is None:
            return
        changed = list(self._seconds) if n == 1 else [n]
        ratios = dict(self._ratios)
        for m in changed:
            if len(self._seconds[m]) < _FEWEST:
                continue
            weight = min(len(self._seconds[m]), len(self._seconds[1]))
            ratio = median_low(self._seconds[m]) / plain / self._stored_at(m)
            ratios[m] = (_TRUST + weight * min(ratio, _MOST)) / (_TRUST + weight)
        self._ratios = sorted((m, r) for m, r in ratios.items() if m > 1)

    def drafted(self, label: str, num_tokens: int, seconds: float) -> None:
        """The source took so long for a chain of `num_tokens` >= 1 tokens per row."""
        if not self.frozen:
            window = self._draft_seconds.setdefault(label, deque(maxlen=_WINDOW))
            window.append(seconds / num_tokens)

    def values(self) -> Cost:
        """The table as it stands, as a plain dict that `given` takes."""
        values: Cost = {n: self(n) for n in sorted({*self._exact, *dict(self._ratios)})}
        prices = {label: self.price(label, guess) for label, guess in self._guesses.items()}
        return values | self._prices | prices

    def _stored_at(self, n: int) -> float:
        return self._exact[n] if n in self._exact else _line(self._stored, n)

    def _plain(self) -> float | None:
        seconds = self._seconds.get(1, ())
        return median_low(seconds) if len(seconds) >= _FEWEST else None


def _line(points: Sequence[tuple[int, float]], x: int) -> float:
    """The value at `x` of straight lines through `points`, and on as at their end."""
    for (x0, y0), (x1, y1) in pairwise(points):
        if x <= x1 or (x1, y1) == points[-1]:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return points[0][1]


def _between(points: Sequence[tuple[int, float]], x: int) -> float:
    """As `_line`, but it begins at (1, 1) and stays as it is beyond the last point."""
    last = (1, 1.0)
    for point in points:
        if x <= point[0]:
            return _line((last, point), x)
        last = point
    return last[1]
