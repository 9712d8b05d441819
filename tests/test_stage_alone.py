"""One stage alone in `model.generate(logits_processor=[stage])`, beside transformers' own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from pipeline_models import prompt, tiny_llama
from torch import Tensor
from transformers.generation import logits_process as theirs

import logitkit as lk
from logitkit import Rows, stages

V = 97
INF = float("inf")
# few different tokens, so that n-grams and penalties have something to do
PROMPTS = torch.tensor([[20, 21, 22, 20, 21, 22, 20], [30, 31, 30, 32, 30, 31, 30]])


def run(processor: Any, prompts: Tensor = PROMPTS, **options: Any) -> Any:
    return tiny_llama().generate(
        input_ids=prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=8,
        logits_processor=[processor], output_scores=True, return_dict_in_generate=True,
        pad_token_id=0, **options,
    )  # fmt: skip


PAIRS: list[tuple[Any, Callable[[], Any]]] = [
    (stages.Temperature(temperature=0.7), lambda: theirs.TemperatureLogitsWarper(0.7)),
    (stages.TopK(top_k=7), lambda: theirs.TopKLogitsWarper(7)),
    (stages.TopP(top_p=0.6), lambda: theirs.TopPLogitsWarper(0.6)),
    (stages.MinP(min_p=0.2), lambda: theirs.MinPLogitsWarper(0.2)),
    (stages.TypicalP(typical_p=0.5), lambda: theirs.TypicalLogitsWarper(0.5)),
    (stages.EpsilonCutoff(epsilon_cutoff=0.02), lambda: theirs.EpsilonLogitsWarper(0.02)),
    (stages.EtaCutoff(eta_cutoff=0.1), lambda: theirs.EtaLogitsWarper(0.1)),
    (stages.TopH(top_h=0.4), lambda: theirs.TopHLogitsWarper(0.4)),
    (
        stages.RepetitionPenalty(repetition_penalty=1.7),
        lambda: theirs.RepetitionPenaltyLogitsProcessor(1.7),
    ),
    (
        stages.NoRepeatNgram(no_repeat_ngram_size=2),
        lambda: theirs.NoRepeatNGramLogitsProcessor(2),
    ),
    (
        stages.BadWords(bad_words_ids=((5,), (20, 60), (30, 31, 7))),
        lambda: theirs.NoBadWordsLogitsProcessor([[5], [20, 60], [30, 31, 7]]),
    ),
    (
        stages.LogitBias(logit_bias={3: 2.5, 40: -1.25}),
        lambda: theirs.SequenceBiasLogitsProcessor({(3,): 2.5, (40,): -1.25}),
    ),
    (
        stages.MinNewTokens(min_new_tokens=3, stop_token_ids=(2, 50)),
        lambda: theirs.MinNewTokensLengthLogitsProcessor(7, 3, [2, 50]),
    ),
    (
        stages.AllowedTokenIds(allowed_token_ids=(3, 20, 90)),
        lambda: theirs.PrefixConstrainedLogitsProcessor(lambda *_: [3, 20, 90], num_beams=1),
    ),
]


@pytest.mark.parametrize(("stage", "make_theirs"), PAIRS, ids=lambda x: type(x).__name__)
def test_a_stage_alone_has_the_values_of_transformers_own(
    stage: Any, make_theirs: Callable[[], Any]
) -> None:
    plain, other = run(lambda ids, scores: scores), run(make_theirs())
    changed = False
    for _ in range(2):  # the same object serves a second generate
        out = run(stage)
        assert torch.equal(out.sequences, other.sequences)
        for ours, expected, raw in zip(out.scores, other.scores, plain.scores, strict=True):
            assert torch.equal(ours, expected)
            changed |= not torch.equal(ours, raw)
    assert changed


def test_every_built_in_stage_is_covered() -> None:
    alone = {type(stage) for stage, _ in PAIRS} | {type(stage) for stage, _ in OWN}
    assert alone | {stages.Grammar} == {type(stage) for stage in lk.DEFAULT_STAGES}


def test_a_grammar_alone_is_refused_with_the_way_to_have_one() -> None:
    for stage in (stages.Grammar(regex="a+"), stages.Grammar()):
        with pytest.raises(ValueError, match=r"cannot be used alone.*SamplingParams\(regex="):
            stage(PROMPTS, torch.zeros(2, V))


# Stages that transformers has not, and what SamplingParams say the same.
OWN: list[tuple[Any, dict[str, Any]]] = [
    (stages.PresencePenalty(presence_penalty=0.8), {"presence_penalty": 0.8}),
    (stages.FrequencyPenalty(frequency_penalty=0.8), {"frequency_penalty": 0.8}),
    (
        stages.Dry(dry_multiplier=1.5, dry_allowed_length=1),
        {"dry_multiplier": 1.5, "dry_allowed_length": 1, "dry_sequence_breakers": []},
    ),
    (stages.TopNSigma(top_n_sigma=1.0), {"top_n_sigma": 1.0}),
    (
        stages.Xtc(xtc_probability=1.0, xtc_threshold=0.05),
        {"xtc_probability": 1.0, "xtc_threshold": 0.05},
    ),
]


@pytest.mark.parametrize(("stage", "fields"), OWN, ids=lambda x: type(x).__name__)
def test_a_stage_alone_equals_a_pipeline_with_nothing_else(
    stage: Any, fields: dict[str, Any]
) -> None:
    pipe = lk.LogitsPipeline(lk.SamplingParams(**fields), select=False)
    out, piped = run(stage), run(pipe)
    plain = run(lambda ids, scores: scores)
    assert torch.equal(out.sequences, piped.sequences)
    for ours, expected in zip(out.scores, piped.scores, strict=True):
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-5)
        assert torch.equal(ours == -INF, expected == -INF)
    assert not torch.equal(torch.stack(out.scores), torch.stack(plain.scores))


def test_stages_alone_can_be_chained_and_sampled_from() -> None:
    chain = [stages.TopK(top_k=5), stages.MinP(min_p=0.3)]
    out = tiny_llama().generate(
        input_ids=PROMPTS, attention_mask=torch.ones_like(PROMPTS), max_new_tokens=8, top_k=0,
        do_sample=True, logits_processor=chain, output_scores=True, return_dict_in_generate=True,
        output_logits=True, pad_token_id=0,
    )  # fmt: skip
    kept = [theirs.TopKLogitsWarper(5), theirs.MinPLogitsWarper(0.3)]
    for scores, logits in zip(out.scores, out.logits, strict=True):
        for warper in kept:
            logits = warper(PROMPTS, logits)
        assert torch.equal(scores, logits)


def test_a_stage_alone_keeps_dtype_and_leaves_scores_as_they_are() -> None:
    scores = torch.randn(2, V).half()
    before = scores.clone()
    for stage in (stages.TopK(top_k=3), stages.TopK(), stages.RepetitionPenalty()):
        out = stage(PROMPTS.int(), scores)
        assert out.dtype == torch.float16
        assert torch.equal(scores, before)
        assert out.data_ptr() != scores.data_ptr()
    assert int((stages.TopK(top_k=3)(PROMPTS, scores)[0] > -INF).sum()) >= 3


def test_the_first_ids_are_the_prompt_of_a_stage_alone() -> None:
    stage = stages.PresencePenalty(presence_penalty=1.0)
    scores = torch.zeros(1, V)

    def penalised(tokens: list[int]) -> list[int]:
        return stage(torch.tensor([tokens]), scores).nonzero()[:, 1].tolist()

    first = prompt(5)
    assert penalised(first) == []
    assert penalised([*first, 3]) == [3]
    assert penalised([*first, 3, 5]) == [3, 5]
    assert penalised([*first, 7]) == [7]
    assert penalised(prompt(5, 1)) == []
    assert penalised(prompt(5, 1)[:3]) == []
    assert penalised([*first, 3, 5, 7]) == []


def test_xtc_alone_throws_new_coins_in_every_generation() -> None:
    stage = stages.Xtc(xtc_probability=0.5, xtc_threshold=0.001)
    scores = torch.randn(64, V)
    x = torch.tensor([prompt(3)] * 64)

    def coins() -> list[bool]:
        cut = [bool((row == -INF).any()) for row in stage(x, scores)]
        stage(torch.cat([x, x[:, :1]], 1), scores)
        return cut

    first, second = coins(), coins()
    assert 8 < sum(first) < 56  # each bound is missed with a probability below 1e-9
    assert first != second
    torch.manual_seed(1)
    third = coins()
    torch.manual_seed(1)
    assert coins() == third


@dataclass(frozen=True, eq=False)
class Shout(lk.Stage):
    """A user's stage: adds to tokens of the prompt, and less to those already said."""

    shout: float = 0.0

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        return logits + rows["shout"] * rows.in_prompt() - rows.counts()


def test_a_users_stage_works_alone() -> None:
    scores, stage = torch.zeros(2, V), Shout(shout=2.0)
    x = torch.tensor([[5, 6], [7, 7]])
    assert stage(x, scores)[0, [5, 6, 7]].tolist() == [2, 2, 0]
    out = stage(torch.tensor([[5, 6, 6], [7, 7, 8]]), scores)
    assert out[0, [5, 6, 7, 8]].tolist() == [2, 1, 0, 0]
    assert out[1, [5, 6, 7, 8]].tolist() == [0, 0, 2, -1]
    new = run(Shout(shout=100.0)).sequences[:, 7:]
    assert set(new[0].tolist()) <= {20, 21, 22}
    assert set(new[1].tolist()) <= {30, 31, 32}


@dataclass(frozen=True, eq=False)
class Counter(lk.Stage):
    """A user's stage with a state."""

    step: float = 0.0

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        return logits + rows["step"] * rows.state(self)[:, None]

    def init(self, columns: dict[str, Tensor]) -> Tensor:
        return torch.zeros(len(columns["step"]))

    def advance(self, state: Tensor, tokens: Tensor, columns: dict[str, Tensor]) -> Tensor:
        return state + tokens


def test_a_stage_with_a_state_needs_a_pipeline() -> None:
    stage = Counter(step=1.0)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"Counter keeps a state.*LogitsPipeline"):
            stage(PROMPTS, torch.zeros(2, V))
    params = lk.SamplingParams(extra={"step": 1.0})
    pipe = lk.LogitsPipeline(params, stages=(Counter(),), select=False)
    pipe(PROMPTS, torch.zeros(2, V))
    grown = torch.cat([PROMPTS, torch.tensor([[3], [4]])], 1)
    assert pipe(grown, torch.zeros(2, V))[:, 0].tolist() == [3.0, 4.0]
    other = torch.cat([PROMPTS, torch.tensor([[9, 1], [4, 4]])], 1)
    assert pipe(other, torch.zeros(2, V))[:, 0].tolist() == [10.0, 8.0]  # walked anew
    assert pipe(grown.flip(0), torch.zeros(2, V))[:, 0].tolist() == [0.0, 0.0]  # another prompt


def test_wrong_values_of_a_stage_alone_are_refused() -> None:
    with pytest.raises(ValueError, match="`top_k`"):
        stages.TopK(top_k=-5)
    with pytest.raises(ValueError, match=r"`logit_bias`.*500"):
        stages.LogitBias(logit_bias={500: 1.0})(PROMPTS, torch.zeros(2, V))
    with pytest.raises(ValueError, match=r"SamplingParams\(top_k=\.\.\.\)"):
        lk.LogitsPipeline(lk.SamplingParams(), stages=(stages.TopK(top_k=5),))
