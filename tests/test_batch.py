"""`Batch`, `Rows` and `History`: what each row sees, and that nothing happens but commits."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from cases import NearBest, Streak
from helpers import start
from torch import Tensor

from logitkit import DEFAULT_STAGES, Batch, Draft, Rows, SamplingParams, Stage, stages
from logitkit.batch import backend_ops, check_chain, expand
from logitkit.params import resolve
from logitkit.randomness import derived_seed, to_int64

PLAIN = SamplingParams(sampling_seed=1)


def two(**options: object) -> Batch:
    """Requests [5, 6, 7] (all prompt) and [5, 5] (one prompt, one output token)."""
    return start(PLAIN, [[5, 6, 7], [5, 5]], 9, prompt_lengths=[3, 1], **options)


def test_rows_know_their_slot_depth_and_position() -> None:
    rows = two().rows()
    assert len(rows) == 2
    assert rows.slot.tolist() == [0, 1]
    assert rows.depth.tolist() == [0, 0]
    assert rows.position.tolist() == [3, 2]
    assert rows.num_generated.tolist() == [0, 1]


def test_rows_count_what_stands_behind_the_prompt() -> None:
    rows = two().rows()
    assert rows.counts().tolist() == [[0] * 9, [0, 0, 0, 0, 0, 1, 0, 0, 0]]
    assert rows.in_prompt().nonzero().tolist() == [[0, 5], [0, 6], [0, 7], [1, 5]]


def test_rows_show_their_tokens_and_the_last_few() -> None:
    rows = two().rows()
    tokens, seen = rows.tokens()
    assert tokens.tolist() == [[5, 6, 7], [5, 5, 0]]
    assert seen.tolist() == [[True, True, True], [True, True, False]]
    assert rows.last(3).tolist() == [[5, 6, 7], [-1, 5, 5]]
    assert rows.last(5).tolist() == [[-1, -1, 5, 6, 7], [-1, -1, -1, 5, 5]]


def test_draft_rows_see_the_drafts_before_them() -> None:
    batch = two()
    rows = batch.rows(Draft(torch.tensor([[1, 2], [3, 3]]), torch.tensor([2, 2])))
    assert rows.slot.tolist() == [0, 0, 0, 1, 1, 1]
    assert rows.depth.tolist() == [0, 1, 2, 0, 1, 2]
    assert rows.position.tolist() == [3, 4, 5, 2, 3, 4]
    assert rows.last(2).tolist() == [[6, 7], [7, 1], [1, 2], [5, 5], [5, 3], [3, 3]]
    assert rows.counts()[:, 3].tolist() == [0, 0, 0, 0, 1, 2]
    assert rows.num_generated.tolist() == [0, 1, 2, 1, 2, 3]
    assert batch.history.head.tolist() == [3, 2]  # nothing is committed


def test_commit_moves_each_head_by_its_own_number() -> None:
    batch = two()
    batch.commit(torch.tensor([[1, 2, 3], [4, 8, 8]]), torch.tensor([3, 1]))
    rows = batch.rows()
    assert rows.position.tolist() == [6, 3]
    assert rows.last(4).tolist() == [[7, 1, 2, 3], [-1, 5, 5, 4]]
    batch.commit(torch.tensor([0, 0]), torch.tensor([0, 1]))
    assert batch.rows().last(2).tolist() == [[2, 3], [4, 0]]
    batch.commit(torch.tensor([6, 6]))
    assert batch.rows().last(2).tolist() == [[3, 6], [0, 6]]


def test_a_refused_draft_leaves_no_trace() -> None:
    batch = two()
    batch.rows(Draft(torch.tensor([[8, 8], [8, 8]]), torch.tensor([2, 2])))
    batch.commit(torch.tensor([1, 1]))
    rows = batch.rows()
    assert rows.counts()[:, 8].tolist() == [0, 0]
    assert rows.last(2).tolist() == [[7, 1], [5, 1]]


def test_the_history_grows_as_needed() -> None:
    batch = two(room=1)
    for step in range(300):
        batch.commit(torch.tensor([step % 9, 8 - step % 9]))
    assert batch.rows().position.tolist() == [303, 302]
    assert batch.rows().last(3).tolist() == [[0, 1, 2], [8, 7, 6]]
    assert batch.history.tokens.shape[1] <= 2 * 303


def test_empty_prompts_are_fine() -> None:
    batch = start(PLAIN, [[], []], 9)
    assert batch.rows().position.tolist() == [0, 0]
    assert batch.rows().last(2).tolist() == [[-1, -1]] * 2
    assert batch.rows().counts().sum() == 0


def test_columns_hold_each_requests_value_and_rows_read_them() -> None:
    params = [SamplingParams(top_p=0.5, sampling_seed=1), PLAIN]
    batch = start(params, [[1], [2]], 9)
    rows = batch.rows(Draft(torch.tensor([[1], [2]]), torch.tensor([1, 1])))
    assert rows["top_p"].tolist() == [[0.5], [0.5], [1.0], [1.0]]
    assert rows["top_p"].dtype == torch.float64
    assert rows.select(torch.tensor([3, 0]))["top_p"].tolist() == [[1.0], [0.5]]


@dataclass(frozen=True, eq=False)
class Warmer(Stage):
    """A user's stage that reads a field of another stage."""

    warmer: float = 0.0

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        return logits * rows["temperature"]


def test_a_users_stage_reads_any_field_whether_or_not_a_neighbour_uses_it() -> None:
    mine = SamplingParams(extra={"warmer": 1.0}, sampling_seed=1)
    logits = torch.tensor([[1.0, 2.0, 3.0]])
    chain = (Warmer(), *DEFAULT_STAGES)
    alone = start(mine, [[5]], 3, stages=chain)
    assert alone.plan.one_line().startswith("Warmer")  # temperature itself is left out
    both = start([mine, SamplingParams(temperature=0.5)], [[5], [5]], 3, stages=chain)
    shown = both.plan(logits.repeat(2, 1), both.rows())
    assert torch.equal(alone.plan(logits, alone.rows())[0], shown[0])


def test_states_follow_the_draft_and_the_commit() -> None:
    stage = Streak()
    params = SamplingParams(extra={"streak": 1.0}, sampling_seed=1)
    batch = start(params, [[5], [5]], 9, stages=(stage,))
    assert batch.rows().state(stage).tolist() == [[-1, 0], [-1, 0]]
    rows = batch.rows(Draft(torch.tensor([[4, 4], [4, 3]]), torch.tensor([2, 2])))
    assert rows.state(stage).tolist() == [[-1, 0], [4, 1], [4, 2], [-1, 0], [4, 1], [3, 1]]
    assert batch.rows().state(stage).tolist() == [[-1, 0], [-1, 0]]
    batch.commit(torch.tensor([[4, 4], [4, 3]]), torch.tensor([2, 1]))
    assert batch.rows().state(stage).tolist() == [[4, 2], [4, 1]]


def test_rows_stay_as_they_were_when_the_batch_goes_on() -> None:
    stage = Streak()
    batch = start(SamplingParams(extra={"streak": 1.0}), [[5]], 9, stages=(stage, *DEFAULT_STAGES))
    rows = batch.rows()
    position, state = rows.position.clone(), rows.state(stage).clone()
    batch.commit(torch.tensor([7]))
    batch.commit(torch.tensor([7]))
    assert torch.equal(rows.position, position) and torch.equal(rows.state(stage), state)
    assert not torch.equal(batch.rows().state(stage), state)


def test_uniform_numbers_depend_on_the_row_alone() -> None:
    params = [SamplingParams(sampling_seed=s) for s in (3, 4, 3)]
    coins = start(params, [[1], [1], [2]], 9).rows().uniform(16).tolist()
    assert coins[0] == coins[2] != coins[1]


def test_missing_seeds_come_from_torchs_generator_in_slot_order() -> None:
    def seeds() -> list[int]:
        torch.manual_seed(11)
        batch = start([SamplingParams(), PLAIN, SamplingParams()], [[1]] * 3, 9)
        found: list[int] = batch.seed.tolist()
        return found

    assert seeds() == seeds()
    assert seeds()[1] == 1
    assert len(set(seeds())) == 3
    big = SamplingParams(sampling_seed=2**64 - 1)
    assert start(big, [[1]], 9).seed.tolist() == [-1]


def test_expand_serves_every_row_and_derives_seeds() -> None:
    base = resolve(SamplingParams(n=2, sampling_seed=9))
    rows = expand([base], 4)
    want = [9, derived_seed(9, 1)] * 2
    assert [row.sampling_seed for row in rows] == want
    other = resolve(SamplingParams(sampling_seed=3))
    assert [row.sampling_seed for row in expand([base, other], 3)] == [*want[:2], 3]
    torch.manual_seed(0)
    fresh = [row.sampling_seed for row in expand([resolve(SamplingParams(n=2))], 4)]
    assert len(set(fresh)) == 4
    assert fresh[1] == derived_seed(int(fresh[0] or 0), 1)
    assert to_int64(derived_seed(9, 1)) == start(rows, [[1]] * 4, 9).seed[1].item()


def test_expand_refuses_row_counts_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"`n`=2 needs a multiple of 2 rows, got 3"):
        expand([resolve(SamplingParams(n=2))], 3)
    with pytest.raises(ValueError, match=r"make 3 rows, but there are 4"):
        expand([resolve(SamplingParams(n=2)), resolve(SamplingParams())], 4)


def test_a_constructed_built_in_stage_is_refused_in_a_chain() -> None:
    with pytest.raises(ValueError, match=r"TopK\(top_k=5\).*SamplingParams\(top_k=\.\.\.\)"):
        start(PLAIN, [[1]], 9, stages=(stages.TopK(top_k=5),))


def test_extra_keys_that_no_stage_declares_are_refused() -> None:
    params = [PLAIN, SamplingParams(extra={"gap": 1.0, "gasp": 2})]
    with pytest.raises(ValueError, match=r"`extra` of request 1 .*gasp"):
        start(params, [[1], [1]], 9, stages=(*DEFAULT_STAGES, NearBest()))


def test_a_request_whose_stage_is_missing_is_refused() -> None:
    chain = (stages.TopK(), stages.Temperature())
    params = [SamplingParams(top_k=3, temperature=0.5), SamplingParams(min_p=0.1)]
    start(params[0], [[1]], 9, stages=chain)
    with pytest.raises(ValueError, match=r"`min_p`=0\.1 of request 1 .*lk\.stages\.MinP"):
        start(params, [[1], [1]], 9, stages=chain)


def test_a_users_constructed_value_serves_requests_without_one() -> None:
    params = [PLAIN, SamplingParams(extra={"gap": 0.0}), SamplingParams(extra={"gap": 4.0})]
    batch = start(params, [[1]] * 3, 9, stages=(NearBest(gap=1.0),))
    assert batch.rows()["gap"].flatten().tolist() == [1.0, 0.0, 4.0]


def test_two_stages_with_one_key_are_refused() -> None:
    @dataclass(frozen=True, eq=False)
    class Other(Stage):
        gap: float = 0.0

    with pytest.raises(ValueError, match=r"two stages .*\['gap'\]"):
        check_chain((NearBest(), Other()), [])


def test_random_streams_must_not_clash() -> None:
    class First(Stage):
        stream = 16

    class Second(Stage):
        stream = 16

    class Low(Stage):
        stream = 4

    check_chain((First(), First()), [])
    with pytest.raises(ValueError, match=r"First and Second both use random stream 16"):
        check_chain((First(), Second()), [])
    with pytest.raises(ValueError, match=r"stream 4; streams below 16"):
        check_chain((Low(),), [])
    with pytest.raises(ValueError, match=r"random stream 4"):
        check_chain((*DEFAULT_STAGES, Low()), [])


def test_only_stages_make_a_chain() -> None:
    with pytest.raises(ValueError, match=r"must hold lk\.Stage objects, got function"):
        check_chain((two,), [])  # type: ignore[arg-type]


def test_a_backend_that_is_asked_for_is_never_replaced() -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert backend_ops("auto", cpu).BACKEND == "numba"
    assert backend_ops("torch", cpu).BACKEND == "torch"
    assert backend_ops("auto", gpu).BACKEND in ("torch", "triton")
    with pytest.raises(ValueError, match=r"`backend`='numba' needs CPU tensors, got cuda"):
        backend_ops("numba", gpu)
    with pytest.raises(ValueError, match=r"`backend` must be one of .*'cuda'"):
        backend_ops("cuda", cpu)


def test_a_stage_with_state_in_the_middle_sees_its_own_columns() -> None:
    @dataclass(frozen=True, eq=False)
    class Sum(Stage):
        start_at: int = 0

        def apply(self, logits: Tensor, rows: object) -> Tensor:
            return logits

        def init(self, columns: dict[str, Tensor]) -> Tensor:
            return columns["start_at"].clone()

        def advance(self, state: Tensor, tokens: Tensor, columns: dict[str, Tensor]) -> Tensor:
            return state + tokens * columns["start_at"]

    stage = Sum()
    params = [SamplingParams(extra={"start_at": n}, sampling_seed=n) for n in (1, 10)]
    batch = start(params, [[], []], 9, stages=(stages.TopK(), stage, stages.TopP()))
    batch.commit(torch.tensor([[2, 3], [2, 3]]), torch.tensor([2, 1]))
    assert batch.states[stage].tolist() == [1 + 2 + 3, 10 + 20]


def test_replay_starts_again_behind_the_prompts() -> None:
    stage = Streak()
    params = SamplingParams(extra={"streak": 1.0}, sampling_seed=1)
    replayed = start(params, [[5, 6], [7]], 9, stages=(stage,), room=1)
    fresh = start(params, [[5, 6], [7]], 9, stages=(stage,))
    replayed.commit(torch.tensor([[1, 1, 1], [2, 2, 2]]))
    tokens, lengths = torch.tensor([[4, 4, 3], [4, 0, 0]]), torch.tensor([3, 1])
    replayed.replay(tokens, lengths)
    fresh.commit(tokens, lengths)
    for batch in (replayed, fresh):
        assert batch.rows().position.tolist() == [5, 2]
        assert batch.rows().last(3).tolist() == [[4, 4, 3], [-1, 7, 4]]
        assert batch.rows().state(stage).tolist() == [[3, 1], [4, 1]]
    assert torch.equal(replayed.rows().counts(), fresh.rows().counts())


def test_padding_of_minus_one_in_a_draft_harms_no_row_that_is_reached() -> None:
    params = [SamplingParams(repetition_penalty=2.0, frequency_penalty=1.0, sampling_seed=1)] * 2
    logits = torch.randn(6, 9, generator=torch.Generator().manual_seed(1))
    drawn = []
    for padding in (-1, 0):
        batch = start(params, [[1, 2], [3]], 9)
        draft = Draft(torch.tensor([[4, 5], [6, padding]]), torch.tensor([2, 1]))
        drawn.append(batch.plan.sample(logits, batch.rows(draft)))
    assert torch.equal(drawn[0], drawn[1])
