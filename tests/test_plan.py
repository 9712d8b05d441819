"""`Plan`: what is fused with what, how it explains itself, and errors that name the stage."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from cases import NearBest
from helpers import BACKENDS, INF, start
from torch import Tensor

from logitkit import (
    DEFAULT_STAGES,
    BadLogitsError,
    EmptyRowError,
    RowError,
    Rows,
    SamplingParams,
    Stage,
    stages,
)

CORE = SamplingParams(
    repetition_penalty=1.1, temperature=0.7, top_k=3, top_p=0.9, min_p=0.05, sampling_seed=1
)
every_backend = pytest.mark.parametrize("backend", BACKENDS)


@dataclass(frozen=True, eq=False)
class OnlyEven(Stage):
    """A user's stage that masks odd tokens: it can empty a row."""

    even: bool = False

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        odd = torch.arange(logits.shape[-1]) % 2 == 1
        return logits.masked_fill(rows["even"] & odd, -INF)


@dataclass(frozen=True, eq=False)
class Broken(Stage):
    """A user's stage that makes a NaN."""

    broken: bool = False

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        return torch.where(rows["broken"], torch.nan, logits)


def test_neighbours_in_the_kernels_order_are_one_run() -> None:
    batch = start(CORE, [[1]], 9, backend="numba")
    assert [len(run.stages) for run in batch.plan.runs] == [5]
    assert str(batch.plan).splitlines()[0] == (
        "fused[numba](repetition_penalty temperature top_k top_p min_p draw)"
    )
    assert "5 stages in 1 fused and 0 single calls on the backend 'numba'" in str(batch.plan)
    assert "fused[numba]" in repr(batch.plan)


def test_the_reference_applies_one_by_one() -> None:
    plan = start(CORE, [[1]], 9, backend="torch").plan
    assert plan.one_line() == (
        "RepetitionPenalty -> Temperature -> TopK -> TopP -> MinP -> fused[torch](draw)"
    )


def test_a_users_stage_in_the_middle_splits_the_run() -> None:
    chain = [*DEFAULT_STAGES]
    chain.insert(chain.index(next(s for s in chain if s.op == "top_p")), NearBest(gap=1.0))
    plan = start(CORE, [[1]], 9, backend="numba", stages=chain).plan
    assert plan.one_line() == (
        "fused[numba](repetition_penalty temperature top_k) -> NearBest -> "
        "fused[numba](top_p min_p draw)"
    )
    assert "6 stages in 2 fused and 1 single calls" in str(plan)


def test_another_order_makes_several_runs() -> None:
    chain = (stages.MinP(), stages.TopP(), stages.TopK(), stages.Temperature(), stages.TopK())
    params = SamplingParams(temperature=0.7, top_k=3, top_p=0.9, min_p=0.05)
    plan = start(params, [[1]], 9, backend="numba", stages=chain).plan
    assert [[s.op for s in run.stages] for run in plan.runs] == [
        ["min_p"], ["top_p"], ["top_k"], ["temperature", "top_k"],
    ]  # fmt: skip


def test_stages_that_no_request_uses_are_left_out() -> None:
    params = [SamplingParams(top_k=2, sampling_seed=1), SamplingParams(min_p=0.1, sampling_seed=2)]
    plan = start(params, [[1], [1]], 9, backend="numba").plan
    assert [type(stage) for stage in plan.stages] == [stages.TopK, stages.MinP]
    empty = start(SamplingParams(), [[1]], 9, backend="numba").plan
    assert empty.one_line() == "fused[numba](draw)"


@every_backend
def test_order_matters_and_is_kept(backend: str) -> None:
    # logits 2 1 0 -1: p = .644 .237 .087 .032; min_p .3 keeps two (.237 / .644 = .368).
    # Penalised at 0 by 2: 1 1 0 -1. In this order min_p sees the penalty, in the other it does not.
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
    params = SamplingParams(repetition_penalty=2.0, min_p=0.35, sampling_seed=1)
    first = start(
        params, [[0]], 4, backend=backend, stages=(stages.RepetitionPenalty(), stages.MinP())
    )
    assert first.plan(logits, first.rows()).tolist() == [[1.0, 1.0, 0.0, -INF]]
    last = start(
        params, [[0]], 4, backend=backend, stages=(stages.MinP(), stages.RepetitionPenalty())
    )
    assert last.plan(logits, last.rows()).tolist() == [[1.0, 1.0, -INF, -INF]]


@every_backend
def test_sample_draws_from_what_the_plan_leaves(backend: str) -> None:
    params = [SamplingParams(top_k=2, sampling_seed=seed) for seed in range(200)]
    batch = start(params, [[1]] * 200, 50, backend=backend)
    logits = torch.randn(50).expand(200, -1)
    kept = set(logits[0].topk(2).indices.tolist())
    assert set(batch.plan.sample(logits, batch.rows()).tolist()) == kept
    assert ((batch.plan(logits, batch.rows()) > -INF).sum(-1) == 2).all()


@every_backend
def test_an_observer_sees_the_logits_after_each_stage(backend: str) -> None:
    batch = start(CORE, [[1, 2]], 9, backend=backend)
    logits, seen = torch.randn(1, 9), []
    out = batch.plan(logits, batch.rows(), observer=lambda s, x: seen.append((s.op, x.clone())))
    assert [op for op, _ in seen] == [s.op for s in batch.plan.stages]
    expected = logits
    for stage, (_, after) in zip(batch.plan.stages, seen, strict=True):
        expected = stage.apply(expected, batch.rows())
        assert torch.equal(after, expected)
    assert torch.equal(out, expected)
    assert torch.equal(batch.plan(logits, batch.rows()) > -INF, out > -INF)


@every_backend
def test_an_empty_row_names_the_request_and_the_stage(backend: str) -> None:
    chain = (*DEFAULT_STAGES, OnlyEven())
    params = [
        SamplingParams(extra={"even": True}, allowed_token_ids=[1, 3], sampling_seed=1),
        SamplingParams(extra={"even": True}, top_k=4, sampling_seed=2),
    ]
    batch = start(params, [[1], [1, 2]], 6, backend=backend, stages=chain)
    logits = torch.randn(2, 6)
    with pytest.raises(EmptyRowError, match=r"request 0, position 1: .*by the stage OnlyEven") as e:
        batch.plan.sample(logits, batch.rows())
    assert e.value.slots == (0,)
    assert e.value.tokens is not None
    assert e.value.tokens[0] == -1
    assert e.value.tokens[1] % 2 == 0
    with pytest.raises(EmptyRowError, match="OnlyEven"):
        batch.plan(logits, batch.rows())


@every_backend
def test_each_stage_that_can_empty_a_row_is_named(backend: str) -> None:
    requests = {
        "AllowedTokenIds": SamplingParams(allowed_token_ids=[0, 1], top_p=0.5),
        "LogitBias": SamplingParams(logit_bias={2: -INF, 3: -INF}, top_p=0.5),
        "BadWords": SamplingParams(bad_words_ids=[[0, 2], [3]], top_p=0.5),
        "NoRepeatNgram": SamplingParams(no_repeat_ngram_size=1, top_p=0.5),
        "MinNewTokens": SamplingParams(min_new_tokens=5, stop_token_ids=[2], top_p=0.5),
    }
    logits = torch.tensor([[-INF, -INF, 1.0, 0.5]])
    for name, params in requests.items():
        batch = start(params, [[2, 3, 0]], 4, backend=backend)
        with pytest.raises(EmptyRowError, match=f"by the stage {name}$"):
            batch.plan.sample(logits, batch.rows())


@every_backend
def test_a_row_that_comes_empty_is_said_to(backend: str) -> None:
    batch = start(CORE, [[1]], 5, backend=backend)
    with pytest.raises(EmptyRowError, match="before the first stage"):
        batch.plan.sample(torch.full((1, 5), -INF), batch.rows())


@every_backend
def test_bad_logits_name_where_they_came_from(backend: str) -> None:
    params = [CORE, SamplingParams(extra={"broken": True}, sampling_seed=1)]
    batch = start(params, [[1], [1]], 5, backend=backend, stages=(*DEFAULT_STAGES, Broken()))
    logits = torch.zeros(2, 5)
    with pytest.raises(BadLogitsError, match=r"request 1, .* by the stage Broken") as e:
        batch.plan.sample(logits, batch.rows())
    assert e.value.slots == (1,)
    logits[0, 3] = INF
    with pytest.raises(BadLogitsError, match=r"request 0, .*as the model gave them.*\[0, 1\]") as e:
        batch.plan.sample(logits, batch.rows())
    assert e.value.slots == (0, 1)
    assert issubclass(BadLogitsError, RowError)


@every_backend
def test_bad_rows_hurt_nobody_else(backend: str) -> None:
    params = [SamplingParams(top_k=2, sampling_seed=seed) for seed in range(4)]
    logits = torch.randn(4, 30)
    whole = start(params, [[1]] * 4, 30, backend=backend)
    want = whole.plan.sample(logits, whole.rows())
    logits[1] = -INF
    logits[2, 7] = torch.nan
    tokens, status = whole.plan.draw(logits, whole.rows())
    assert status.tolist() == [0, 1, 2, 0]
    assert tokens.tolist() == [want[0], -1, -1, want[3]]


@every_backend
def test_greedy_takes_the_best_after_edits_and_skips_filters(backend: str) -> None:
    params = SamplingParams(
        temperature=0.0, repetition_penalty=2.0, xtc_probability=1.0, top_k=3, typical_p=0.1,
        sampling_seed=1,
    )  # fmt: skip
    logits = torch.tensor([[4.0, 3.0, 3.0, 1.0]])
    batch = start(params, [[0]], 4, backend=backend)
    assert batch.plan.sample(logits, batch.rows()).tolist() == [1]
    assert batch.plan(logits, batch.rows()).tolist() == [[-INF, 3.0, -INF, -INF]]
    # the filters may also stand before the temperature
    chain = (*DEFAULT_STAGES[10:], *DEFAULT_STAGES[:10])
    batch = start(params, [[0]], 4, backend=backend, stages=chain)
    assert batch.plan.sample(logits, batch.rows()).tolist() == [1]


@every_backend
def test_the_draw_of_the_last_run_equals_a_draw_from_the_processed_row(backend: str) -> None:
    chains = (DEFAULT_STAGES, (*DEFAULT_STAGES, NearBest(gap=3.0)), DEFAULT_STAGES[::-1])
    plain = start([SamplingParams(sampling_seed=s) for s in range(20)], [[1]] * 20, 300)
    logits = 3 * torch.randn(20, 300)
    for chain in chains:
        params = [SamplingParams(top_k=9, temperature=0.8, sampling_seed=s) for s in range(20)]
        batch = start(params, [[1]] * 20, 300, backend=backend, stages=chain)
        processed = batch.plan(logits, batch.rows())
        tokens = batch.plan.sample(logits, batch.rows())
        assert torch.equal(tokens, plain.plan.sample(processed, plain.rows()))


@dataclass(frozen=True, eq=False)
class OnlySeven(Stage):
    """A stage without fields: it always runs."""

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        return logits.masked_fill(torch.arange(logits.shape[-1]) != 7, -torch.inf)


def test_a_stage_without_fields_always_runs() -> None:
    batch = start(SamplingParams(), [[1]], 9, stages=(OnlySeven(), *DEFAULT_STAGES))
    assert batch.plan.sample(torch.zeros(1, 9), batch.rows()).tolist() == [7]


@pytest.mark.parametrize("result", [None, torch.zeros(1, 3)])
def test_a_users_stage_that_returns_something_else_is_named(result: Tensor | None) -> None:
    @dataclass(frozen=True, eq=False)
    class Broken(Stage):
        def apply(self, logits: Tensor, rows: Rows) -> Tensor:
            return result  # type: ignore[return-value]

    batch = start(SamplingParams(), [[1]], 9, stages=(Broken(),))
    with pytest.raises(ValueError, match=r"Broken\.apply must return logits of shape \(1, 9\)"):
        batch.plan.sample(torch.zeros(1, 9), batch.rows())


@pytest.mark.parametrize("value", ["x", None, [1, 2], torch.ones(3)])
def test_extra_values_that_are_no_numbers_name_stage_and_request(value: object) -> None:
    @dataclass(frozen=True, eq=False)
    class Scaled(Stage):
        scale: float = 0.0

        def apply(self, logits: Tensor, rows: Rows) -> Tensor:
            return logits

    with pytest.raises(ValueError, match=r"`scale`=.* of request 0: Scaled keeps one number"):
        start(SamplingParams(extra={"scale": value}), [[1]], 9, stages=(Scaled(),))


def test_an_unknown_column_is_named_beside_those_there_are() -> None:
    batch = start(SamplingParams(top_k=2), [[1]], 9)
    with pytest.raises(KeyError, match=r"'zzz' is no column .*top_k"):
        batch.rows()["zzz"]


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_temperature_zero_is_the_argmax_behind_the_last_stage(backend: str) -> None:
    # 5 / 3 < 4: the penalty behind the temperature still counts
    chain = (stages.Temperature(), stages.RepetitionPenalty(), OnlySeven())
    params = SamplingParams(temperature=0, repetition_penalty=3.0)
    logits = torch.tensor([[5.0, 4.0, 1.0]])
    batch = start(params, [[0]], 3, stages=chain[:2], backend=backend)
    assert batch.plan.sample(logits, batch.rows()).tolist() == [1]
    kept = batch.plan(logits, batch.rows())
    assert kept.tolist() == [[-torch.inf, 4.0, -torch.inf]]
    batch = start(params, [[0]], 9, stages=chain, backend=backend)
    wide = torch.arange(9.0)[None]
    assert batch.plan.sample(wide, batch.rows()).tolist() == [7]


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_a_dynamic_temperature_near_zero_keeps_the_best(backend: str) -> None:
    params = SamplingParams(temperature=1.0, dynatemp_range=1.0)
    batch = start([params] * 3, [[1]] * 3, 2, backend=backend)
    logits = torch.tensor([[50.0, -50.0], [40.0, -40.0], [100.0, -100.0]])
    assert batch.plan.sample(logits, batch.rows()).tolist() == [0, 0, 0]


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_what_an_edit_overflows_is_bad_though_it_is_banned_later(backend: str, split: bool) -> None:
    chain = (*DEFAULT_STAGES[:5], OnlySeven(), *DEFAULT_STAGES[5:]) if split else DEFAULT_STAGES
    params = SamplingParams(repetition_penalty=1e-30, no_repeat_ngram_size=1)
    batch = start(params, [[0, 0]], 8, stages=chain, backend=backend)
    logits = torch.tensor([[1e9, 1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0]])
    with pytest.raises(BadLogitsError, match="RepetitionPenalty"):
        batch.plan.sample(logits, batch.rows())


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_nan_made_by_edits_is_seen(backend: str) -> None:
    params = SamplingParams(presence_penalty=-3e38, frequency_penalty=3e38)
    batch = start(params, [[0]], 3, backend=backend)
    batch.commit(torch.tensor([[0, 0]]))
    with pytest.raises(BadLogitsError):
        batch.plan.sample(torch.tensor([[3e38, 0.0, 1.0]]), batch.rows())


@dataclass(frozen=True, eq=False)
class InPlace(Stage):
    """A user's stage that overwrites what it is given, masked tokens too."""

    flat: bool = False

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        return logits.fill_(0.0)


@dataclass(frozen=True, eq=False)
class Strict(Stage):
    """A user's stage that draws from every row, and so fails where a row has no token."""

    strict: bool = False

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        torch.multinomial(logits.softmax(-1), 1)
        return logits


@every_backend
def test_a_stage_that_edits_in_place_brings_no_masked_token_back(backend: str) -> None:
    params = SamplingParams(extra={"flat": True})
    batch = start(params, [[1]], 3, stages=(InPlace(), *DEFAULT_STAGES), backend=backend)
    logits = torch.tensor([[0.0, -INF, 1.0]])
    assert batch.plan(logits, batch.rows()).tolist() == [[0.0, -INF, 0.0]]
    assert logits.tolist() == [[0.0, -INF, 1.0]]


@every_backend
@pytest.mark.parametrize("place", [0, len(DEFAULT_STAGES)])
@pytest.mark.parametrize("observed", [False, True])
def test_a_row_without_tokens_fails_no_stage_and_no_neighbour(
    backend: str, place: int, observed: bool
) -> None:
    params = SamplingParams(extra={"strict": True}, temperature=0.5)
    chain = (*DEFAULT_STAGES[:place], Strict(), *DEFAULT_STAGES[place:])
    batch = start([params] * 3, [[1]] * 3, 3, stages=chain, backend=backend)
    logits = torch.tensor([[-INF] * 3, [0.0, float("nan"), 1.0], [0.0, 1.0, 2.0]])
    seen: list[Tensor] = []
    with pytest.raises(BadLogitsError, match="requests \\[0, 1\\] failed"):
        observer = (lambda stage, out: seen.append(out[2])) if observed else None
        batch.plan(logits, batch.rows(), observer)
    if not observed:
        with pytest.raises(BadLogitsError) as caught:
            batch.plan.sample(logits, batch.rows())
        assert caught.value.tokens is not None
        assert caught.value.tokens[:2].tolist() == [-1, -1] and caught.value.tokens[2] >= 0
    else:
        assert len(seen) == 2
