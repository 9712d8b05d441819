"""`Slices`: whether a place takes all text over some characters, and for how long.

Beside `body`, which promises the engine with it that whole slices of the vocabulary are taken. What
it says is proved; where that would take long it says nothing, and the engine walks.
"""

from __future__ import annotations

from collections import deque

from logitkit.grammar.strings.automaton import Automaton, Place, State, room_of, shifted
from logitkit.grammar.strings.language import NONE

MOST_VISITED = 40  # places that one proof may visit
MOST_WORK = 160  # leaves of their states together
LEAST_VISITED = 4  # that it may still visit after many that came to nothing
UNPROVED = -1
MOST_LEAVES = 8  # of a state with lookaheads for which a proof is tried


class Slices:
    """Answers about the places of one automaton, which are kept. `wanted` are classes."""

    def __init__(self, automaton: Automaton):
        self._automaton = automaton
        self._most = MOST_VISITED
        self._covers: dict[tuple[Place, int], bool] = {}
        self._reaches: dict[tuple[State, int], int] = {}

    def room(self, place: Place, wanted: int) -> int:
        """n, at most the automaton's horizon: of the texts over `wanted` that are no longer than
        the horizon, exactly those of at most n characters are accepted from `place` on and may go
        on after it, or end. 0 where nothing is proved."""
        horizon = self._automaton.horizon
        if any(part.tangled and part.leaves > MOST_LEAVES for part in place.state):
            return 0
        found = self._reach(place.state, wanted) if place.limit is None else UNPROVED
        if found == UNPROVED and self._covered(place, wanted):
            return horizon
        return min(max(found, 0), horizon)

    def _reach(self, start: State, wanted: int) -> int:
        """The room of a state from which all texts over `wanted` of one length lead to one state,
        else UNPROVED; counters are not followed step by step."""
        horizon = self._automaton.horizon
        ways: list[tuple[State, int]] = []  # the states so far, after how many characters
        state, steps = start, 0
        while True:
            known = self._reaches.get((state, wanted))
            if known is None and steps < horizon:
                ways.append((state, steps))
                onward = [edge for edge in self._automaton.edges(state) if edge[0] & wanted]
                if not onward:
                    known = 0
                elif onward[0][1] == state and not wanted & ~onward[0][0]:
                    known = horizon
                elif len(onward) > 1 or wanted & ~onward[0][0] or len(ways) > MOST_VISITED:
                    known = UNPROVED
                else:
                    state, steps = self._further(state, onward[0][1], steps)
                    continue
            if known is None:  # what is known of the start is enough
                self._reaches[start, wanted] = steps
            else:
                for passed, at in ways:
                    room = UNPROVED if known == UNPROVED else known + steps - at
                    self._reaches[passed, wanted] = room
            return self._reaches[start, wanted]

    def _further(self, state: State, after: State, steps: int) -> tuple[State, int]:
        """The state after one more character, or where counting comes to its bound."""
        room = room_of(state)
        if room is not None and room > 1 and after == shifted(state, 1):
            live = self._automaton.completions.surely_live_throughout
            if all(part is NONE or (live(part) and not part.tangled) for part in state):
                return shifted(state, room), steps + room
        return after, steps + 1

    def _covered(self, place: Place, wanted: int) -> bool:
        """Whether every text over `wanted` is accepted from `place` on, and may go on after it."""
        known = self._covers.get((place, wanted))
        if known is not None:
            return known
        parents: dict[Place, Place | None] = {place: None}
        queue = deque([place])
        work = 0
        while queue:
            here = queue.popleft()
            work += sum(part.leaves for part in here.state)
            if self._covers.get((here, wanted)):
                continue
            reached = 0
            for mask, target, _, _ in self._automaton.arrows(here):
                if not mask & wanted:
                    continue
                reached |= mask
                if target not in parents:
                    parents[target] = here
                    queue.append(target)
            if wanted & ~reached or self._covers.get((here, wanted)) is False:
                step: Place | None = here
                while step is not None:
                    self._covers[step, wanted] = False
                    step = parents[step]
                return False
            if len(parents) > self._most or work > MOST_WORK:
                # Where proofs keep failing, the next ones are given up sooner.
                self._most = max(self._most // 2, LEAST_VISITED)
                self._covers[place, wanted] = False
                return False
        self._covers.update(dict.fromkeys(((each, wanted) for each in parents), True))
        return True
