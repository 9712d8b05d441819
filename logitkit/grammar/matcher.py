"""`CompiledGrammar`, what `compile_grammar` returns, and `Matcher`, one text that follows it.

A matcher is a configuration of the arena and the configurations before it. What single calls find
out is remembered in `Position` objects, a graph in plain Python, as a dictionary is faster to ask
than a kernel is to call; batches (`matcher_batch`) go to the kernels directly.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NoReturn, Protocol, SupportsIndex

import numpy as np
import torch
from numpy.typing import NDArray

from logitkit.errors import GrammarError
from logitkit.grammar.arena import Arena, Configuration, VocabularyLike, arena_of
from logitkit.grammar.likely import LikelyTexts
from logitkit.grammar.machine import Budget, Machine
from logitkit.grammar.memory import CONTROLS, DEAD, FINAL, FLAGS, STOPPED
from logitkit.grammar.rows import RowStore
from logitkit.grammar.spec import JsonSchema, Spec
from logitkit.grammar.table import Made, Table, make_table, renewed
from logitkit.grammar.warm import Ahead

POSITIONS = 1 << 16  # remembered for single calls, per grammar


class Position:
    """A configuration, and what was found out about it."""

    __slots__ = ("complete", "configuration", "next", "place")

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.next: dict[int, Position] = {}
        self.place = (-1, -1)  # generation of the store, row
        self.complete: bool | None = None


class CompiledGrammar:
    """A grammar over a vocabulary; shared by any number of matchers and threads.

    `start` is the configuration to begin with, for the batch functions of `arena`. `is_regular`: no
    recursion, so `table` may put all of it on a device.
    """

    def __init__(
        self, machine: Machine, vocabulary: VocabularyLike, budget: Budget, spec: Spec | None = None
    ) -> None:
        self.spec, self.vocabulary, self.budget = spec, vocabulary, budget
        self.is_regular = not machine.has_stack
        self.arena: Arena = arena_of(vocabulary)
        self.program = self.arena.add(machine, budget, self)
        state, node, counter = self.arena.start(self.program).tolist()
        self.start: Configuration = (state, node, counter)
        self._positions: dict[Configuration, Position] = {}
        self._table: Made | None = None
        self._table_tried = False
        self._ahead: Ahead | None = None

    def matcher(self) -> Matcher:
        """A matcher at the start."""
        return Matcher(self)

    def __copy__(self) -> CompiledGrammar:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> CompiledGrammar:
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            "a CompiledGrammar cannot be pickled: pickle its `spec`, and compile that again with "
            "lk.compile_grammar(spec, vocabulary)"
        )

    @property
    def is_empty(self) -> bool:
        """Whether no text matches (machines have dead ends nowhere but at the start)."""
        return self.arena.is_dead_end(self.program.start)

    @property
    def is_blank(self) -> bool:
        """Whether the empty text is all that matches."""
        heap, start = self.arena.heap, self.program.start
        moves = bool((heap.table[start] != DEAD).any())
        return not moves and heap.states[start, FLAGS] & (FINAL | CONTROLS) == FINAL

    @property
    def nbytes(self) -> int:
        """What the grammar holds in memory, roughly; rows are shared and not counted."""
        return self.program.nbytes + 300 * len(self._positions)

    def warm(
        self,
        seconds: float | None = None,
        states: int | None = None,
        row_bytes: int | None = None,
    ) -> bool:
        """Build mask rows ahead; whether every reachable row is built now.

        Of a JSON Schema those of likely documents come first: members in declared order. Stops
        after `seconds` of the thread's processor time, at `states` explored states or `row_bytes`
        bytes of rows, whichever is first; by default at the grammar's budget, and for a JSON Schema
        after 0.02 s, or 0.08 s if the likeliest documents take so long. A later call goes on.
        ValueError for a limit that is no number from 0.
        """
        for name, limit in (("seconds", seconds), ("states", states), ("row_bytes", row_bytes)):
            if limit is not None and not (isinstance(limit, int | float) and limit >= 0):
                raise ValueError(f"warm: `{name}` is {limit!r}: give a number from 0, or None")
        with self.arena.lock:
            if self._ahead is None:
                texts = None
                if isinstance(self.spec, JsonSchema):
                    texts = LikelyTexts(self.arena, self.start, self.spec.schema)
                self._ahead = Ahead(self, texts)
            ahead = self._ahead
        try:
            return ahead.warm(self, seconds, states, row_bytes)
        except GrammarError:  # one state alone is over the budget; a mask that needs it says so
            self._ahead = None
            return False

    def visit(self, at: Configuration, tokens: Sequence[int], until: float) -> Iterator[int]:
        """Build the rows along some tokens from a configuration on, as far as they are accepted and
        the thread's processor time is not `until`: the rows' ids."""
        position = self.position(at)
        for token in tokens:
            yield self.locate(position)[1]
            after = position.next.get(token) or self.step(position, token)
            if after is None or time.thread_time() > until:
                return
            position = after
        yield self.locate(position)[1]

    def locate(self, position: Position) -> tuple[RowStore, int]:
        """The store of rows and the row of a position, remembered there."""
        store, row = self.arena.locate(position.configuration)
        position.place = store.generation, row
        return store, row

    def table(self) -> Table | None:
        """A regular grammar as dense arrays for a device; None if it is none or over its budget.

        Its `row_of_state` counts in `arena.rows`, and is renewed when the arena renews those.
        """
        if not self.is_regular:
            return None
        with self.arena.lock:
            if not self._table_tried:
                self._table_tried = True
                with suppress(GrammarError):  # one state alone was over the budget
                    self._table = make_table(self.arena, self.program, self.start, self.budget)
            elif self._table and self._table.generation != self.arena.store.generation:
                self._table = renewed(self.arena, self.program, self._table)
            return self._table.table if self._table else None

    def position(self, configuration: Configuration) -> Position:
        """The remembered position of a configuration."""
        position = self._positions.get(configuration)
        if position is None:
            if len(self._positions) >= POSITIONS:
                self._forget()
            position = self._positions.setdefault(configuration, Position(configuration))
        return position

    def _forget(self) -> None:
        """Drop what is remembered; live matchers keep their own position and no more."""
        positions, self._positions = self._positions, {}
        for position in positions.values():
            position.next = {}

    def step(self, position: Position, token: int) -> Position | None:
        """The position after a token; None: refused."""
        after = self.arena.step(position.configuration, token)
        if after is None:
            return None
        found = position.next[token] = self.position(after)
        return found

    def is_complete(self, position: Position) -> bool:
        if position.complete is None:
            position.complete = self.arena.is_final(position.configuration)
        return position.complete


class Batch(Protocol):
    """What a matcher knows of the `MatcherBatch` that it is in."""

    configurations: NDArray[np.int64]
    left_by: Matcher | None

    def pull(self, matcher: Matcher) -> None: ...


class Matcher:
    """One text on its way through a grammar. Not for several threads at once."""

    __slots__ = ("_arena", "_batch", "_column", "_history", "_position", "_seen", "grammar")

    def __init__(self, grammar: CompiledGrammar) -> None:
        self.grammar = grammar
        self._arena = grammar.arena
        self._position = grammar.position(grammar.start)
        self._history: list[Configuration] = []
        self._batch: Batch | None = None
        self._column = self._seen = 0

    def mask(self) -> torch.Tensor:
        """The tokens that may follow: int32 [ceil(size / 32)], token t = word t // 32, bit t % 32.

        The tensor is shared: read only. Ids beyond the vocabulary are never set.
        """
        if self._batch is not None:
            self._pull()
        position = self._position
        store = self._arena.store
        generation, row = position.place
        if generation != store.generation:
            store, row = self.grammar.locate(position)
        return store.view(row)

    def accept(self, token: int) -> bool:
        """Take a token; False leaves everything as it was. Eos stops the text where it may end.

        ValueError for what is no token id of the vocabulary.
        """
        if self._batch is not None:
            self._pull()
        position = self._position
        after = position.next.get(token) if type(token) is int else None
        if after is None:
            after = self.grammar.step(position, self._checked(token))
        if after is None:
            return False
        self._history.append(position.configuration)
        self._position = after
        if self._batch is not None:
            self._push()
        return True

    def rollback(self, n: int) -> None:
        """Take back the last `n` accepted tokens, eos included. ValueError if there are fewer."""
        if self._batch is not None:
            self._pull()
        n = _integer("n", n, "the number of tokens to take back")
        if not 0 <= n <= len(self._history):
            raise ValueError(f"n={n} must be from 0 to {len(self._history)}, the accepted tokens")
        if n:
            self._position = self.grammar.position(self._history[-n])
            del self._history[-n:]
            if self._batch is not None:
                self._push()

    def reset(self) -> None:
        """Go back to the start."""
        if self._batch is not None:
            self._pull()
        self._position = self.grammar.position(self.grammar.start)
        self._history.clear()
        if self._batch is not None:
            self._push()

    def fork(self) -> Matcher:
        """A copy that goes its own way (and is in no batch)."""
        if self._batch is not None:
            self._pull()
        other = Matcher(self.grammar)
        other._position = self._position
        other._history = self._history.copy()
        return other

    @property
    def configuration(self) -> Configuration:
        """Where the text is, as the batch functions of the arena take it."""
        if self._batch is not None:
            self._pull()
        return self._position.configuration

    @property
    def num_accepted(self) -> int:
        """How many tokens can be rolled back."""
        if self._batch is not None:
            self._pull()
        return len(self._history)

    @property
    def is_complete(self) -> bool:
        """Whether the text may stop here (every eos id is allowed), or has."""
        if self._batch is not None:
            self._pull()
        return self.grammar.is_complete(self._position)

    @property
    def is_stopped(self) -> bool:
        """Whether eos was accepted."""
        return self.configuration[0] == STOPPED

    def forced_tokens(self) -> list[int]:
        """The canonical tokens of the longest byte string that must come next, but for the last:
        whether the model would end it there or go on in one token is the model's choice."""
        text = self._arena.forced_bytes(self.configuration)
        return self.grammar.vocabulary.tokenize(text)[:-1] if text else []

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            "a Matcher cannot be copied or pickled: fork() makes an independent one; in another "
            "process, compile the grammar again and accept the same tokens"
        )

    def _checked(self, token: Any) -> int:
        """`token` as an int, if it is a token id; ValueError."""
        checked, size = _integer("token", token, "a token id"), self._arena.size
        if not 0 <= checked < size:
            raise ValueError(
                f"`token` is {token!r}; the vocabulary has the token ids 0 to {size - 1}"
            )
        return checked

    def _pull(self) -> None:
        assert self._batch is not None
        self._batch.pull(self)

    def _push(self) -> None:
        assert self._batch is not None
        self._batch.configurations[self._column] = self._position.configuration


def _integer(name: str, value: Any, meaning: str) -> int:
    """`value` as an int; ValueError where it is none. A tensor of one integer is one."""
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise ValueError(f"`{name}` is {value!r}; it must be an integer, {meaning}") from None
