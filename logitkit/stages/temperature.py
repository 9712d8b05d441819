"""The stage that scales the logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from logitkit.params import SamplingParams
from logitkit.stage import BuiltinStage


@dataclass(frozen=True, eq=False)
class Temperature(BuiltinStage):
    """Divide the logits; 0 keeps the best token only; optionally dynamic. Neutral: 1, range 0."""

    op: ClassVar[str | None] = "temperature"
    temperature: float = 1.0
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0

    def is_neutral(self, params: SamplingParams) -> bool:
        return params.temperature == 1.0 and params.dynatemp_range == 0.0
