"""`Speculation`: what a speculative generation tells about itself, and the tally that counts it.

Beside `record`, below `speculative`. It is the field `.speculation` of the output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from time import perf_counter
from typing import Any


class ForwardMode(Enum):
    """What one forward of a model is for (SGLang's names)."""

    EXTEND = "extend"  # the target reads the prompt
    DECODE = "decode"  # the target reads one token per row
    DRAFT_EXTEND = "draft_extend"  # a source proposes
    TARGET_VERIFY = "target_verify"  # the target reads one token and a draft per row


@dataclass(frozen=True)
class Requested:
    """The counts of one row."""

    num_steps: int
    num_drafted: int
    num_accepted: int
    acceptance_by_position: tuple[float, ...]

    @property
    def acceptance_rate(self) -> float:
        """Accepted drafts per drafted token; 0 where none was drafted."""
        return self.num_accepted / self.num_drafted if self.num_drafted else 0.0

    @property
    def mean_accepted_length(self) -> float:
        """Tokens per forward: 1 and the accepted drafts."""
        return 1.0 + self.num_accepted / self.num_steps if self.num_steps else 0.0


@dataclass(frozen=True)
class Speculation(Requested):
    """Totals over the batch, and `requests` row by row.

    `num_target_forwards` counts the prompt's forward too. A token drafted behind the end of a row
    does not count as drafted. `acceptance_by_position[i]` is the share of drafts of more than i
    tokens whose first i + 1 were accepted. `seconds` has "draft", "target" and "pipeline" (stages,
    verification, stops). `share_without_draft` is the share of steps behind the prompt that
    proposed nothing. `by_source` has (drafted, accepted) per source. `forward_modes` lists every
    step. `cost` is the cost table in use at the end: passed as `cost=` it makes a run repeatable.
    """

    num_target_forwards: int
    requests: tuple[Requested, ...]
    seconds: dict[str, float]
    share_without_draft: float
    by_source: dict[str, tuple[int, int]]
    forward_modes: tuple[ForwardMode, ...]
    cost: Any = None


class Tally:
    """Counts while a generation runs."""

    def __init__(self, size: int) -> None:
        self.modes: list[ForwardMode] = []
        self.seconds = {"draft": 0.0, "target": 0.0, "pipeline": 0.0}
        self.num_steps = 0  # the prompt's forward is none
        self._steps = [0] * size
        self._drafted: list[Counter[int]] = [Counter() for _ in range(size)]  # by position
        self._accepted: list[Counter[int]] = [Counter() for _ in range(size)]
        self._by_source: dict[str, list[int]] = {}

    @contextmanager
    def time(self, part: str) -> Iterator[None]:
        begin = perf_counter()
        try:
            yield
        finally:
            self.seconds[part] += perf_counter() - begin

    def step(self, slots: Sequence[int]) -> None:
        """A forward that these running rows take part in, behind the prompt's."""
        self.num_steps += 1
        for slot in slots:
            self._steps[slot] += 1

    def drafted(self, slot: int, label: str, drafted: int, accepted: int) -> None:
        """One row's draft: how many of its tokens were judged, how many were right."""
        self._drafted[slot].update(range(drafted))
        self._accepted[slot].update(range(accepted))
        source = self._by_source.setdefault(label, [0, 0])
        source[0] += drafted
        source[1] += accepted

    def result(self, cost: Any = None) -> Speculation:
        rows = tuple(
            Requested(steps, drafted.total(), accepted.total(), _shares(drafted, accepted))
            for steps, drafted, accepted in zip(
                self._steps, self._drafted, self._accepted, strict=True
            )
        )
        drafted, accepted = sum(self._drafted, Counter()), sum(self._accepted, Counter())
        modes = self.modes
        later = [m for m in modes if m in (ForwardMode.DECODE, ForwardMode.TARGET_VERIFY)]
        return Speculation(
            sum(self._steps), drafted.total(), accepted.total(), _shares(drafted, accepted),
            num_target_forwards=sum(mode != ForwardMode.DRAFT_EXTEND for mode in modes),
            requests=rows,
            seconds=dict(self.seconds),
            share_without_draft=later.count(ForwardMode.DECODE) / len(later) if later else 0.0,
            by_source={name: (d, a) for name, (d, a) in self._by_source.items()},
            forward_modes=tuple(modes),
            cost=cost,
        )  # fmt: skip


def _shares(drafted: Counter[int], accepted: Counter[int]) -> tuple[float, ...]:
    return tuple(accepted[i] / drafted[i] for i in sorted(drafted))
