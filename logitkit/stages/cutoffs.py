"""The wider family of filters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from logitkit.params import SamplingParams
from logitkit.randomness import XTC_STREAM
from logitkit.stage import BuiltinStage


@dataclass(frozen=True, eq=False)
class TopNSigma(BuiltinStage):
    """Keep logits within n deviations of the largest. Neutral: 0."""

    op: ClassVar[str | None] = "top_n_sigma"
    top_n_sigma: float = 0.0


@dataclass(frozen=True, eq=False)
class TopH(BuiltinStage):
    """Keep the best tokens within a share h of the entropy of the 100 best. Neutral: 0."""

    op: ClassVar[str | None] = "top_h"
    top_h: float = 0.0


@dataclass(frozen=True, eq=False)
class TypicalP(BuiltinStage):
    """Keep the tokens whose surprise is nearest to the entropy, up to mass p. Neutral: 1."""

    op: ClassVar[str | None] = "typical_p"
    typical_p: float = 1.0


@dataclass(frozen=True, eq=False)
class EpsilonCutoff(BuiltinStage):
    """Keep tokens of at least this probability, and the best one. Neutral: 0."""

    op: ClassVar[str | None] = "epsilon_cutoff"
    epsilon_cutoff: float = 0.0


@dataclass(frozen=True, eq=False)
class EtaCutoff(BuiltinStage):
    """Keep tokens above an entropy-dependent probability, and the best one. Neutral: 0."""

    op: ClassVar[str | None] = "eta_cutoff"
    eta_cutoff: float = 0.0


@dataclass(frozen=True, eq=False)
class Xtc(BuiltinStage):
    """Now and then cut all but the least of the tokens above a threshold. Neutral: 0."""

    op: ClassVar[str | None] = "xtc"
    stream: ClassVar[int | None] = XTC_STREAM
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1

    def is_neutral(self, params: SamplingParams) -> bool:
        return params.xtc_probability == 0.0
