"""`Machine`: what every grammar front end hands to the engine, and what the engine explores.

A machine is a deterministic byte automaton with a return stack and one counter, explored lazily: a
state is a hashable key of the front end's own, and `expand` says where each byte leads. The engine
(`arena`, `walk`, `matcher`) interns keys, keeps the stack outside the states, and knows nothing of
regexes or schemas.

A configuration is (key, stack, counter). `Step` reads a byte and goes on; `Call` reads a byte,
pushes (site, counter) and starts the callee with counter 0; `Return` reads a byte, pops (site,
counter) and goes on at `resume(site, tag)` with the caller's counter.

Counters keep bounded repeats from multiplying states. A front end replicates its states near a
bound and has one *far* state where the next `horizon` repeats cannot matter: all counters below the
state's `limit` then allow the same tokens, since no token is longer than `horizon` bytes. At the
end of a token that leaves the counter at `limit` or more, the engine calls `land`, which names the
replicated state. A far state's limit is therefore (the bound) - horizon.

Every move must keep a completion that the `alphabet` can spell: the engine looks for no dead ends.
"""

from __future__ import annotations

import math
import operator
import sys
import threading
import time
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from logitkit.errors import GrammarError

Key = Hashable


class Step(NamedTuple):
    """Go to `key`; the counter becomes `put` if given, else grows by `add`."""

    key: Key
    add: int = 0
    put: int | None = None


class Call(NamedTuple):
    """Push (`site`, counter) and start at `key` with counter 0."""

    site: Key
    key: Key


class Return(NamedTuple):
    """Pop (site, counter) and go on at `resume(site, tag)`."""

    tag: Key


Move = Step | Call | Return

# Slices of the vocabulary that a state may promise to take whole, at any place in a token:
# every token that is complete UTF-8 (no surrogates) of code points from U+0020 on, without U+007F,
JSON_TEXT = 1  # ... and without `"` and `\`
PLAIN_TEXT = 2  # ... with all of them


class Kin(NamedTuple):
    """States that are as another one, number 0, but for some bytes: `keys` of numbers 1 to n.

    `places` [m]: the bytes; `leads` int64 [n, m]: the numbers of the states there, -1 being dead.
    """

    keys: Sequence[Key]
    places: NDArray[np.int64]
    leads: NDArray[np.int64]


class Expansion(NamedTuple):
    """Where a state leads. Bytes in no range are dead.

    `moves`: (first byte, last byte, move), ranges disjoint and sorted. `final`: the text may end
    here if the stack is empty. `limit`: see the module. `slices`: slices all of whose tokens this
    state accepts, coming back to a state that allows the text to go on; 0 where it is not certain.
    `room`: of the slices exactly the tokens of at most so many code points (None: all), as where a
    text may grow by `room` characters and no more.
    `controls`: control tokens that are taken whole, by their text (`<tool_call>`), where the
    vocabulary has them; text never matches a control token otherwise.
    `kin`: states that differ from this one in a few bytes only, explored with it.
    """

    moves: Sequence[tuple[int, int, Move]]
    final: bool = False
    limit: int | None = None
    slices: int = 0
    controls: Sequence[tuple[str, Move]] = ()
    room: int | None = None
    kin: Kin | None = None


class Machine(Protocol):
    """A grammar ready to run. Keys are hashable and mean one state; equal keys, equal futures."""

    start: Key
    has_stack: bool  # False: no Call is ever made, so the machine is regular

    def expand(self, key: Key) -> Expansion:
        """Where `key` leads; pure."""

    def resume(self, site: Key, tag: Key) -> Key | None:
        """The caller's state after its callee returned `tag`; None: dead (then nothing returns)."""

    def land(self, key: Key, counter: int) -> tuple[Key, int]:
        """The state and counter in place of a far state whose counter reached its limit."""


@dataclass
class Budget:
    """What a grammar may cost; each is raised by `compile_grammar(..., budget=Budget(states=...))`.

    `states`: explored states of one grammar. `row_bytes`: its mask rows. `seconds`: compiling it,
    and later each mask or token that has to explore it, in processor time of the thread.
    `nesting`: depth of groups or schemas. `repeats`: the largest repeat that must be unrolled.
    ValueError where one is not positive: `seconds` is a finite number, the others are integers.
    """

    states: int = 200_000
    row_bytes: int = 256 * 2**20
    seconds: float = 2.0
    nesting: int = 1_000
    repeats: int = 10_000

    def __post_init__(self) -> None:
        self.seconds = _positive_number("seconds", self.seconds)
        for name in ("states", "row_bytes", "nesting", "repeats"):
            setattr(self, name, _positive_integer(name, getattr(self, name)))

    @contextmanager
    def running(self, spent: float = 0.0) -> Iterator[None]:
        """The clock of this thread: `check_time` raises once `seconds`, less `spent`, are over.
        Inside of another clock there is none: the outer one goes on."""
        if _clock.runs():
            yield
            return
        try:
            _clock.start(self, self.seconds - spent, sys._getframe(2))  # behind contextlib's
            yield
        finally:
            _clock.stop()

    def exceeded(self, name: str, value: object, where: str | None = None) -> NoReturn:
        raise GrammarError(
            f"the grammar needs more than `{name}`={value}; simplify it, or raise the budget: "
            f"compile_grammar(..., budget=Budget({name}=...))",
            where,
        )


class _Clock(threading.local):
    """The budget whose `seconds` run in this thread, if one does.

    Processor time, so that neither other threads nor a busy machine make a grammar fail. It is slow
    to read, and never ahead of the time of day: before `look_at` there is no need to.
    """

    budget: Budget | None = None
    end = look_at = math.inf
    frame: FrameType | None = None

    def start(self, budget: Budget, seconds: float, frame: FrameType) -> None:
        """Run until `frame`, which started it, is left."""
        self.budget, self.frame, self.end = budget, frame, time.thread_time() + seconds
        self.look_at = time.monotonic() + seconds

    def stop(self) -> None:
        self.budget, self.frame, self.look_at = None, None, math.inf

    def runs(self) -> bool:
        """Whether it was started further up; an interrupt can leave there without stopping it."""
        if self.budget is None:
            return False
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame is not self.frame:
            frame = frame.f_back
        if frame is None:
            self.stop()
        return frame is not None

    def look(self) -> None:
        if not self.runs():
            self.look_at = math.inf
            return
        left = self.end - time.thread_time()
        if left <= 0.0 and self.budget is not None:
            self.budget.exceeded("seconds", self.budget.seconds)
        self.look_at = time.monotonic() + left


_clock = _Clock()


def check_time() -> None:
    """Raise GrammarError once the budget that runs in this thread has used up its `seconds`.

    For every loop that a hostile grammar can make long; costs about 0.1 us. Whoever calls it leaves
    nothing half done, as the same question may be asked again.
    """
    if time.monotonic() > _clock.look_at:
        _clock.look()


def is_timed() -> bool:
    """Whether a budget's `seconds` run in this thread."""
    return _clock.runs()


@dataclass(frozen=True, eq=False)
class Context:
    """What a front end must know of the vocabulary: `horizon`, the bytes of the longest token, and
    `alphabet`, the bytes that some token can spell (256 bools)."""

    horizon: int
    alphabet: tuple[bool, ...]
    budget: Budget


def _positive_number(name: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, bool | str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0.0 < number < math.inf:
        raise ValueError(f"Budget: `{name}` is {value!r}; it must be a finite number above 0")
    return number


def _positive_integer(name: str, value: Any) -> int:
    try:
        number = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise ValueError(f"Budget: `{name}` is {value!r}; it must be an integer of at least 1")
    return number
