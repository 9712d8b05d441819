"""Each stage that transformers has too, beside transformers' own processor.

On random and on peaked rows the survivors and their values are the same. On rows with ties top-k,
min-p and epsilon are equal too; top-p and typical keep what transformers keeps plus every tie.
"""

from __future__ import annotations

from collections.abc import Callable

import oracle
import pytest
import torch
from helpers import INF, histories, logit_rows
from torch import Tensor
from transformers import (
    EpsilonLogitsWarper,
    EtaLogitsWarper,
    LogitsProcessor,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)
from transformers.generation.logits_process import TopHLogitsWarper

from logitkit import Stage, stages

SIZE = 1000
ROWS = 16
Make = Callable[[float], LogitsProcessor]

FILTERS: dict[str, tuple[type[Stage], Make, tuple[float, ...]]] = {
    "top_h": (stages.TopH, TopHLogitsWarper, (0.21, 0.55, 0.9)),
    "top_k": (stages.TopK, TopKLogitsWarper, (1, 7, 50, 999)),
    "top_p": (stages.TopP, TopPLogitsWarper, (0.1, 0.5, 0.9, 0.97)),
    "min_p": (stages.MinP, MinPLogitsWarper, (0.001, 0.05, 0.6)),
    "typical_p": (stages.TypicalP, TypicalLogitsWarper, (0.1, 0.5, 0.9, 0.97)),
    "epsilon_cutoff": (stages.EpsilonCutoff, EpsilonLogitsWarper, (3e-4, 9e-3, 0.2)),
    "eta_cutoff": (stages.EtaCutoff, EtaLogitsWarper, (3e-4, 9e-3, 0.2)),
}
EXACT_ON_TIES = ("top_k", "min_p", "epsilon_cutoff")


def prompt(num_rows: int = ROWS, length: int = 12) -> Tensor:
    return torch.tensor([(row * 2 + [1, 2] * length)[:length] for row in histories(num_rows, 5)])


def both(name: str, value: float, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Our stage alone and transformers' processor on the same rows."""
    stage, make, _ = FILTERS[name]
    return stage(**{name: value})(prompt(), logits), make(value)(prompt(), logits.clone())


PAIRS = [(name, kind) for name in FILTERS for kind in ("random", "peaked", "spike", "masked")]
PAIRS.remove(("top_h", "spike"))  # the entropy of a spike is lost in their float32


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_filters_keep_the_same_tokens_with_the_same_values(name: str, kind: str) -> None:
    logits, close = logit_rows(ROWS, SIZE, seed=3)[kind], 0
    for value in FILTERS[name][2]:
        ours, theirs = both(name, value, logits)
        for r in range(ROWS):
            if torch.equal(ours[r], theirs[r]):
                continue
            # they sum in float32, so their answer is uncertain within some 1e-5 of the threshold
            _, margin = oracle.chain(logits[r].double().numpy(), {name: value})
            assert margin < 2e-5, f"{name}={value}, row {r}, margin {margin:.1e}"
            close += 1
    assert close <= 2  # of 48 to 64 rows


@pytest.mark.parametrize("name", EXACT_ON_TIES)
def test_top_k_min_p_and_epsilon_are_equal_on_ties(name: str) -> None:
    for kind in ("ties", "flat"):
        for value in FILTERS[name][2]:
            ours, theirs = both(name, value, logit_rows(ROWS, SIZE)[kind])
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", ["top_p", "typical_p"])
def test_top_p_and_typical_keep_theirs_and_every_tie(name: str) -> None:
    more = 0
    logits = logit_rows(ROWS, SIZE)["ties"]
    for value in FILTERS[name][2]:
        ours, theirs = both(name, value, logits)
        for r in range(ROWS):
            kept = theirs[r] > -INF
            tied = torch.isin(logits[r], logits[r][kept].unique())
            assert (ours[r] > -INF).tolist() == tied.tolist()
            more += int(tied.sum() - kept.sum())
    assert (more > 0) == (name == "top_p")  # theirs cuts through ties in top-p only


@pytest.mark.parametrize("temperature", [0.3, 0.7, 1.0, 1.9])
def test_temperature_divides_as_theirs(temperature: float) -> None:
    for logits in logit_rows(ROWS, SIZE).values():
        ours = stages.Temperature(temperature=temperature)(prompt(), logits.float())
        theirs = TemperatureLogitsWarper(temperature)(prompt(), logits.float())
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("penalty", [0.5, 1.2, 3.0])
def test_repetition_penalty_is_theirs(penalty: float) -> None:
    logits = logit_rows(ROWS, SIZE)["random"]
    ours = stages.RepetitionPenalty(repetition_penalty=penalty)(prompt(), logits)
    theirs = RepetitionPenaltyLogitsProcessor(penalty)(prompt(), logits.clone())
    assert torch.equal(ours, theirs)
    assert not torch.equal(ours, logits)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 12, 13])
def test_no_repeat_ngram_is_theirs(size: int) -> None:
    logits = logit_rows(ROWS, SIZE)["random"]
    ours = stages.NoRepeatNgram(no_repeat_ngram_size=size)(prompt(), logits)
    theirs = NoRepeatNGramLogitsProcessor(size)(prompt(), logits.clone())
    assert torch.equal(ours, theirs)
    assert torch.equal(ours, logits) == (size >= 12)


def test_bad_words_are_theirs() -> None:
    words = [[7], [1, 2], [2, 1], [0, 4, 3], [3, 3], [1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2]]
    logits = logit_rows(ROWS, SIZE)["random"]
    ours = stages.BadWords(bad_words_ids=words)(prompt(), logits)
    theirs = NoBadWordsLogitsProcessor(words, eos_token_id=999)(prompt(), logits.clone())
    assert torch.equal(ours, theirs)
    assert (ours == -INF).sum() > ROWS


def test_logit_bias_is_their_sequence_bias_of_single_tokens() -> None:
    bias = {0: 1.5, 7: -2.25, 999: 10.0, 500: -INF}
    logits = logit_rows(ROWS, SIZE)["random"]
    ours = stages.LogitBias(logit_bias=bias)(prompt(), logits)
    theirs = SequenceBiasLogitsProcessor({(t,): b for t, b in bias.items()})(prompt(), logits)
    assert torch.equal(ours, theirs)


def test_min_new_tokens_masks_the_same_tokens_for_as_long() -> None:
    logits, ids = logit_rows(ROWS, SIZE)["random"], prompt()
    stage = stages.MinNewTokens(min_new_tokens=3, stop_token_ids=[4, 9])
    theirs = MinNewTokensLengthLogitsProcessor(ids.shape[1], 3, [4, 9])
    for step in range(5):
        ours = stage(ids, logits)
        assert torch.equal(ours, theirs(ids, logits.clone()))
        assert bool((ours[:, [4, 9]] == -INF).all()) == (step < 3)
        ids = torch.cat([ids, ids[:, :1]], 1)


def test_a_chain_of_stages_equals_their_list() -> None:
    logits = logit_rows(ROWS, SIZE, seed=9)["random"]
    ours, theirs = logits, logits.clone()
    for stage, processor in (
        (stages.RepetitionPenalty(repetition_penalty=1.1), RepetitionPenaltyLogitsProcessor(1.1)),
        (stages.Temperature(temperature=0.7), TemperatureLogitsWarper(0.7)),
        (stages.TopK(top_k=50), TopKLogitsWarper(50)),
        (stages.TopP(top_p=0.9), TopPLogitsWarper(0.9)),
        (stages.MinP(min_p=0.05), MinPLogitsWarper(0.05)),
    ):
        ours, theirs = stage(prompt(), ours), processor(prompt(), theirs)
    assert torch.equal(ours, theirs)
    assert 1 < (ours > -INF).sum(-1).float().mean() < 50


def test_half_precision_rows_come_back_in_their_own_type() -> None:
    for dtype in (torch.bfloat16, torch.float16):
        logits = logit_rows(ROWS, SIZE)["random"].to(dtype)
        ours = stages.TopK(top_k=5)(prompt(), logits)
        assert ours.dtype == dtype
        assert torch.equal(ours, TopKLogitsWarper(5)(prompt(), logits))
