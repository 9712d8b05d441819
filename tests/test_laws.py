"""The laws of DESIGN.md section 5 over every stage of `cases.py`: the built-in ones, a user's two.

1 default is identity, 2 rows are strangers, 3 kernel equals reference, 4 fused equals eager,
5 draft rows equal stepped rows, 6 keeping n equals never having drafted the rest, 8 minus infinity
is final.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import torch
from cases import CASES, GRAMMARS, Case, NearBest, Streak
from helpers import BACKENDS, INF, bits, histories, logit_rows, start
from torch import Tensor

from logitkit import DEFAULT_STAGES, Batch, Draft, Rows, SamplingParams, Stage
from logitkit.plan import Plan, make_plan

SIZE = 67
USERS = (NearBest(), Streak())
STAGES = (*DEFAULT_STAGES[:9], Streak(), *DEFAULT_STAGES[9:], NearBest())
NEUTRAL = SamplingParams(sampling_seed=5)
EVERYTHING = SamplingParams(
    sampling_seed=23, logit_bias={0: 1.5, 9: -2.0}, bad_words_ids=[[1, 2], [3]],
    repetition_penalty=1.2, presence_penalty=0.3, frequency_penalty=0.2, dry_multiplier=0.5,
    dry_sequence_breakers=[[4]], no_repeat_ngram_size=3, min_new_tokens=20, temperature=0.9,
    dynatemp_range=0.3, top_n_sigma=2.0, top_h=0.95, top_k=30, top_p=0.95, min_p=0.01,
    typical_p=0.95, epsilon_cutoff=1e-3, eta_cutoff=1e-3, xtc_probability=0.5, xtc_threshold=0.1,
    regex=GRAMMARS[0], extra={"gap": 3.0, "streak": 0.5},
)  # fmt: skip
SETS = {case.stage.__name__: case.params for case in CASES} | {"everything": [EVERYTHING] * 2}

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.stage.__name__)
every_set = pytest.mark.parametrize("name", list(SETS))
every_backend = pytest.mark.parametrize("backend", BACKENDS)
every_kernel = pytest.mark.parametrize("backend", [b for b in BACKENDS if b != "torch"])


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def launch(
    params: Sequence[SamplingParams],
    backend: str,
    *,
    stages: Sequence[Stage] = STAGES,
    seed: int = 0,
) -> Batch:
    """A batch whose requests have histories of different length, two thirds of them prompt."""
    prompts = histories(len(params), 5, length=14, seed=seed)
    lengths = [2 * len(p) // 3 for p in prompts]
    return start(params, prompts, SIZE, backend=backend, stages=stages, prompt_lengths=lengths)


def mixed(params: Sequence[SamplingParams], num_rows: int = 8) -> list[SamplingParams]:
    """The requests in turn, a neutral one among them."""
    cycle = [*params, NEUTRAL]
    return [cycle[i % len(cycle)] for i in range(num_rows)]


def outcome(batch: Batch, logits: Tensor, rows: Rows | None = None) -> tuple[Tensor, Tensor]:
    """The processed logits (0 where a row has failed) and the tokens (-1 there)."""
    rows = batch.rows() if rows is None else rows
    tokens, status = batch.plan.draw(logits, rows)
    fine = status == 0
    out = torch.zeros(logits.shape)
    if fine.any():
        out[fine] = batch.plan(logits[fine], rows.select(fine))
    return out, tokens


def assert_same(found: tuple[Tensor, Tensor], want: tuple[Tensor, Tensor]) -> None:
    assert torch.equal(bits(found[0]), bits(want[0]))
    assert torch.equal(found[1], want[1])


def assert_close(found: Tensor, want: Tensor) -> None:
    assert torch.equal(found > -INF, want > -INF)
    torch.testing.assert_close(found, want, rtol=3e-7, atol=0)


def test_every_built_in_stage_has_a_case() -> None:
    assert [case.stage for case in CASES] == [type(s) for s in (*DEFAULT_STAGES, *USERS)]


@every_case
def test_every_case_acts(case: Case) -> None:
    logits = logit_rows(6, SIZE)["random"]
    for params in case.params:
        batch = launch([params] * 6, "torch")
        batch.commit(torch.tensor([[1, 1]] * 6))
        assert not torch.equal(outcome(batch, logits)[0], logits)
        assert [type(stage) for stage in batch.plan.stages] == [case.stage]


# Law 1: default is identity


@every_backend
@pytest.mark.parametrize("kind", list(logit_rows(1, 1)))
def test_neutral_requests_leave_plan_and_logits_alone(kind: str, backend: str) -> None:
    logits = logit_rows(3, SIZE)[kind]
    batch = launch([NEUTRAL, SamplingParams(), SamplingParams(sampling_seed=1)], backend)
    assert batch.plan.stages == ()
    assert torch.equal(bits(batch.plan(logits, batch.rows())), bits(logits.float()))


@every_case
def test_a_neutral_stage_is_identity_even_when_applied(case: Case) -> None:
    stage = case.stage()
    batch = launch([NEUTRAL] * 3, "torch")
    columns = stage.columns(batch.params)
    state = stage.init(columns)
    rows = batch.rows()
    rows.columns, rows.states = columns, {} if state is None else {stage: state}
    for logits in logit_rows(3, SIZE).values():
        assert torch.equal(stage.apply(logits.float(), rows), logits.float())


@every_set
@every_backend
def test_a_neutral_request_beside_others_keeps_its_logits(name: str, backend: str) -> None:
    params = [*SETS[name], NEUTRAL]
    for logits in logit_rows(len(params), SIZE).values():
        batch = launch(params, backend)
        out, _ = outcome(batch, logits)
        assert torch.equal(bits(out[-1:]), bits(logits[-1:].float()))


# Law 2: rows are strangers


@every_set
@every_backend
def test_a_row_alone_gives_the_same_result(name: str, backend: str) -> None:
    params = mixed(SETS[name])
    prompts = histories(8, 5, length=14)
    for logits in logit_rows(8, SIZE).values():
        batch = launch(params, backend)
        together = outcome(batch, logits)
        for r in range(8):
            lengths = [2 * len(prompts[r]) // 3]
            alone = start(
                [params[r]], [prompts[r]], SIZE, backend=backend, stages=STAGES,
                prompt_lengths=lengths, room=1,
            )  # fmt: skip
            row = outcome(alone, logits[r : r + 1])
            assert_same(row, (together[0][r : r + 1], together[1][r : r + 1]))


@every_set
@every_backend
def test_permuted_rows_give_permuted_results(name: str, backend: str) -> None:
    params, order = mixed(SETS[name]), torch.tensor([3, 0, 7, 5, 1, 6, 2, 4])
    prompts = histories(8, 5, length=14)
    lengths = [2 * len(p) // 3 for p in prompts]
    batch = launch(params, backend)
    moved = start(
        [params[i] for i in order], [prompts[i] for i in order], SIZE, backend=backend,
        stages=STAGES, prompt_lengths=[lengths[i] for i in order], room=900,
    )  # fmt: skip
    for logits in logit_rows(8, SIZE).values():
        out, tokens = outcome(batch, logits)
        assert_same(outcome(moved, logits[order]), (out[order], tokens[order]))
        chosen = batch.rows().select(order)
        assert_same(outcome(batch, logits[order], chosen), (out[order], tokens[order]))


@every_set
@every_backend
def test_neighbours_of_any_kind_change_nothing(name: str, backend: str) -> None:
    params = SETS[name]
    prompts = histories(8, 5, length=14)
    lengths = [2 * len(p) // 3 for p in prompts]
    others = [EVERYTHING, SamplingParams(temperature=0.0, sampling_seed=1), NEUTRAL]
    long = [[4] * 300, [0, 1] * 40, []]
    batch = start(
        params, prompts[: len(params)], SIZE, backend=backend, stages=STAGES,
        prompt_lengths=lengths[: len(params)],
    )  # fmt: skip
    beside = start(
        [*others, *params], [*long, *prompts[: len(params)]], SIZE, backend=backend,
        stages=STAGES, prompt_lengths=[2, 80, 0, *lengths[: len(params)]],
    )  # fmt: skip
    for logits in logit_rows(len(params), SIZE, seed=4).values():
        more = torch.cat([torch.full((3, SIZE), float("nan"), dtype=logits.dtype), logits])
        more[2] = -INF
        out, tokens = outcome(beside, more)
        assert_same(outcome(batch, logits), (out[3:], tokens[3:]))


# Law 3: kernel equals reference


@every_set
@every_kernel
def test_kernels_keep_and_draw_what_the_reference_does(name: str, backend: str) -> None:
    params = mixed(SETS[name])
    for seed in range(3):
        for logits in logit_rows(8, SIZE, seed=seed).values():
            want = outcome(launch(params, "torch", seed=seed), logits)
            found = outcome(launch(params, backend, seed=seed), logits)
            assert_close(found[0], want[0])
            assert torch.equal(found[1], want[1])


# Law 4: fused equals eager


@every_set
@every_kernel
def test_a_fused_plan_equals_the_chain_one_by_one(name: str, backend: str) -> None:
    params = mixed(SETS[name])
    for logits in logit_rows(8, SIZE, seed=1).values():
        batch = launch(params, backend)
        ops = batch.plan.ops
        alone = [make_plan([stage], params, ops).runs for stage in batch.plan.stages]
        single = Plan([run for runs in alone for run in runs], ops)
        fused, eager = outcome(batch, logits), _with_plan(batch, single, logits)
        assert_close(fused[0], eager[0])
        assert torch.equal(fused[1], eager[1])


@pytest.mark.parametrize("seed", range(12))
@every_kernel
def test_any_order_of_the_chain_equals_the_stages_one_by_one(backend: str, seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    stages = [STAGES[i] for i in torch.randperm(len(STAGES), generator=g)]
    params = mixed([EVERYTHING, SamplingParams(temperature=0.0, top_k=3, sampling_seed=2)])
    for logits in logit_rows(8, SIZE, seed=seed).values():
        want = outcome(launch(params, "torch", stages=stages), logits)
        found = outcome(launch(params, backend, stages=stages), logits)
        assert_close(found[0], want[0])
        assert torch.equal(found[1], want[1])


def _with_plan(batch: Batch, plan: Plan, logits: Tensor) -> tuple[Tensor, Tensor]:
    other = Batch(batch.params, batch.history, plan, batch.columns, batch.vocab_size)
    other.states = batch.states
    return outcome(other, logits)


# Laws 5 and 6: drafts


def drafted(batch: Batch, k: int = 4) -> Draft:
    """Tokens that repeat each other and the history, so that every stage has something to say."""
    g = torch.Generator().manual_seed(8)
    tokens = torch.randint(5, (len(batch), k), generator=g)
    tokens[:, 1] = tokens[:, 0]
    return Draft(tokens, torch.full((len(batch),), k))


@every_set
@every_backend
def test_draft_rows_equal_stepped_rows(name: str, backend: str) -> None:
    params, k = mixed(SETS[name], 6), 4
    ahead, behind = launch(params, backend), launch(params, backend)
    draft = drafted(ahead, k)
    rows = ahead.rows(draft)
    logits = 3 * torch.randn(6 * (k + 1), SIZE)
    out, tokens = outcome(ahead, logits, rows)
    assert rows.depth.tolist() == list(range(k + 1)) * 6
    for depth in range(k + 1):
        here = rows.depth == depth
        stepped = outcome(behind, logits[here])
        assert_same(stepped, (out[here], tokens[here]))
        if depth < k:
            behind.commit(draft.tokens[:, depth])


@every_set
@every_backend
def test_keeping_n_equals_never_having_drafted_the_rest(name: str, backend: str) -> None:
    params, k = mixed(SETS[name], 6), 4
    ahead, behind = launch(params, backend), launch(params, backend)
    draft = drafted(ahead, k)
    ahead.rows(draft)
    taken = torch.tensor([0, 1, 2, 3, 5, 4])
    tokens = torch.cat([draft.tokens, torch.randint(SIZE, (6, 1))], 1)
    ahead.commit(tokens, taken)
    for i in range(k + 1):
        behind.commit(tokens[:, i], (i < taken).long())
    assert torch.equal(ahead.history.head, behind.history.head)
    for slot in range(6):
        head = int(ahead.history.head[slot])
        assert torch.equal(ahead.history.tokens[slot, :head], behind.history.tokens[slot, :head])
    for state, want in zip(ahead.states.values(), behind.states.values(), strict=True):
        assert torch.equal(state, want)
    logits = 3 * torch.randn(6, SIZE)
    assert_same(outcome(ahead, logits), outcome(behind, logits))
    assert torch.equal(ahead.rows().counts(), behind.rows().counts())
    again = drafted(ahead, 2)
    logits = 3 * torch.randn(18, SIZE)
    found = outcome(ahead, logits, ahead.rows(again))
    assert_same(found, outcome(behind, logits, behind.rows(again)))


# Law 8: minus infinity is final


@every_set
@every_backend
def test_what_is_masked_stays_masked(name: str, backend: str) -> None:
    params = mixed(SETS[name])
    for seed in range(3):
        logits = logit_rows(8, SIZE, seed=seed)["masked"]
        out, tokens = outcome(launch(params, backend), logits)
        drawn = tokens >= 0
        assert (out[drawn][logits[drawn] == -INF] == -INF).all()
        assert (logits[drawn, tokens[drawn]] > -INF).all()
        assert (out[drawn, tokens[drawn]] > -INF).all()


@every_backend
def test_a_stage_that_raises_a_masked_entry_is_overruled(backend: str) -> None:
    class Lift(Stage):
        def apply(self, logits: Tensor, rows: Rows) -> Tensor:
            return torch.full_like(logits, 9.0)

        def is_neutral(self, params: SamplingParams) -> bool:
            return False

    logits = torch.tensor([[1.0, -INF, 2.0, -INF]])
    for stages in ((Lift(), *DEFAULT_STAGES), (*DEFAULT_STAGES, Lift())):
        batch = start(SamplingParams(top_k=2), [[0]], 4, backend=backend, stages=stages)
        assert batch.plan(logits, batch.rows()).tolist() == [[9.0, -INF, 9.0, -INF]]


@every_set
@every_backend
def test_the_callers_logits_are_never_written(name: str, backend: str) -> None:
    batch = launch(mixed(SETS[name]), backend)
    for logits in logit_rows(8, SIZE).values():
        before = logits.clone()
        outcome(batch, logits)
        batch.plan.draw(logits, batch.rows())
        assert torch.equal(logits, before)
        assert logits.stride() == before.stride() or not logits.is_contiguous()
