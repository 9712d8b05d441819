"""The fused operations on CPU tensors: numba kernels behind the names of `logitkit.ops`.

Few rows are served by the calling thread; from about a millisecond of work on, the rows are shared
with a pool of threads (torch's own number of threads), which the kernels let run by releasing the
interpreter lock. Kernels are compiled at the first use and kept on disk.
"""

from __future__ import annotations

import logging
import operator
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from logitkit.ops import ORDER
from logitkit.ops.numba_fsm import fold_tokens
from logitkit.ops.numba_kernel import Arguments, Scratch, make_scratch, run_rows
from logitkit.ops.numba_row import BFLOAT16, FLOAT16, FLOAT32
from logitkit.ops.reference import commit_tokens as commit_tokens  # as fast as a kernel

BACKEND = "numba"
FUSED = frozenset(ORDER)
WORK_PER_THREAD = 300_000  # logits; below, a second thread costs more than it brings

_KINDS = {torch.float32: FLOAT32, torch.bfloat16: BFLOAT16, torch.float16: FLOAT16}
_NO_WORDS, _NO_HALVES = np.empty(0, np.int32), np.empty(0, np.int16)
_NO_OUTPUT = np.empty((0, 0), np.float32)
_NO_DETAILS = np.empty(0, np.float32), np.empty(0, np.int64)
_MASKS = {"allowed_mask", "mask_rows"}
_DTYPES = {
    "allowed_mask": np.int32, "mask_rows": np.int32, "mask_row": np.int32,
    "bias_values": np.float32, "greedy": np.bool_,
}  # fmt: skip
_FLOATS = {
    "repetition_penalty", "presence_penalty", "frequency_penalty", "dry_multiplier", "dry_base",
    "temperature", "dynatemp_range", "dynatemp_exponent", "top_n_sigma", "top_h", "top_p", "min_p",
    "typical_p", "epsilon_cutoff", "eta_cutoff", "xtc_probability", "xtc_threshold",
}  # fmt: skip
_ABSENT: dict[str, np.ndarray[Any, Any]] = {
    name: np.empty(
        (0, 0) if name in _MASKS else 0,
        np.float64 if name in _FLOATS else _DTYPES.get(name, np.int64),
    )
    for name in Arguments._fields
}
_local = threading.local()
_pool: ThreadPoolExecutor | None = None


def process_logits(
    logits: Tensor,
    slot: Tensor,
    position: Tensor,
    tokens: Tensor,
    prompt_length: Tensor,
    seed: Tensor,
    **arguments: Tensor,
) -> tuple[Tensor, Tensor]:
    """The twin of `reference.process_logits`: new logits [R, V] float32 and status [R]."""
    out = torch.empty(logits.shape, dtype=torch.float32)
    _, status = _launch(logits, slot, position, tokens, prompt_length, seed, arguments, out.numpy())
    return out, status


def sample_tokens(
    logits: Tensor,
    slot: Tensor,
    position: Tensor,
    tokens: Tensor,
    prompt_length: Tensor,
    seed: Tensor,
    *,
    details: bool = False,
    **arguments: Tensor,
) -> tuple[Tensor, ...]:
    """The twin of `reference.sample_tokens`: tokens [R] int64 and status [R]; writes no logits.

    With `details` also log-probabilities [R] float32 and numbers of survivors [R] int64.
    """
    call = (logits, slot, position, tokens, prompt_length, seed, arguments, _NO_OUTPUT)
    if not details:
        return _launch(*call)
    size = len(logits)
    found = torch.empty(size, dtype=torch.float32), torch.empty(size, dtype=torch.int64)
    return (*_launch(*call, (found[0].numpy(), found[1].numpy())), *found)


def advance_fsm(
    state: Tensor, tokens: Tensor, offsets: Tensor, data: Tensor, transitions: Tensor
) -> Tensor:
    """The twin of `reference.advance_fsm`: states [B] int64."""
    moved = torch.empty(state.shape, dtype=torch.int64)
    fold_tokens(
        state.contiguous().numpy(), tokens.contiguous().numpy(), offsets.numpy(), data.numpy(),
        transitions.numpy(), moved.numpy(),
    )  # fmt: skip
    return moved


def _launch(
    logits: Tensor,
    slot: Tensor,
    position: Tensor,
    tokens: Tensor,
    prompt_length: Tensor,
    seed: Tensor,
    arguments: dict[str, Tensor],
    out: np.ndarray[Any, Any],
    details: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] = _NO_DETAILS,
) -> tuple[Tensor, Tensor]:
    rows, width = logits.shape
    drawn = torch.empty(rows, dtype=torch.int64)
    status = torch.empty(rows, dtype=torch.int64)
    if rows == 0:
        return drawn, status
    if logits.dtype not in _KINDS:
        logits = logits.float()
    words, halves, stride = _flat(logits)
    given = (
        words, halves, stride, _KINDS[logits.dtype], width, slot.numpy(), position.numpy(),
        tokens.numpy(), prompt_length.numpy(), seed.numpy(), _arguments(arguments),
    )  # fmt: skip
    result = (out, drawn.numpy(), status.numpy(), *details)
    if not run_rows.overloads:
        _announce_compilation(given, result, width)
    workers = min(rows, torch.get_num_threads(), max(1, rows * width // WORK_PER_THREAD))
    if workers == 1:
        run_rows(0, rows, *given, _scratch(width), *result)
        return drawn, status
    edges = [rows * i // workers for i in range(workers + 1)]
    others = [
        _threads(workers).submit(_run, edges[i], edges[i + 1], given, width, result)
        for i in range(1, workers)
    ]
    _run(0, edges[1], given, width, result)
    for other in others:
        other.result()
    return drawn, status


def _run(
    first: int, last: int, given: tuple[Any, ...], width: int, result: tuple[Any, ...]
) -> None:
    run_rows(first, last, *given, _scratch(width), *result)


def _flat(logits: Tensor) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], int]:
    """The logits' memory as one line of words or halves, and the distance of rows in it."""
    if logits.stride(1) != 1 and logits.shape[1] > 1:
        logits = logits.contiguous()
    (rows, width), stride = logits.shape, logits.stride(0)
    line = logits.detach().as_strided(((rows - 1) * stride + width,), (1,))
    if logits.dtype == torch.float32:
        return line.view(torch.int32).numpy(), _NO_HALVES, stride
    return _NO_WORDS, line.view(torch.int16).numpy(), stride


def _arguments(arguments: dict[str, Tensor]) -> Arguments:
    """The columns as numpy arrays; kept for the next call, which mostly has the same columns."""
    last: tuple[dict[str, Tensor], Arguments] | None = getattr(_local, "arguments", None)
    if (
        last is not None
        and last[0].keys() == arguments.keys()
        and all(map(operator.is_, last[0].values(), arguments.values()))
    ):
        return last[1]
    given = {name: value.numpy() for name, value in arguments.items()}
    packed = Arguments(**(_ABSENT | given))
    _local.arguments = (arguments, packed)
    return packed


def _scratch(width: int) -> Scratch:
    """This thread's scratch; one width is kept."""
    scratch: Scratch | None = getattr(_local, "scratch", None)
    if scratch is None or scratch.counts.shape[0] != width:
        scratch = _local.scratch = make_scratch(width)
    return scratch


def _threads(workers: int) -> ThreadPoolExecutor:
    global _pool
    if _pool is None or _pool._max_workers < workers - 1:
        _pool = ThreadPoolExecutor(workers - 1, thread_name_prefix="logitkit")
    return _pool


def _forget_threads() -> None:
    """A forked child has none of its parent's threads."""
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


def _announce_compilation(given: tuple[Any, ...], result: tuple[Any, ...], width: int) -> None:
    """Compile (or load from disk) on an empty range of rows, and say so if it took a while."""
    begin = time.perf_counter()
    notice = threading.Timer(
        1.0,
        logging.getLogger("logitkit").warning,
        ("compiling the CPU kernels (once per machine, about fifteen seconds) ...",),
    )
    notice.start()
    try:
        run_rows(0, 0, *given, _scratch(width), *result)
    finally:
        notice.cancel()
    logging.getLogger("logitkit").info("CPU kernels ready in %.1f s", time.perf_counter() - begin)
