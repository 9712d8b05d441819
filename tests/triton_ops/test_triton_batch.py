"""A batch on the backend "triton", interpreted: steps, drafts and plans as on the others."""

from __future__ import annotations

import pytest
import torch
from helpers import histories, start, tensors
from test_triton_kernels import CHAIN, EVERYTHING
from twin import requests

from logitkit import Draft
from logitkit.batch import backend_ops

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, of overflows


def test_steps_and_commits_give_the_tokens_of_the_other_backends() -> None:
    fields = [CHAIN, {"temperature": 0.0, "repetition_penalty": 1.2}, {"xtc_probability": 0.5}, {}]
    batches = [
        start(requests(fields), histories(4, 90), 90, backend=name) for name in ("triton", "numba")
    ]
    for _ in range(4):
        logits = 3 * torch.randn(4, 90)
        tokens = [batch.plan.sample(logits, batch.rows()) for batch in batches]
        assert torch.equal(tokens[0], tokens[1])
        for batch in batches:
            batch.commit(tokens[0])
        assert torch.equal(batches[0].history.head, batches[1].history.head)


def test_drafted_rows_are_those_of_the_other_backends() -> None:
    logits = 3 * torch.randn(6, 90)
    draft = Draft(torch.tensor([[1, 2], [4, 4]]), torch.tensor([2, 2]))
    found = []
    for name in ("triton", "numba"):
        batch = start(requests([EVERYTHING] * 2), histories(2, 90), 90, backend=name)
        found.append(batch.plan.sample(logits, batch.rows(draft)))
    assert torch.equal(found[0], found[1])


def test_grammars_are_tables_here_and_draw_what_the_host_draws() -> None:
    fields = [{"regex": "([a-e]{2})*(x[a-e]*)?"}, {}, {"choice": ["abab", "aab"], "top_k": 3}]
    batches = [start(requests(fields), [[0]] * 3, 90, backend=name) for name in ("triton", "numba")]
    assert batches[0].plan.one_line() == "fused[triton](grammar[table] top_k draw)"
    assert batches[1].plan.one_line() == "fused[numba](grammar[host] top_k draw)"
    for _ in range(4):
        logits = 3 * torch.randn(3, 90)
        tokens = [batch.plan.sample(logits, batch.rows()) for batch in batches]
        assert torch.equal(tokens[0], tokens[1])
        for batch in batches:
            batch.commit(tokens[0])
    draft = Draft(torch.tensor([[1, 23], [4, 4], [0, 1]]), torch.tensor([2, 2, 2]))
    logits = 3 * torch.randn(9, 90)
    drawn = [batch.plan.draw(logits, batch.rows(draft)) for batch in batches]
    assert torch.equal(drawn[0][0], drawn[1][0])
    assert torch.equal(drawn[0][1], drawn[1][1])


def test_the_default_chain_is_one_fused_run() -> None:
    batch = start(requests([CHAIN]), [[1, 2]], 90, backend="triton")
    assert batch.plan.one_line() == (
        "fused[triton](repetition_penalty presence_penalty frequency_penalty temperature top_k "
        "top_p min_p draw)"
    )
    assert len(tensors(batch.rows())) == 5


def test_stages_that_are_not_fused_run_between_the_fused_ones() -> None:
    fields = {"top_k": 30, "top_p": 0.9, "typical_p": 0.9, "epsilon_cutoff": 1e-3}
    batches = [start(requests([fields]), [[1]], 90, backend=name) for name in ("triton", "torch")]
    assert batches[0].plan.one_line() == (
        "fused[triton](top_k top_p) -> TypicalP -> fused[triton](epsilon_cutoff draw)"
    )
    logits = torch.randn(1, 90)
    for _ in range(5):
        logits = 2 * torch.randn(1, 90)
        tokens = [batch.plan.sample(logits, batch.rows()) for batch in batches]
        assert torch.equal(tokens[0], tokens[1])


def test_under_the_interpreter_cpu_tensors_may_take_triton() -> None:
    assert backend_ops("triton", torch.device("cpu")).BACKEND == "triton"
    assert backend_ops("auto", torch.device("cpu")).BACKEND == "numba"
