"""What the suites share: batches in one line, rows of every kind, and how two results compare."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from logitkit import DEFAULT_STAGES, Batch, Rows, SamplingParams, Stage
from logitkit.grammar import Vocabulary
from logitkit.ops import numba_ops, reference
from logitkit.params import resolve
from logitkit.params.structured import asked

BACKENDS = ("torch", "numba")
OPS: Mapping[str, ModuleType] = {"torch": reference, "numba": numba_ops}
EOS = 3
INF = float("inf")


@cache
def letters(size: int) -> Vocabulary:
    """Token 0 spells a, 1 b, and so on; behind the 26 letters aa, ab ...; the last one is eos."""
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    texts = [*alphabet, *(x + y for x in alphabet for y in alphabet)]
    return Vocabulary([text.encode() for text in texts[: size - 1]], size - 1, size=size)


def start(
    params: SamplingParams | Sequence[SamplingParams],
    prompts: Sequence[Sequence[int]],
    vocab_size: int,
    *,
    backend: str = "torch",
    stages: Sequence[Stage] = DEFAULT_STAGES,
    **options: Any,
) -> Batch:
    """A batch with one request per prompt; a single `params` serves every prompt.

    Requests with a grammar read the tokens as `letters` does, and end at its eos.
    """
    several = [params] * len(prompts) if isinstance(params, SamplingParams) else params
    structured = any(asked(p) for p in several)
    resolved = [
        resolve(
            p,
            eos_token_ids=min(EOS, vocab_size - 1),
            vocab_size=vocab_size,
            vocabulary=letters(vocab_size) if structured else None,
        )
        for p in several
    ]
    return Batch.start(resolved, prompts, stages, vocab_size=vocab_size, backend=backend, **options)


def arguments(batch: Batch) -> dict[str, Tensor]:
    """The arguments of one fused call with every stage of the plan."""
    rows, found = batch.rows(), {}
    for stage in batch.plan.stages:
        found |= stage.op_args(rows)
    return found | {k: v for k, v in batch.columns.items() if k == "greedy"}


def tensors(rows: Rows) -> tuple[Tensor, ...]:
    """The positional arguments of a fused call behind the logits."""
    history = rows.history
    return rows.slot, rows.position, history.tokens, history.prompt_length, rows.seed


def applied(
    logits: Sequence[float],
    backend: str,
    history: Sequence[int] = (),
    prompt_length: int = 0,
    stages: Sequence[Stage] = DEFAULT_STAGES,
    **fields: Any,
) -> list[float]:
    """One row through the plan of one request; the history is output but for `prompt_length`."""
    params = SamplingParams(**{"sampling_seed": 1} | fields)
    batch = start(
        params, [list(history)], len(logits), backend=backend, stages=stages,
        prompt_lengths=[prompt_length],
    )  # fmt: skip
    found: list[float] = batch.plan(torch.tensor([logits]), batch.rows())[0].tolist()
    return found


def survivors(logits: Sequence[float]) -> list[int]:
    """The tokens that are not masked."""
    return [token for token, value in enumerate(logits) if value > -INF]


def bits(logits: Tensor) -> Tensor:
    """The bit patterns of float32 numbers: -0.0 is not 0.0."""
    return logits.contiguous().view(torch.int32)


def logit_rows(num_rows: int, vocab_size: int, seed: int = 0) -> dict[str, Tensor]:
    """Rows of every kind that the laws name: kind -> [num_rows, vocab_size] logits."""
    g = torch.Generator().manual_seed(seed)
    random = 3 * torch.randn(num_rows, vocab_size, generator=g)
    spiked = random.clone()
    spiked[torch.arange(num_rows), torch.randint(vocab_size, (num_rows,), generator=g)] = 30.0
    masked = random.masked_fill(torch.rand(random.shape, generator=g) < 0.5, -INF)
    masked[torch.arange(num_rows), torch.randint(vocab_size, (num_rows,), generator=g)] = 1.0
    one = torch.full_like(random, -INF)
    one[torch.arange(num_rows), torch.randint(vocab_size, (num_rows,), generator=g)] = -2.5
    wide = torch.randn(num_rows, 2 * vocab_size + 3, generator=g)
    return {
        "random": random,
        "peaked": 4 * random,
        "spike": spiked,
        "ties": random.round(),
        "flat": torch.full_like(random, 0.5),
        "masked": masked,
        "one token left": one,
        "bfloat16": random.bfloat16(),
        "float16": random.half(),
        "strided rows": wide[:, 2 : 2 + vocab_size],
        "strided columns": wide[:, : 2 * vocab_size : 2],
    }


def masks(num_rows: int, words: int, seed: int = 0) -> dict[str, Tensor]:
    """A grammar's arguments for `num_rows` rows: masks of every density, in no special order.

    Mask 0 allows everything, mask 1 nothing; every fifth row has mask 0.
    """
    g = torch.Generator().manual_seed(seed)
    bits = torch.rand(num_rows + 2, 32 * words, generator=g) < torch.rand(num_rows + 2, 1)
    bits[0], bits[1] = True, False
    packed = (bits.view(num_rows + 2, words, 32).long() << torch.arange(32)).sum(-1)
    row = 2 + torch.randperm(num_rows, generator=g)
    row[::5] = 0
    return {"mask_rows": packed.to(torch.int32), "mask_row": row.to(torch.int32)}


def histories(num_rows: int, vocab_size: int, length: int = 12, seed: int = 0) -> list[list[int]]:
    """Prompts with many repeats, each of another length; the first is empty."""
    g = torch.Generator().manual_seed(seed)
    high = min(vocab_size, 5)
    return [
        torch.randint(high, (0 if i == 0 else length - i % 5,), generator=g).tolist()
        for i in range(num_rows)
    ]


def use_threads(monkeypatch: Any, work_per_thread: int) -> None:
    """Let the CPU kernels share even little work with their pool."""
    monkeypatch.setattr(numba_ops, "WORK_PER_THREAD", work_per_thread)
    monkeypatch.setattr(torch, "get_num_threads", lambda: max(2, os.cpu_count() or 2))
