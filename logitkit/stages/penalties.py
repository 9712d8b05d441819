"""Stages that penalise tokens for having appeared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from logitkit.stage import BuiltinStage


@dataclass(frozen=True, eq=False)
class RepetitionPenalty(BuiltinStage):
    """Divide (or multiply, below zero) the logits of prompt and output tokens. Neutral: 1."""

    op: ClassVar[str | None] = "repetition_penalty"
    repetition_penalty: float = 1.0


@dataclass(frozen=True, eq=False)
class PresencePenalty(BuiltinStage):
    """Subtract a constant from the logits of output tokens. Neutral: 0."""

    op: ClassVar[str | None] = "presence_penalty"
    presence_penalty: float = 0.0


@dataclass(frozen=True, eq=False)
class FrequencyPenalty(BuiltinStage):
    """Subtract a constant per occurrence from the logits of output tokens. Neutral: 0."""

    op: ClassVar[str | None] = "frequency_penalty"
    frequency_penalty: float = 0.0
