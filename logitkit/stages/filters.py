"""The common filters: top-k, top-p, min-p."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from logitkit.stage import BuiltinStage


@dataclass(frozen=True, eq=False)
class TopK(BuiltinStage):
    """Keep the k most probable tokens and all ties of the last. Neutral: 0 (or -1)."""

    op: ClassVar[str | None] = "top_k"
    top_k: int = 0


@dataclass(frozen=True, eq=False)
class TopP(BuiltinStage):
    """Keep the smallest set of most probable tokens whose mass reaches p, and ties. Neutral: 1."""

    op: ClassVar[str | None] = "top_p"
    top_p: float = 1.0


@dataclass(frozen=True, eq=False)
class MinP(BuiltinStage):
    """Keep tokens of at least min_p times the largest probability. Neutral: 0."""

    op: ClassVar[str | None] = "min_p"
    min_p: float = 0.0
