"""The built-in stages, and the order in which they run by default.

The rule of each stage is a function in `logitkit.ops`; here are its parameters and its columns.
"""

from logitkit.stages.bans import AllowedTokenIds, BadWords, LogitBias, MinNewTokens
from logitkit.stages.cutoffs import EpsilonCutoff, EtaCutoff, TopH, TopNSigma, TypicalP, Xtc
from logitkit.stages.filters import MinP, TopK, TopP
from logitkit.stages.penalties import FrequencyPenalty, PresencePenalty, RepetitionPenalty
from logitkit.stages.repeats import Dry, NoRepeatNgram
from logitkit.stages.structured import Grammar
from logitkit.stages.temperature import Temperature

DEFAULT_STAGES = (
    AllowedTokenIds(),
    LogitBias(),
    BadWords(),
    RepetitionPenalty(),
    PresencePenalty(),
    FrequencyPenalty(),
    Dry(),
    NoRepeatNgram(),
    MinNewTokens(),
    Grammar(),
    Temperature(),
    TopNSigma(),
    TopH(),
    TopK(),
    TopP(),
    MinP(),
    TypicalP(),
    EpsilonCutoff(),
    EtaCutoff(),
    Xtc(),
)

__all__ = [
    "DEFAULT_STAGES",
    "AllowedTokenIds",
    "BadWords",
    "Dry",
    "EpsilonCutoff",
    "EtaCutoff",
    "FrequencyPenalty",
    "Grammar",
    "LogitBias",
    "MinNewTokens",
    "MinP",
    "NoRepeatNgram",
    "PresencePenalty",
    "RepetitionPenalty",
    "Temperature",
    "TopH",
    "TopK",
    "TopNSigma",
    "TopP",
    "TypicalP",
    "Xtc",
]
