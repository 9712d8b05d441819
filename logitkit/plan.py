"""`Plan`: the chain of one batch, with neighbouring stages fused into runs.

A run of stages that the backend can fuse, in the order in which its kernel applies them, is one
call; every other stage is applied by itself. Any order is right, the default order is one run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import NamedTuple, NoReturn

import torch
from torch import Tensor

from logitkit.errors import BadLogitsError, EmptyRowError, RowError
from logitkit.ops import BAD, EMPTY, OK, ORDER, reference
from logitkit.ops.reference_edits import keep_best
from logitkit.params import SamplingParams
from logitkit.rows import Rows
from logitkit.stage import BuiltinStage, Stage
from logitkit.stages.transformers_list import TransformersList

Observer = Callable[[Stage, Tensor], None]


class Run(NamedTuple):
    """Neighbouring stages that are one call (`fused`), or one stage applied by itself."""

    stages: tuple[Stage, ...]
    fused: bool


class Plan:
    """Runs of stages on one backend; `str(plan)` explains itself."""

    def __init__(self, runs: Sequence[Run], ops: ModuleType) -> None:
        self.runs = tuple(runs)
        self.ops = ops
        self.stages = tuple(stage for run in self.runs for stage in run.stages)

    def __call__(self, logits: Tensor, rows: Rows, observer: Observer | None = None) -> Tensor:
        """The logits after every stage, [R, V] float32.

        `observer(stage, logits)` sees the logits after each stage; with one, nothing is fused.
        Raises `EmptyRowError` or `BadLogitsError` for rows that cannot be decided.
        """
        if observer is not None:
            out, status = self._observed(logits, rows, observer)
        else:
            out, status = self.process(logits, rows)
        if status.any():
            self.refuse(logits, rows, status, None)
        return out

    def process(self, logits: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """The logits after every stage, and each row's status instead of an error."""
        out, status = self.run(logits, rows)
        return _keep_best(out, rows), status

    def run(self, logits: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """`process` without its last act, the argmax of the rows with temperature 0."""
        out, status = self._process(self.runs, logits, rows)
        failed = status != OK
        if failed.is_cpu and not failed.any():  # reading is free there, and a copy is not
            return out, status
        return out.masked_fill(failed[:, None], 0.0), status

    def sample(self, logits: Tensor, rows: Rows) -> Tensor:
        """One token per row, [R] int64; raises as `__call__` does, with the others' tokens."""
        tokens, status = self.draw(logits, rows)
        if status.any():
            self.refuse(logits, rows, status, tokens)
        return tokens

    def draw(self, logits: Tensor, rows: Rows, *, details: bool = False) -> tuple[Tensor, ...]:
        """One token per row and each row's status; the last fused run draws in the same pass.

        With `details` also the log-probability of each token under the final distribution, [R]
        float32 (NaN where the status is not OK), and the number of its survivors, [R] int64 (0
        there).
        """
        runs, last = self.runs, Run((), True)
        if runs and runs[-1].fused:
            runs, last = runs[:-1], runs[-1]
        if runs:
            logits, before = self._process(runs, logits, rows)
        found: tuple[Tensor, ...] = self.ops.sample_tokens(
            logits, *_tensors(rows), details=details, **self._arguments(last, rows)
        )
        if not runs:
            return found
        status = torch.where(before == OK, found[1], before)
        good = status == OK
        tokens = torch.where(good, found[0], -1)
        if not details:
            return tokens, status
        return (
            tokens,
            status,
            torch.where(good, found[2], torch.nan),
            torch.where(good, found[3], 0),
        )

    def refuse(self, logits: Tensor, rows: Rows, status: Tensor, tokens: Tensor | None) -> NoReturn:
        """Raise for the rows whose status is not OK, naming the request and the stage."""
        failed = status.nonzero().squeeze(-1)
        kind = BAD if bool((status == BAD).any()) else EMPTY
        first = (status == kind).nonzero()[0]
        slot, position = int(rows.slot[first]), int(rows.position[first])
        stage = self._blame(logits[first], rows.select(first), kind)
        slots = sorted(set(rows.slot[failed].tolist()))
        new = int(rows.num_generated[first])
        behind = f"behind {new} new token{'s' * (new != 1)}"
        others = f" (in all, requests {slots} failed)" if len(slots) > 1 else ""
        error: type[RowError] = EmptyRowError
        if kind == BAD:
            error, what = BadLogitsError, f"NaN or +inf logits {behind}, {stage}"
        else:
            what = f"no token left {behind}: every token was masked {stage}"
        raise error(f"request {slot}, position {position}: {what}{others}", slots, tokens)

    def _blame(self, logits: Tensor, row: Rows, kind: int) -> str:
        """Where a row went wrong, found by running the chain once more, stage by stage."""
        out = logits.float()

        def wrong(values: Tensor) -> bool:
            if kind == BAD:
                return bool(reference.unusable(values))
            return bool((values == -torch.inf).all())

        if wrong(out):
            return "as the model gave them" if kind == BAD else "before the first stage"
        before: list[tuple[Stage, Tensor]] = []
        for stage in self.stages:
            given, out = out, _apply(stage, out, row)
            before.append((stage, (out == -torch.inf) & (given != -torch.inf)))
            if wrong(out):
                reason = stage.reason(row, before[:-1]) if kind == EMPTY else ""
                if kind == BAD and isinstance(stage, TransformersList):
                    reason = stage.culprit(given, row)
                return f"by the stage {type(stage).__name__}" + (reason and f": {reason}")
        return "by the stages together"

    def _process(self, runs: Sequence[Run], logits: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """The logits after `runs` and each row's status; never the caller's own tensor.

        Nothing is read back from the device. Failed rows hold anything; stages see zeros there.
        """
        status = torch.full_like(rows.slot, OK)
        if not runs:
            runs = (Run((), True),)
        for run in runs:
            if run.fused:
                logits, now = self.ops.process_logits(
                    logits, *_tensors(rows), **self._arguments(run, rows)
                )
            else:
                out = logits.float()
                given = _status(out)
                out = out.masked_fill(((given != OK) | (status != OK))[:, None], 0.0)
                logits = _apply(run.stages[0], out, rows)
                now = torch.where(given == OK, _status(logits), given)
            status = torch.where(status == OK, now, status)
        return logits, status

    def _observed(self, logits: Tensor, rows: Rows, observer: Observer) -> tuple[Tensor, Tensor]:
        out = logits.float().clone()
        status = _status(out)
        for stage in self.stages:
            out = _apply(stage, out.masked_fill((status != OK)[:, None], 0.0), rows)
            observer(stage, out)
            status = torch.where(status == OK, _status(out), status)
        return _keep_best(out, rows), status

    def _arguments(self, run: Run, rows: Rows) -> dict[str, Tensor]:
        arguments: dict[str, Tensor] = {}
        for stage in run.stages:
            arguments |= stage.op_args(rows)
        if "greedy" in rows.columns:
            arguments["greedy"] = rows.columns["greedy"]
        return arguments

    def __repr__(self) -> str:
        return f"<Plan {self.one_line()}>"

    def one_line(self) -> str:
        """The runs in one line, e.g. `fused[numba](temperature top_p draw)`."""
        backend = self.ops.BACKEND
        parts = [
            f"fused[{backend}]({' '.join(_shown(s, str(s.op)) for s in run.stages)})"
            if run.fused
            else _shown(run.stages[0], type(run.stages[0]).__name__)
            for run in self.runs
        ]
        if parts and self.runs[-1].fused:
            return " -> ".join(parts)[:-1] + " draw)"
        return " -> ".join([*parts, f"fused[{backend}](draw)"])

    def __str__(self) -> str:
        fused = sum(run.fused for run in self.runs)
        eager = len(self.runs) - fused
        return (
            f"{self.one_line()}\n"
            f"{len(self.stages)} stages in {fused} fused and {eager} single calls on the backend "
            f"{self.ops.BACKEND!r}; stages that no request uses are left out"
        )


def make_plan(stages: Sequence[Stage], params: Sequence[SamplingParams], ops: ModuleType) -> Plan:
    """Drop what is neutral for every request, and fuse neighbours whose order the kernel has."""
    places = {name: place for place, name in enumerate(ORDER)}
    runs: list[Run] = []
    last = -1
    for stage in stages:
        if all(stage.is_neutral(p) for p in params):
            continue
        if stage.op is None or stage.op not in ops.FUSED:
            runs.append(Run((stage,), False))
            continue
        place = places[stage.op]
        if runs and runs[-1].fused and place > last:
            runs[-1] = Run((*runs[-1].stages, stage), True)
        else:
            runs.append(Run((stage,), True))
        last = place
    return Plan(runs, ops)


def _apply(stage: Stage, logits: Tensor, rows: Rows) -> Tensor:
    """One stage by itself, float32 in and out; what was masked stays masked."""
    is_builtin = isinstance(stage, BuiltinStage)
    # What a user's stage edits in place must not hide what was masked before.
    out = stage.apply(logits if is_builtin else logits.clone(), rows)
    if not is_builtin:
        if not isinstance(out, Tensor) or out.shape != logits.shape:
            got = tuple(out.shape) if isinstance(out, Tensor) else out
            raise ValueError(
                f"{type(stage).__name__}.apply must return logits of shape {tuple(logits.shape)}, "
                f"got {got!r}"
            )
        out = torch.where(logits == -torch.inf, -torch.inf, out.float())
    return reference.exempt_greedy(out, logits, rows) if stage.is_filter else out


def _shown(stage: Stage, name: str) -> str:
    return name if stage.served_by is None else f"{name}[{stage.served_by}]"


def _keep_best(logits: Tensor, rows: Rows) -> Tensor:
    """One token in the rows with temperature 0: the argmax behind all stages."""
    return keep_best(logits, rows["greedy"]) if "greedy" in rows.columns else logits


def _status(logits: Tensor) -> Tensor:
    largest = logits.amax(-1)
    status = torch.where(largest == -torch.inf, EMPTY, OK)
    return torch.where(reference.unusable(logits), BAD, status)


def _tensors(rows: Rows) -> tuple[Tensor, ...]:
    history = rows.history
    return rows.slot, rows.position, history.tokens, history.prompt_length, rows.seed
