"""`Batch`: the requests of one generation, and the only owner of memory.

It stands between the doors and the plan: `start` makes columns, history and states; `rows` opens
the window through which the stages of a step read them; `commit` is the only place that advances
anything. Nothing is ever rolled back: drafts are written past the head, and commit moves the head.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from importlib.util import find_spec
from types import ModuleType

import torch
from torch import Tensor

from logitkit.draft.source import Draft
from logitkit.ops import numba_ops, reference
from logitkit.params import ResolvedParams, SamplingParams
from logitkit.plan import Plan, make_plan
from logitkit.randomness import FIRST_USER_STREAM, derived_seed, fresh_seed, to_int64
from logitkit.rows import History, Rows
from logitkit.stage import PARAM_FIELDS, BuiltinStage, Stage
from logitkit.stages import DEFAULT_STAGES

BACKENDS = ("auto", "torch", "numba", "triton")


class Batch:
    """B requests in fixed slots: parameters, history, states, and the plan for their stages."""

    def __init__(
        self,
        params: Sequence[ResolvedParams],
        history: History,
        plan: Plan,
        columns: dict[str, Tensor],
        vocab_size: int,
    ) -> None:
        device = history.tokens.device
        self.params = tuple(params)
        self.history = history
        self.plan = plan
        self.columns = columns
        self.vocab_size = vocab_size
        seeds = [to_int64(p.sampling_seed) for p in params if p.sampling_seed is not None]
        assert len(seeds) == len(self.params)
        self.seed = torch.tensor(seeds, dtype=torch.int64, device=device)
        self._longest = history.tokens.shape[1]  # at least the largest head, known without a sync
        self._slot = torch.arange(len(self.params), device=device)
        self._depth = torch.zeros_like(self._slot)
        states = {stage: stage.init(columns) for stage in plan.stages}
        self.states = {stage: state for stage, state in states.items() if state is not None}

    @classmethod
    def start(
        cls,
        params: Sequence[ResolvedParams],
        prompts: Sequence[Sequence[int] | Tensor],
        stages: Sequence[Stage] = DEFAULT_STAGES,
        *,
        vocab_size: int,
        prompt_lengths: Sequence[int] | None = None,
        room: int = 64,
        device: torch.device | str = "cpu",
        backend: str = "auto",
    ) -> Batch:
        """Begin a generation with one resolved `SamplingParams` and one prompt per slot.

        `prompts` hold the tokens so far, padding excluded; `prompt_lengths` say how many of them
        are prompt (default: all). Missing seeds are drawn from torch's global generator in slot
        order.
        """
        assert len(params) == len(prompts)
        check_chain(stages, params)
        device = torch.device(device)
        ops = backend_ops(backend, device)
        params = [
            p if p.sampling_seed is not None else dataclasses.replace(p, sampling_seed=fresh_seed())
            for p in params
        ]
        bound = [stage.bind(params, ops, device) for stage in stages]
        plan = make_plan(bound, params, ops)
        # A user's stage may read any field, whether or not a neighbour uses it.
        is_read = not all(isinstance(stage, BuiltinStage) for stage in plan.stages)
        columns = {
            name: value.to(device)
            for stage in (bound if is_read else plan.stages)
            for name, value in stage.columns(params).items()
        }
        if any(p.temperature == 0 for p in params):
            columns["greedy"] = torch.tensor([p.temperature == 0 for p in params], device=device)
        rows = [torch.as_tensor(prompt, dtype=torch.int64) for prompt in prompts]
        lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
        widths = lengths if prompt_lengths is None else torch.tensor(prompt_lengths)
        aligned = torch.zeros(len(rows), max(map(len, rows), default=0), dtype=torch.int64)
        for slot, row in enumerate(rows):
            aligned[slot, : len(row)] = row
        history = History.start(aligned.to(device), lengths.to(device), widths.to(device), room)
        batch = cls(params, history, plan, columns, vocab_size)
        batch._longest = max(map(len, rows), default=0)
        if prompt_lengths is not None and batch.states:
            output = [row[width:] for row, width in zip(rows, widths.tolist(), strict=True)]
            written = torch.nn.utils.rnn.pad_sequence(output, batch_first=True)
            batch._advance(written.to(device), (lengths - widths).to(device))
        return batch

    def __len__(self) -> int:
        return len(self.params)

    def rows(self, draft: Draft | None = None) -> Rows:
        """The rows of the next step: B, or B * (k + 1) in slot-major order behind a draft."""
        if draft is None:
            head, states = self.history.head.clone(), dict(self.states)  # as they are now
            return self._window(self._slot, self._depth, head, states)
        size, k = draft.tokens.shape
        proposed = draft.tokens.clamp_min(0)  # sources may pad by -1
        head, device = self.history.head, proposed.device
        self._make_room(k)
        ahead = torch.arange(k, device=device)
        self.history.tokens.scatter_(1, head[:, None] + ahead, proposed)
        slot = self._slot.repeat_interleave(k + 1)
        depth = torch.arange(k + 1, device=device).repeat(size)
        trails = {}
        for stage, state in self.states.items():
            trail = [state]
            for i in range(k):
                trail.append(stage.advance(trail[-1], proposed[:, i], self.columns))
            trails[stage] = torch.stack(trail, 1).flatten(0, 1)
        return self._window(slot, depth, head[slot] + depth, trails)

    def commit(self, tokens: Tensor, num_tokens: Tensor | None = None) -> None:
        """Append the first `num_tokens` [B] of `tokens` [B, n] (or [B], one each) per request.

        0 leaves a request where it is. History, head and states move together.
        """
        tokens = tokens[:, None] if tokens.ndim == 1 else tokens
        history, n = self.history, tokens.shape[1]
        self._make_room(n)
        self._advance(tokens, num_tokens)
        self.plan.ops.commit_tokens(history.tokens, history.head, tokens, num_tokens)
        self._longest += n

    def _advance(self, tokens: Tensor, num_tokens: Tensor | None) -> None:
        """Take every state over the first `num_tokens` [B] (None: all) of `tokens` [B, n]."""
        for stage, state in self.states.items():
            for i in range(tokens.shape[1]):
                moved = stage.advance(state, tokens[:, i], self.columns)
                if num_tokens is not None:
                    keep = (i < num_tokens).view(-1, *[1] * (state.ndim - 1))
                    moved = torch.where(keep, moved, state)
                state = moved
            self.states[stage] = state

    def replay(self, tokens: Tensor, lengths: Tensor) -> None:
        """Put other tokens behind the same prompts: the first `lengths` [B] of `tokens` [B, n]."""
        self.history.head.copy_(self.history.prompt_length)
        self._longest = self.history.tokens.shape[1]
        states = {stage: stage.init(self.columns) for stage in self.plan.stages}
        self.states = {stage: state for stage, state in states.items() if state is not None}
        self.commit(tokens, lengths)

    def _make_room(self, n: int) -> None:
        """See that `n` tokens fit behind every head."""
        if self._longest + n > self.history.tokens.shape[1] and len(self.params):
            self._longest = int(self.history.head.max())  # it may count tokens that were not taken
            self.history.reserve(self._longest + n)

    @property
    def device(self) -> torch.device:
        return self.history.tokens.device

    def _window(
        self, slot: Tensor, depth: Tensor, position: Tensor, states: dict[Stage, Tensor]
    ) -> Rows:
        return Rows(
            slot, depth, position, self.history, self.columns, self.seed, self.vocab_size, states
        )  # fmt: skip


def expand(params: Sequence[ResolvedParams], num_rows: int) -> list[ResolvedParams]:
    """One entry per row: a single request serves every prompt, and `n` samples get `n` rows.

    Rows of one request follow each other and have derived seeds. A missing seed is drawn once per
    request. Raises `ValueError` where the row count does not fit.
    """
    if len(params) == 1:
        n = params[0].n
        if num_rows % n:
            raise ValueError(
                f"`n`={n} needs a multiple of {n} rows, got {num_rows}; "
                f"repeat every prompt n times (num_return_sequences={n})"
            )
        params = [params[0]] * (num_rows // n)
    wanted = sum(p.n for p in params)
    if wanted != num_rows:
        raise ValueError(
            f"{len(params)} SamplingParams with n={[p.n for p in params]} make {wanted} rows, but "
            f"there are {num_rows}; give one SamplingParams per prompt and let "
            "num_return_sequences equal `n`"
        )
    rows = []
    for p in params:
        seed = p.sampling_seed if p.sampling_seed is not None else fresh_seed()
        rows += [dataclasses.replace(p, sampling_seed=derived_seed(seed, i)) for i in range(p.n)]
    return rows


def backend_ops(backend: str, device: torch.device) -> ModuleType:
    """The fused operations for tensors on `device`; a backend asked for is never replaced.

    "auto" is numba on CPUs and torch elsewhere: the Triton kernels have not run on a GPU yet.
    """
    if backend not in BACKENDS:
        raise ValueError(f"`backend` must be one of {', '.join(BACKENDS)}, got {backend!r}")
    if backend == "numba" and device.type != "cpu":
        raise ValueError(f"`backend`='numba' needs CPU tensors, got {device.type}; use 'auto'")
    if backend == "triton":
        return _triton_ops(device)
    if backend == "torch" or device.type != "cpu":
        return reference
    return numba_ops


def _triton_ops(device: torch.device) -> ModuleType:
    """The GPU kernels (CUDA and ROCm); imported only here, so that nobody else needs Triton."""
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if device.type != "cuda" and not (interpreted and device.type == "cpu"):
        raise ValueError(
            f"`backend`='triton' needs CUDA or ROCm tensors, got {device.type}; use 'auto', or set "
            "TRITON_INTERPRET=1 before the first import to run the kernels (slowly) on the CPU"
        )
    if find_spec("triton") is None:
        raise ValueError("`backend`='triton' needs the package triton; install it or use 'auto'")
    import triton_ops

    return triton_ops


def check_chain(stages: Sequence[Stage], params: Sequence[SamplingParams]) -> None:
    """Refuse chains that could not honour every request (the request decides, not the stage)."""
    declared: set[str] = set()
    streams: dict[int, Stage] = {}
    for stage in stages:
        name = type(stage).__name__
        if not isinstance(stage, Stage):
            raise ValueError(f"`stages` must hold lk.Stage objects, got {name}: {stage!r}")
        fields = {f.name for f in dataclasses.fields(stage)}
        if isinstance(stage, BuiltinStage):
            fresh = type(stage)()
            for field in sorted(fields):
                if getattr(stage, field) != getattr(fresh, field):
                    raise ValueError(
                        f"`stages` holds {name}({field}={getattr(stage, field)!r}); in a plan the "
                        f"request decides: set SamplingParams({field}=...) and use {name}()"
                    )
        elif clash := declared & fields - PARAM_FIELDS:
            raise ValueError(f"two stages of `stages` declare the `extra` key(s) {sorted(clash)}")
        declared |= fields
        if stage.stream is not None:
            _check_stream(stage, streams)
    for slot, p in enumerate(params):
        if unknown := set(p.extra) - declared:
            raise ValueError(
                f"`extra` of request {slot} has the key(s) {sorted(unknown)}, which no stage of "
                "the chain declares; add the stage to `stages=` or remove the key"
            )
    absent = [s for s in DEFAULT_STAGES if not declared.issuperset(_field_names(s))]
    for slot, p in enumerate(params):
        for stage in absent:
            if not stage.is_neutral(p):
                own = [f for f in dataclasses.fields(stage) if f.name not in declared]
                # the field that was set, if this stage's first one was not
                name = max(own, key=lambda f: getattr(p, f.name) != f.default).name
                raise ValueError(
                    f"`{name}`={getattr(p, name)!r} of request {slot} needs a stage, and `stages` "
                    f"has none for it; add lk.stages.{type(stage).__name__}()"
                )


def _field_names(stage: Stage) -> list[str]:
    return [f.name for f in dataclasses.fields(stage)]


def _check_stream(stage: Stage, streams: dict[int, Stage]) -> None:
    stream = stage.stream
    assert stream is not None
    other = streams.setdefault(stream, stage)
    if type(other) is not type(stage):
        raise ValueError(
            f"stages {type(other).__name__} and {type(stage).__name__} both use random stream "
            f"{stream}; give one another number"
        )
    if not isinstance(stage, BuiltinStage) and stream < FIRST_USER_STREAM:
        raise ValueError(
            f"stage {type(stage).__name__} uses random stream {stream}; streams below "
            f"{FIRST_USER_STREAM} belong to logitkit, choose {FIRST_USER_STREAM} or more"
        )
