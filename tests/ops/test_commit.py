"""`commit_tokens`: new tokens behind every head, and the heads behind them."""

from __future__ import annotations

import inspect

import pytest
import torch
from helpers import OPS, start
from torch import Tensor

from logitkit import SamplingParams
from logitkit.ops import reference

every_backend = pytest.mark.parametrize("backend", list(OPS))


def random_call(seed: int, size: int, n: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """tokens [B, T], head [B], new [B, n] and num_tokens [B], each a window of something larger."""
    g = torch.Generator().manual_seed(seed)
    wide = torch.randint(100, (size + 1, 2, 50), generator=g)
    tokens = wide[1:, 1, 3:] if seed % 2 else wide[1:].transpose(1, 2).flatten(1)[:, 3::2]
    head = torch.randint(30, (size, 3), generator=g)[:, 1]
    new = torch.randint(100, (n, size), generator=g).T
    num_tokens = torch.randint(n + 1, (size, 2), generator=g)[:, 1]
    return tokens, head, new, num_tokens


def slow(
    tokens: Tensor, head: Tensor, new: Tensor, num_tokens: Tensor | None
) -> tuple[list[list[int]], list[int]]:
    """What stands before each head afterwards, and the heads."""
    seen = []
    for b, (row, first) in enumerate(zip(tokens.tolist(), head.tolist(), strict=True)):
        count = new.shape[1] if num_tokens is None else int(num_tokens[b])
        seen.append(row[:first] + new[b].tolist()[:count])
    return seen, [len(row) for row in seen]


def test_the_signature_is_the_same_on_every_backend() -> None:
    for ops in OPS.values():
        assert inspect.signature(ops.commit_tokens) == inspect.signature(reference.commit_tokens)


@every_backend
def test_tokens_go_behind_the_head_and_the_head_behind_them(backend: str) -> None:
    tokens = torch.tensor([[5, 6, 0, 0], [7, 0, 0, 0], [1, 2, 3, 0]])
    head = torch.tensor([2, 1, 3])
    commit = OPS[backend].commit_tokens
    assert commit(tokens, head, torch.tensor([[8], [9], [4]])) is None
    assert tokens.tolist() == [[5, 6, 8, 0], [7, 9, 0, 0], [1, 2, 3, 4]]
    assert head.tolist() == [3, 2, 4]
    commit(tokens[:2], head[:2], torch.tensor([[1, 2], [3, 4]])[:, :1], torch.tensor([0, 1]))
    assert tokens[0, :3].tolist() == [5, 6, 8]
    assert tokens[1].tolist() == [7, 9, 3, 0]
    assert head.tolist() == [3, 3, 4]


@every_backend
@pytest.mark.parametrize("n", [1, 2, 3, 17])
def test_windows_of_any_stride_agree_with_a_plain_loop(backend: str, n: int) -> None:
    for seed in range(6):
        for size in (1, 5, 130):
            for counted in (True, False):
                tokens, head, new, counts = random_call(seed, size, n)
                num_tokens = counts if counted else None
                given = new.clone(), counts.clone()
                seen, heads = slow(tokens, head, new, num_tokens)
                behind = [
                    row[h + n :] for row, h in zip(tokens.tolist(), head.tolist(), strict=True)
                ]
                first = head.tolist()
                OPS[backend].commit_tokens(tokens, head, new, num_tokens)
                assert head.tolist() == heads
                rows = tokens.tolist()
                assert [row[:h] for row, h in zip(rows, heads, strict=True)] == seen
                # beyond the n places nothing was touched, and the caller's tensors never are
                assert [row[h + n :] for row, h in zip(rows, first, strict=True)] == behind
                assert torch.equal(new, given[0])
                assert torch.equal(counts, given[1])


@every_backend
def test_no_requests_and_no_tokens_change_nothing(backend: str) -> None:
    commit = OPS[backend].commit_tokens
    none = torch.zeros(0, 9, dtype=torch.int64)
    commit(none, none[:, 0], none[:, :1])
    commit(none, none[:, 0], none[:, :2], none[:, 0])
    tokens, head = torch.tensor([[1, 2, 3]]), torch.tensor([1])
    commit(tokens, head, tokens[:, :0])
    assert (tokens.tolist(), head.tolist()) == ([[1, 2, 3]], [1])


@every_backend
def test_addresses_beyond_two_to_the_31_are_right(backend: str) -> None:
    stride = 2**30 + 24  # times the row's number it is too large for int32
    line = torch.empty(2 * stride + 9, dtype=torch.int64)  # its untouched pages cost nothing
    tokens = line.as_strided((3, 9), (stride, 1))
    tokens.zero_()
    head = torch.tensor([0, 8, 4])
    OPS[backend].commit_tokens(tokens, head, torch.tensor([[1], [2], [3]]))
    assert tokens.nonzero().tolist() == [[0, 0], [1, 8], [2, 4]]
    assert tokens.sum(1).tolist() == [1, 2, 3]


@every_backend
def test_rows_are_a_snapshot_that_later_commits_leave_alone(backend: str) -> None:
    params = SamplingParams(sampling_seed=1, repetition_penalty=1.5)
    batch = start(params, [[1, 2], [3]], 9, backend=backend)
    head = batch.history.head
    before = batch.rows()
    batch.commit(torch.tensor([[4, 5], [6, 7]]), torch.tensor([2, 0]))
    assert before.position.tolist() == [2, 1]
    assert batch.history.head is head  # a captured graph reads the same memory again
    assert batch.rows().position.tolist() == [4, 1]
    assert batch.rows().last(4).tolist() == [[1, 2, 4, 5], [-1, -1, -1, 3]]
    batch.replay(torch.tensor([[8], [8]]), torch.tensor([1, 1]))
    assert batch.history.head is head
    assert batch.rows().last(3).tolist() == [[1, 2, 8], [-1, 3, 8]]


@every_backend
def test_a_batch_of_inference_mode_can_go_on_outside_of_it(backend: str) -> None:
    with torch.inference_mode():
        batch = start(SamplingParams(sampling_seed=1), [[1, 2]], 9, backend=backend)
        batch.commit(torch.tensor([3]))
    batch.commit(torch.tensor([4]))
    with torch.inference_mode():
        batch.replay(torch.tensor([[7]]), torch.tensor([1]))
    batch.commit(torch.tensor([5]))
    assert batch.rows().last(4).tolist() == [[1, 2, 7, 5]]


@every_backend
def test_the_callers_prompts_and_counts_are_never_written(backend: str) -> None:
    prompts = [torch.tensor([1, 2]), torch.tensor([3, 4])]
    batch = start(SamplingParams(sampling_seed=1), prompts, 9, backend=backend)
    tokens, counts = torch.tensor([[5, 6], [7, 8]]), torch.tensor([1, 2])
    batch.commit(tokens, counts)
    batch.commit(tokens[:, 0])
    assert [p.tolist() for p in prompts] == [[1, 2], [3, 4]]
    assert batch.history.prompt_length.tolist() == [2, 2]
    assert (tokens.tolist(), counts.tolist()) == ([[5, 6], [7, 8]], [1, 2])
