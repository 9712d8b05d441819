"""Every stage and the requests that make it act: one line here puts a stage under the laws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from logitkit import Rows, SamplingParams, Stage, stages


@dataclass(frozen=True, eq=False)
class NearBest(Stage):
    """A user's stage without state: keep logits within a gap of the largest. Neutral: 0."""

    gap: float = 0.0

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        gap = rows["gap"]
        floor = logits.amax(-1, keepdim=True) - gap
        return logits.masked_fill((gap > 0) & (logits < floor), -torch.inf)


@dataclass(frozen=True, eq=False)
class Streak(Stage):
    """A user's stage with a state: penalise a token by how often it was just written in a row."""

    streak: float = 0.0

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        last, length = rows.state(self).unbind(-1)
        token = torch.arange(logits.shape[-1])
        penalty = rows["streak"].float() * length[:, None]
        return torch.where(token == last[:, None], logits - penalty, logits)

    def init(self, columns: dict[str, Tensor]) -> Tensor:
        none = torch.full_like(columns["streak"], -1, dtype=torch.int64)
        return torch.stack([none, torch.zeros_like(none)], -1)  # [B, 2]: token, length

    def advance(self, state: Tensor, tokens: Tensor, columns: dict[str, Tensor]) -> Tensor:
        last, length = state.unbind(-1)
        return torch.stack([tokens, torch.where(tokens == last, length + 1, 1)], -1)


class Case(NamedTuple):
    """A stage, and keywords of `SamplingParams` under which it changes most rows."""

    stage: type[Stage]
    requests: tuple[Mapping[str, Any], ...]

    @property
    def params(self) -> list[SamplingParams]:
        """The requests, each with a seed of its own."""
        return [SamplingParams(sampling_seed=7 + i, **r) for i, r in enumerate(self.requests)]


def case(stage: type[Stage], **fields: Sequence[Any]) -> Case:
    """Field by field the values of the first request, the second, and so on."""
    rows = zip(*fields.values(), strict=True)
    return Case(stage, tuple(dict(zip(fields, row, strict=True)) for row in rows))


BANNED = {0: 5.0, 63: -3.0, 64: float("-inf")}
MANY = {token: 0.25 * token - 4.0 for token in range(32)}
WORDS = [[0], [1, 2], [0, 1, 3], [2, 2]]
# Every text of a to e can go on in both; what else may follow depends on where it is.
GRAMMARS = ["([a-e]{2})*(x[a-e]*)?", "[a-e]*((ab|b)y)?[a-e]*"]
DRY = {
    "dry_multiplier": [0.8, 0.8, 1.5, 0.8],
    "dry_base": [1.75, 1.0, 1.75, 3.0],
    "dry_allowed_length": [2, 1, 2, 2],
    "dry_range": [-1, -1, -1, 5],
    "dry_sequence_breakers": [(), (), ((2,), (0, 1), (3, 1, 2)), ()],
}

CASES = (
    case(stages.AllowedTokenIds, allowed_token_ids=[range(0, 40, 3), [31, 32, 64, 66]]),
    case(stages.LogitBias, logit_bias=[BANNED, MANY]),
    case(stages.BadWords, bad_words_ids=[WORDS, [[3, 0], [65]]]),
    case(stages.RepetitionPenalty, repetition_penalty=[1.3, 0.6]),
    case(stages.PresencePenalty, presence_penalty=[1.5, -0.7]),
    case(stages.FrequencyPenalty, frequency_penalty=[0.9, -0.4]),
    case(stages.Dry, **DRY),
    case(stages.NoRepeatNgram, no_repeat_ngram_size=[1, 2, 3]),
    case(stages.MinNewTokens, min_new_tokens=[3, 99], stop_token_ids=[[4, 66], []]),
    case(stages.Grammar, regex=GRAMMARS),
    case(stages.Temperature, temperature=[0.0, 0.7, 1.9, 1.0], dynatemp_range=[0, 0, 0, 0.8]),
    case(stages.TopNSigma, top_n_sigma=[1.0, 0.3]),
    case(stages.TopH, top_h=[0.3, 0.8, 0.95]),
    case(stages.TopK, top_k=[1, 5, 66]),
    case(stages.TopP, top_p=[0.9, 0.3, 1e-9]),
    case(stages.MinP, min_p=[0.05, 0.5, 1.0]),
    case(stages.TypicalP, typical_p=[0.9, 0.2]),
    case(stages.EpsilonCutoff, epsilon_cutoff=[0.01, 0.3]),
    case(stages.EtaCutoff, eta_cutoff=[0.01, 0.4]),
    case(stages.Xtc, xtc_probability=[1.0, 1.0, 0.5], xtc_threshold=[0.1, 0.02, 0.05]),
    case(NearBest, extra=[{"gap": 2.0}, {"gap": 5.5}]),
    case(Streak, extra=[{"streak": 1.25}, {"streak": -0.5}]),
)
