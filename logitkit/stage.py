"""`Stage`: one link of the chain, and at the same time a transformers `LogitsProcessor`.

A stage is a frozen dataclass. Its fields are parameters: fields of `SamplingParams`, or, for a
user's stage, keys of `SamplingParams.extra`. The class default of every field is neutral: it
changes nothing, and a stage that is neutral for every request is left out of the plan. A request's
value comes from its params; a user's stage's constructed value serves requests whose `extra` lacks
it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, ClassVar, cast

import torch
from torch import Tensor
from transformers import LogitsProcessor

from logitkit.ops import FILTERS, reference
from logitkit.params import ResolvedParams, SamplingParams, resolve
from logitkit.randomness import fresh_seed, to_int64
from logitkit.rows import History, PromptMemory, Rows

PARAM_FIELDS = frozenset(f.name for f in dataclasses.fields(SamplingParams)) - {"extra"}


@dataclass(frozen=True, eq=False)
class Stage(LogitsProcessor):
    """One step between logits and token; `apply` is the only method that must be written.

    `op` is the stage's name in `logitkit.ops.ORDER` (None: never fused). `is_filter` says that it
    only cuts the distribution: filters are skipped for requests with temperature 0. `stream` is the
    number of the random stream it draws from (users' stages: 16 and up), None if it draws nothing.
    """

    op: ClassVar[str | None] = None
    is_filter: ClassVar[bool] = False
    stream: ClassVar[int | None] = None
    supports_continuous_batching = False

    @property
    def served_by(self) -> str | None:
        """Which of several ways serves a bound stage, as a plan shows it."""
        return None

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """New logits [R, V] from float32 logits [R, V]; pure, out of place, `-inf` stays `-inf`."""
        raise NotImplementedError(f"{type(self).__name__} must define apply(logits, rows)")

    def is_neutral(self, params: SamplingParams) -> bool:
        """Whether this request's values change nothing; by default, whether they are defaults.

        A stage without fields is never neutral: it always runs.
        """
        fields = dataclasses.fields(self)
        values = [self.value(params, f.name) for f in fields]
        if any(hasattr(value, "shape") for value in values):  # an array has no one truth value
            return False
        return bool(fields) and values == [_default(f) for f in fields]

    def bind(
        self, params: Sequence[ResolvedParams], ops: ModuleType, device: torch.device
    ) -> Stage:
        """The stage for one batch, which may keep what belongs to its requests; by default self."""
        return self

    def columns(self, params: Sequence[ResolvedParams]) -> dict[str, Tensor]:
        """The stage's parameters for all slots: by default one [B] column per field."""
        names = [f.name for f in dataclasses.fields(self)]
        for name in names:
            for slot, p in enumerate(params):
                if not isinstance(value := self.value(p, name), bool | int | float):
                    raise ValueError(
                        f"`{name}`={value!r} of request {slot}: {type(self).__name__} keeps one "
                        "number or bool per request; for other values define columns(params)"
                    )
        return {name: column(self.value(p, name) for p in params) for name in names}

    def init(self, columns: dict[str, Tensor]) -> Tensor | None:
        """The state of every request before the first new token, [B, ...]; None: no state."""
        return None

    def advance(self, state: Tensor, tokens: Tensor, columns: dict[str, Tensor]) -> Tensor:
        """The state after one more token per request (`tokens` [B]); pure."""
        return state

    def op_args(self, rows: Rows) -> dict[str, Tensor]:
        """What the fused operation needs of this stage: by default the fields' columns."""
        columns, kind = rows.columns, cast(Any, type(self))
        return {name: columns[name] for name in _field_names(kind)}

    def reason(self, row: Rows, before: Sequence[tuple[Stage, Tensor]] = ()) -> str:
        """Why the stage left nothing in a row, as the error goes on; "" adds nothing.

        `before`: the stages that ran before it, each with the tokens that it masked, [1, V] bool.
        """
        return ""

    def value(self, params: SamplingParams, name: str) -> Any:
        """One request's value of the field `name`."""
        if name in PARAM_FIELDS:
            return getattr(params, name)
        return params.extra.get(name, getattr(self, name))

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Apply this stage alone, with its own values: [B, L], [B, V] -> [B, V] (transformers).

        All ids count as the request's own; the ids of the first call are the prompt.
        """
        memory: _Alone = self.__dict__.setdefault("_alone", _Alone())
        return memory.apply(self, input_ids, scores)


class _Alone:
    """What a stage used alone in transformers remembers between calls: the prompt and its seeds."""

    def __init__(self) -> None:
        self.memory = PromptMemory()
        self.columns: dict[str, Tensor] = {}
        self.seed = torch.empty(0)

    def apply(self, stage: Stage, input_ids: Tensor, scores: Tensor) -> Tensor:
        size, length = input_ids.shape
        device = scores.device
        ids = input_ids.to(device, torch.int64)
        memory = self.memory
        if memory.starts(ids):
            self.memory = PromptMemory()  # after an error here the next call starts again
            params = resolve(own_params(stage), vocab_size=scores.shape[-1])
            self.columns = {k: v.to(device) for k, v in stage.columns([params] * size).items()}
            self.seed = torch.tensor([to_int64(fresh_seed()) for _ in range(size)], device=device)
            if stage.init(self.columns) is not None:
                raise ValueError(
                    f"{type(stage).__name__} keeps a state and cannot be used alone; "
                    "use lk.LogitsPipeline(params, stages=(stage, ...)) instead"
                )
            self.memory = memory
        assert self.memory.prompt is not None
        width = self.memory.prompt.shape[1]
        history = History(ids, ids.new_full((size,), length), ids.new_full((size,), width))
        slot = torch.arange(size, device=device)
        rows = Rows(
            slot, torch.zeros_like(slot), history.head, history, self.columns, self.seed,
            scores.shape[-1],
        )  # fmt: skip
        return stage.apply(scores.float(), rows).to(scores.dtype)


@dataclass(frozen=True, eq=False)
class BuiltinStage(Stage):
    """A stage whose fields belong to `SamplingParams` and whose rule is in `logitkit.ops`."""

    def __post_init__(self) -> None:
        own_params(self)  # the checks at the door

    def __init_subclass__(cls) -> None:
        cls.is_filter = cls.op in FILTERS

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        assert self.op is not None
        return reference.RULES[self.op](logits, rows)


def own_params(stage: Stage) -> SamplingParams:
    """The stage's constructed values as `SamplingParams`."""
    values = {f.name: getattr(stage, f.name) for f in dataclasses.fields(stage)}
    known = {name: value for name, value in values.items() if name in PARAM_FIELDS}
    extra = {name: value for name, value in values.items() if name not in PARAM_FIELDS}
    return SamplingParams(**known, extra=extra)


def column(values: Iterable[Any]) -> Tensor:
    """One value per slot as a [B] tensor: float64, int64 or bool by the values' type."""
    found = list(values)
    is_float = any(isinstance(value, float) for value in found)
    return torch.tensor(found, dtype=torch.float64 if is_float else None)


def ragged(lists: Iterable[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Lists of different length as (offsets [N + 1], values), both int64."""
    found = [list(values) for values in lists]
    ends = torch.tensor([0] + [len(values) for values in found], dtype=torch.int64).cumsum(0)
    return ends, torch.tensor([v for values in found for v in values], dtype=torch.int64)


@cache
def _field_names(stage: Any) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(stage))


def _default(f: dataclasses.Field[Any]) -> Any:
    return f.default_factory() if f.default_factory is not dataclasses.MISSING else f.default
