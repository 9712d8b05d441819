"""A streamer that keeps what it is given."""

from __future__ import annotations

from torch import Tensor


class Recorder:
    """What it is given, in order; `fails_at` makes the put of that number raise."""

    def __init__(self, fails_at: int = -1) -> None:
        self.puts: list[Tensor] = []
        self.ends = 0
        self.fails_at = fails_at

    @property
    def columns(self) -> list[list[int]]:
        return [put.tolist() for put in self.puts]

    def put(self, value: Tensor) -> None:
        if len(self.puts) == self.fails_at:
            raise KeyboardInterrupt
        self.puts.append(value.clone())

    def end(self) -> None:
        self.ends += 1
