"""Fixtures of the benchmarks: interleaved timing, and the table of ratios at the end of the run."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

_rows: list[tuple[str, ...]] = []


def interleaved(
    steps: dict[str, Callable[[], Any]],
    before: dict[str, Callable[[], Any]],
    rounds: int,
) -> dict[str, float]:
    """The median time of each step in milliseconds, taken in turn so that noise hits all alike.

    Every timed call follows an untimed one of the same step: warm caches for all.
    """
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            for _ in range(2):
                before.get(name, lambda: None)()
                begin = time.perf_counter()
                step()
                spent = time.perf_counter() - begin
            times[name].append(spent)
    return {name: 1e3 * median(found) for name, found in times.items()}


@pytest.fixture
def compare() -> Callable[..., dict[str, float]]:
    """Time our step beside its peers, note the ratios for the table, and return the medians."""

    def run(
        title: str,
        steps: dict[str, Callable[[], Any]],
        before: dict[str, Callable[[], Any]] | None = None,
        rounds: int = 15,
    ) -> dict[str, float]:
        medians = interleaved(steps, before or {}, rounds)
        first = next(iter(steps))
        for name, value in medians.items():
            ratio = "" if name == first else f"{value / medians[first]:.1f}x"
            _rows.append((title if name == first else "", name, f"{value:.3f}", ratio))
        return medians

    return run


def pytest_terminal_summary() -> None:
    if not _rows:
        return
    table = Table(title="medians of interleaved runs")
    for heading in ("case", "step", "ms", "time / ours"):
        table.add_column(heading, justify="left" if heading in ("case", "step") else "right")
    for row in _rows:
        table.add_row(*row)
    Console(width=120).print(table)
