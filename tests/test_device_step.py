"""A decode step on a device reads nothing back but the tokens, for the stop check.

Meta tensors have shapes and no values, so whoever reads one fails: they stand in for a GPU. The
kernels of `triton_ops` are counted instead of launched; all that surrounds them is real.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers import start
from torch import Tensor

import triton_ops
from logitkit import DEFAULT_STAGES, Batch, Draft, Rows, SamplingParams, Stage
from logitkit.generation.call import Generation
from logitkit.generation.progress import Progress
from logitkit.generation.record import Record
from logitkit.generation.strategy import take
from logitkit.ops import ORDER, reference
from logitkit.sampler import Sampler
from logitkit.stops import StopRules
from triton_ops import commit, fsm, kernel, launch

WIDTH, META = 90, torch.device("meta")
CHAIN: dict[str, Any] = {
    "repetition_penalty": 1.1, "presence_penalty": 0.1, "frequency_penalty": 0.2,
    "temperature": 0.8, "top_k": 50, "top_p": 0.95, "min_p": 0.02,
}  # fmt: skip
FUSED: dict[str, dict[str, Any]] = {
    "nothing": {},
    "the default chain": CHAIN,
    "edits": {
        "allowed_token_ids": [1, 2], "logit_bias": {3: 1.0}, "bad_words_ids": [[4, 5]],
        "no_repeat_ngram_size": 2, "min_new_tokens": 3, "stop_token_ids": [7],
    },
    "a regular grammar": {"regex": "[a-e]*", "temperature": 0.5},
    "greedy": {"temperature": 0.0, "repetition_penalty": 1.2},
    "told log-probabilities": CHAIN | {"logprobs": 0, "logprob_mode": "filtered"},
    "rare filters": {"top_n_sigma": 2.0, "epsilon_cutoff": 1e-3, "eta_cutoff": 1e-3},
}  # fmt: skip
EAGER: dict[str, dict[str, Any]] = {
    "top_h": {"top_h": 0.5, "top_k": 5},
    "typical_p": {"top_k": 5, "typical_p": 0.9, "epsilon_cutoff": 1e-3},
    "xtc": {"xtc_probability": 0.5},
}


@dataclass(frozen=True, eq=False)
class Everything(Stage):
    """A user's stage that asks all that a row may be asked, and keeps a state."""

    everything: float = 0.0
    stream = 16

    def init(self, columns: dict[str, Tensor]) -> Tensor:
        return torch.zeros_like(columns["everything"])

    def advance(self, state: Tensor, tokens: Tensor, columns: dict[str, Tensor]) -> Tensor:
        return state + tokens

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        coin = rows.uniform(16)[:, None] + rows.state(self)[:, None] + rows["everything"]
        counts = rows.counts() + rows.in_prompt() + rows.last(2).sum(1, keepdim=True)
        return logits - (coin * counts * rows.num_generated[:, None]).float()


class Kernel:
    """Counts launches and does nothing."""

    def __init__(self) -> None:
        self.launches = 0

    def __getitem__(self, grid: Any) -> Any:
        def run(*arguments: Any, **named: Any) -> None:
            self.launches += 1

        return run


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> dict[str, Kernel]:
    """Batches on the meta device have Triton's backend, whose kernels are these."""
    found = {name: Kernel() for name in ("run_rows", "append_tokens", "fold_tokens")}
    for module, name in ((kernel, "run_rows"), (commit, "append_tokens"), (fsm, "fold_tokens")):
        monkeypatch.setattr(module, name, found[name])
    monkeypatch.setattr(launch, "processors_of", lambda device: 132)
    monkeypatch.setattr("logitkit.batch.backend_ops", lambda backend, device: triton_ops)
    return found


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The tokens of the stop check: every read of a whole tensor is counted and gives twos."""
    shapes: list[list[int]] = []

    def read(tensor: Tensor) -> Any:
        shapes.append(list(tensor.shape))
        return torch.full(tensor.shape, 2).numpy().tolist()

    monkeypatch.setattr(Tensor, "tolist", read)
    return shapes


def batch_of(fields: Sequence[dict[str, Any]], **options: Any) -> Batch:
    params = [SamplingParams(**{"sampling_seed": i} | f) for i, f in enumerate(fields)]
    prompts = [[1, 2], [3]] + [[4]] * (len(fields) - 2)
    return start(params, prompts[: len(fields)], WIDTH, device=META, **options)


def generation_of(batch: Batch, limits: Sequence[int]) -> Generation:
    """A generation whose model is nobody's concern here."""
    prompts = torch.zeros(len(batch), 2, dtype=torch.int64, device=META)
    rules = [StopRules(p, None, limit) for p, limit in zip(batch.params, limits, strict=True)]
    return Generation(
        lm=SimpleNamespace(),  # type: ignore[arg-type]
        batch=batch,
        sampler=Sampler(batch.plan, batch.params),
        progress=Progress(prompts, rules, pad=0, idle=0),
        record=Record(batch.params),
        limits=list(limits),
    )


def step(generation: Generation) -> None:
    batch = generation.batch
    rows = batch.rows()
    logits = torch.empty(len(rows), WIDTH, device=META)
    take(generation, logits, rows, generation.sampler.choose(logits, rows))


@pytest.mark.parametrize("name", [*FUSED, *EAGER])
def test_a_step_reads_the_tokens_and_nothing_else(
    name: str, kernels: dict[str, Kernel], reads: list[list[int]]
) -> None:
    fields = (FUSED | EAGER)[name]
    batch = batch_of([fields, {}, fields])
    assert ("->" in batch.plan.one_line()) == (name in EAGER)
    generation = generation_of(batch, [2, 4, 4])
    reads.clear()
    for taken in range(1, 5):  # the first row ends before the others
        step(generation)
        assert reads == [[3, 1]] * taken
    assert generation.progress.done
    assert generation.progress.lengths == [2, 4, 4]


def test_a_users_stage_reads_nothing_either(
    kernels: dict[str, Kernel], reads: list[list[int]]
) -> None:
    mine = {"extra": {"everything": 0.5}, "top_p": 0.9}
    batch = batch_of([mine, mine], stages=(Everything(), *DEFAULT_STAGES))
    generation = generation_of(batch, [3, 3])
    reads.clear()
    for _ in range(3):
        step(generation)
    assert reads == [[2, 1]] * 3


def test_a_step_of_the_default_chain_has_two_calls(kernels: dict[str, Kernel]) -> None:
    batch = batch_of([CHAIN] * 140)
    tokens, _ = batch.plan.draw(torch.empty(140, WIDTH, device=META), batch.rows())
    batch.commit(tokens)
    assert (kernels["run_rows"].launches, kernels["append_tokens"].launches) == (1, 1)


def test_drafted_rows_are_chosen_and_kept_without_a_read(kernels: dict[str, Kernel]) -> None:
    from logitkit import verify

    batch = batch_of([CHAIN, {"regex": "[a-e]*"}])
    tokens = torch.empty(2, 3, dtype=torch.int64, device=META)
    draft = Draft(tokens, torch.empty(2, dtype=torch.int64, device=META))
    for _ in range(3):
        rows = batch.rows(draft)
        drawn, _ = batch.plan.draw(torch.empty(8, WIDTH, device=META), rows)
        drawn = drawn.view(2, 4)
        batch.commit(drawn, verify.exact(drawn, draft.tokens, draft.lengths))


def test_the_logits_of_a_plan_are_made_without_a_read(kernels: dict[str, Kernel]) -> None:
    batch = batch_of([CHAIN | {"top_h": 0.5}, {"temperature": 0.0}])
    out, status = batch.plan.process(torch.empty(2, WIDTH, device=META), batch.rows())
    assert (out.shape, status.shape) == ((2, WIDTH), (2,))


def test_whoever_raises_reads_the_status_once_at_the_end(kernels: dict[str, Kernel]) -> None:
    batch = batch_of([CHAIN, CHAIN])
    logits = torch.empty(2, WIDTH, device=META)
    for call in (batch.plan, batch.plan.sample):
        with pytest.raises((NotImplementedError, RuntimeError), match="meta"):
            call(logits, batch.rows())


def test_of_the_stages_that_are_not_fused_only_dry_reads_the_history(
    kernels: dict[str, Kernel],
) -> None:
    batch = batch_of([{"dry_multiplier": 0.5, "dry_sequence_breakers": ()}])
    with pytest.raises((NotImplementedError, RuntimeError), match="meta"):
        batch.plan.draw(torch.empty(1, WIDTH, device=META), batch.rows())
    assert set(ORDER) - triton_ops.FUSED == {"dry", *EAGER}


def test_plain_torch_counts_and_filters_without_a_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logitkit.batch.backend_ops", lambda backend, device: reference)
    fields = {k: v for k, v in CHAIN.items() if k != "top_k"}  # the largest k would be read
    batch = batch_of([fields, {"eta_cutoff": 1e-3, "top_n_sigma": 1.0}])
    assert len(batch.plan.stages) == 8
    for _ in range(3):
        tokens, _ = batch.plan.draw(torch.empty(2, WIDTH, device=META), batch.rows())
        batch.commit(tokens)
