"""The stage that holds a request to its grammar.

It is the only stage that is bound to a batch: the grammars' states and masks belong to the engine
of one vocabulary. Two ways lead from a token to the next mask. `_Host` asks the engine, which keeps
everything on the CPU and serves every grammar. `_Table` holds regular grammars as byte tables and
masks on the batch's device, so that a step there has no work for the host.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from logitkit.errors import GrammarError
from logitkit.grammar import CompiledGrammar
from logitkit.grammar.arena import Arena
from logitkit.grammar.memory import BOTTOM, DEAD, FREE
from logitkit.grammar.rows import ALL_ROW, EOS_ROW, FIXED_ROWS, NONE_ROW
from logitkit.grammar.table import FIRST, Table
from logitkit.ops import reference
from logitkit.params import ResolvedParams, SamplingParams
from logitkit.params.structured import asked
from logitkit.rows import Rows
from logitkit.stage import BuiltinStage, Stage

Longs = NDArray[np.int64]

_DEAD = (DEAD, BOTTOM, 0)


@dataclass(frozen=True, eq=False)
class Grammar(BuiltinStage):
    """Only tokens with which the text can still follow the request's grammar. Neutral: none given.

    A token that the grammar refuses, drafted or committed, leaves nothing for the rows behind it.
    """

    op: ClassVar[str | None] = "grammar"
    json_schema: Any = None
    regex: Any = None
    ebnf: Any = None
    choice: Any = None
    structural_tag: Any = None

    def is_neutral(self, params: SamplingParams) -> bool:
        return asked(params) is None

    def bind(
        self, params: Sequence[ResolvedParams], ops: ModuleType, device: torch.device
    ) -> Stage:
        grammars = [p.grammar for p in params]
        if all(grammar is None for grammar in grammars):
            return self
        bound = type(self)()
        bound.__dict__["_engine"] = _engine(grammars, ops, device)
        return bound

    @property
    def served_by(self) -> str | None:
        return None if self._engine is None else self._engine.way

    @property
    def _engine(self) -> _Host | _Table | None:
        return self.__dict__.get("_engine")

    def columns(self, params: Sequence[ResolvedParams]) -> dict[str, Tensor]:
        return {} if self._engine is None else self._engine.columns

    def init(self, columns: dict[str, Tensor]) -> Tensor | None:
        return None if self._engine is None else columns["grammar_start"]

    def advance(self, state: Tensor, tokens: Tensor, columns: dict[str, Tensor]) -> Tensor:
        assert self._engine is not None
        return self._engine.advance(state, tokens, columns)

    def op_args(self, rows: Rows) -> dict[str, Tensor]:
        assert self._engine is not None
        return self._engine.masks(rows.state(self), rows)

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        if self._engine is None:
            return logits
        shown = dataclasses.replace(rows, columns={**rows.columns, **self.op_args(rows)})
        return reference.RULES["grammar"](logits, shown)

    def reason(self, row: Rows, before: Sequence[tuple[Stage, Tensor]] = ()) -> str:
        assert self._engine is not None
        found = self._engine.reason(row.state(self), row)
        if found is not None:
            return found
        allowed = self.apply(torch.zeros(1, row.vocab_size, device=row.slot.device), row) == 0
        masking = [_with_field(stage) for stage, masked in before if (masked & allowed).any()]
        by = f", by {' and '.join(masking)}" if masking else ", by the model's own logits"
        ids = allowed[0].nonzero().flatten().tolist()
        if not ids:
            return "the grammar allows no token there"
        told = f"all tokens that the grammar allows ({_some(ids)}) were masked before{by}"
        if set(ids) <= set(self._engine.eos_token_ids):
            told += "; the text is complete, and only eos may follow: do not forbid it there"
        return told

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        name, _ = asked(self) or ("regex", None)
        raise ValueError(
            f"Grammar keeps a state and cannot be used alone; use "
            f"lk.LogitsPipeline(lk.SamplingParams({name}=...), tokenizer=...) instead"
        )


def _engine(
    grammars: Sequence[CompiledGrammar | None], ops: ModuleType, device: torch.device
) -> _Host | _Table:
    """Tables where the batch lives on a device and every grammar has one, else the host."""
    if device.type != "cpu" or ops.BACKEND == "triton":
        return _Table.of(grammars, ops) or _Host(grammars)
    return _Host(grammars)


class _Host:
    """The state is a configuration of the engine, [B, 3] int64, which moves it on the CPU.

    A grammar that exceeds its budget on the way leaves nothing for its own request; the others go
    on.
    """

    way = "host"

    def __init__(self, grammars: Sequence[CompiledGrammar | None]) -> None:
        self._grammars = tuple(grammars)  # configurations mean something as long as these live
        self._arena = _arena(grammars)
        starts = [(FREE, BOTTOM, 0) if g is None else g.start for g in grammars]
        self.columns = {"grammar_start": torch.tensor(starts, dtype=torch.int64)}
        self._failures: dict[int, str] = {}  # slot -> what its grammar exceeded

    def advance(self, state: Tensor, tokens: Tensor, columns: dict[str, Tensor]) -> Tensor:
        before, ids = _numpy(state), _numpy(tokens)
        try:
            moved = self._arena.advance(before, ids)
        except GrammarError:
            alone = [
                self._advance_one(r, before[r : r + 1], ids[r : r + 1]) for r in range(len(ids))
            ]
            moved = np.concatenate(alone)
        return torch.from_numpy(moved).to(state.device)

    def _advance_one(self, slot: int, before: Longs, ids: Longs) -> Longs:
        try:
            return self._arena.advance(before, ids)
        except GrammarError as error:
            self._failures[slot] = str(error)
            return np.array([_DEAD], np.int64)

    def masks(self, state: Tensor, rows: Rows) -> dict[str, Tensor]:
        configurations = _numpy(state)
        try:
            store, ids = self._arena.masks(configurations)
        except GrammarError:
            store, ids = self._arena.masks(self._within_budget(configurations, rows.slot.tolist()))
        if state.device.type == "cpu":
            return {"mask_rows": store.tensor, "mask_row": torch.from_numpy(ids)}
        used, places = np.unique(np.append(ids, ALL_ROW), return_inverse=True)
        return {
            "mask_rows": store.tensor[torch.from_numpy(used)].to(state.device),
            "mask_row": torch.from_numpy(places[:-1].astype(np.int32)).to(state.device),
        }

    def _within_budget(self, configurations: Longs, slots: Sequence[int]) -> Longs:
        """The configurations, but dead where the mask cannot be made."""
        kept = configurations.copy()
        for r, slot in enumerate(slots):
            try:
                self._arena.masks(kept[r : r + 1])
            except GrammarError as error:
                self._failures[slot] = str(error)
                kept[r] = _DEAD
        return kept

    def reason(self, state: Tensor, rows: Rows) -> str | None:
        failed = next((self._failures[s] for s in rows.slot.tolist() if s in self._failures), None)
        return failed or _reason(bool((state[:, 0] == DEAD).any()))

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        return self._arena.eos_token_ids


class _Table:
    """The state is one number per request: -1 dead, 0 without a grammar, 1 ended, else a state of
    the batch's tables, which follow each other. Nothing here waits for the host.
    """

    way = "table"
    _free, _ended, _first = 0, 1, 2

    def __init__(
        self,
        grammars: Sequence[CompiledGrammar | None],
        tables: Mapping[CompiledGrammar, tuple[Table, Tensor]],
        ops: ModuleType,
    ) -> None:
        self._advance_fsm = ops.advance_fsm
        free = np.full((1, 256), self._free, np.int32)
        moves, final = [free, np.full((1, 256), -1, np.int32)], [[False, True]]
        rows = [next(iter(tables.values()))[1][:FIXED_ROWS]]
        row = [[ALL_ROW, EOS_ROW]]
        starts, size, num_rows = {}, self._first, FIXED_ROWS
        for grammar, (table, masks) in tables.items():
            starts[grammar] = size + table.start - FIRST
            alive = table.transitions[FIRST:]
            moves.append(np.where(alive < FIRST, -1, alive + (size - FIRST)))
            final.append(table.final[FIRST:].tolist())
            used, places = np.unique(table.row_of_state[FIRST:], return_inverse=True)
            rows.append(masks[torch.from_numpy(used)])
            row.append((num_rows + places).tolist())
            size, num_rows = size + len(alive), num_rows + len(used)
        vocabulary = next(iter(tables)).vocabulary
        self.columns = {
            "grammar_start": torch.tensor(
                [self._free if g is None else starts[g] for g in grammars]
            ),
            "grammar_moves": torch.from_numpy(np.concatenate(moves)),
            # the last entries of these two are those of state -1
            "grammar_final": torch.tensor([*chain(*final), False]),
            "grammar_row": torch.tensor([*chain(*row), NONE_ROW], dtype=torch.int32),
            "grammar_rows": torch.cat(rows),
            "grammar_eos": torch.tensor(vocabulary.eos_token_ids),
            "grammar_offsets": torch.from_numpy(vocabulary.offsets.copy()),
            "grammar_bytes": torch.from_numpy(vocabulary.data.copy()),
        }

    @classmethod
    def of(cls, grammars: Sequence[CompiledGrammar | None], ops: ModuleType) -> _Table | None:
        """None where a grammar has no table."""
        tables = {}
        for grammar in {g: None for g in grammars if g is not None}:
            found = _table_and_rows(grammar)
            if found is None:
                return None
            tables[grammar] = found
        return cls(grammars, tables, ops)

    def advance(self, state: Tensor, tokens: Tensor, columns: dict[str, Tensor]) -> Tensor:
        moved = self._advance_fsm(
            state, tokens, columns["grammar_offsets"], columns["grammar_bytes"],
            columns["grammar_moves"],
        )  # fmt: skip
        ends = (tokens[:, None] == columns["grammar_eos"]).any(1) & columns["grammar_final"][state]
        moved = torch.where(ends, self._ended, moved)
        return torch.where(state == self._free, state, moved)

    def masks(self, state: Tensor, rows: Rows) -> dict[str, Tensor]:
        columns = rows.columns
        return {"mask_rows": columns["grammar_rows"], "mask_row": columns["grammar_row"][state]}

    def reason(self, state: Tensor, rows: Rows) -> str | None:
        return _reason(bool((state < 0).any()))

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        return tuple(self.columns["grammar_eos"].tolist())


def _table_and_rows(grammar: CompiledGrammar) -> tuple[Table, Tensor] | None:
    """A grammar's table, and the masks that its rows count in."""
    while True:
        store = grammar.arena.store
        table = grammar.table()
        if grammar.arena.store is store:  # else the ids may count in the one or the other
            return None if table is None else (table, store.tensor)


def _arena(grammars: Sequence[CompiledGrammar | None]) -> Arena:
    """The arena of the grammars, which are of one vocabulary."""
    first, *others = [grammar.arena for grammar in grammars if grammar is not None]
    assert all(arena is first for arena in others)
    return first


def _reason(is_dead: bool) -> str | None:
    return "the grammar does not allow a token before it" if is_dead else None


def _with_field(stage: Stage) -> str:
    """A stage and the field of the request that it serves."""
    fields = dataclasses.fields(stage)
    return type(stage).__name__ + (f" (`{fields[0].name}`)" if fields else "")


def _some(ids: Sequence[int]) -> str:
    shown = ", ".join(map(str, ids[:4]))
    if len(ids) == 1:
        return f"token {shown}"
    return f"tokens {shown}" + (f" and {len(ids) - 4} more" if len(ids) > 4 else "")


def _numpy(values: Tensor) -> Longs:
    found: Longs = values.cpu().contiguous().numpy()
    return found
