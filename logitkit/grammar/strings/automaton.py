"""`Automaton`: languages side by side as one automaton over classes of characters.

Between `language` and the byte machines of `body`. A state is a tuple of languages, each the rest
of one that was given; a language that nothing spelled can complete becomes NONE, so no state is a
dead end. States are handed out as `Place`s. A *far* place stands for every state that differs from
its own only in how far its counters are, as long as they are far enough from their bounds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from logitkit.grammar.machine import check_time
from logitkit.grammar.strings.charset import CharSet, Partition
from logitkit.grammar.strings.completions import Completions
from logitkit.grammar.strings.language import NONE, Language

State = tuple[Language, ...]

LONGEST_PROOF = 32  # characters of the completion that shows a far place to be alive
LARGEST_CLUSTER = 128  # far places that lead to one another
MOST_PAIRS = 10_000  # states that the search for such a completion may visit


class Place:
    """A state of the automaton `home`, by identity. `limit` is set for a far place: its state is
    the one at counter 0, and it stands for all up to the limit."""

    __slots__ = ("home", "limit", "state")

    def __init__(self, home: Automaton, state: State, limit: int | None):
        self.home, self.state, self.limit = home, state, limit


class Arrow(NamedTuple):
    """The characters of the classes `mask` lead to `place`; its counter is `put`, or grows by
    `add` where that is None."""

    mask: int
    place: Place
    add: int
    put: int | None


class Automaton:
    """The languages of `start`, read character by character; `spelled` are the characters that can
    be written, `horizon` the most that one token reads, `marked` further sets to tell apart."""

    def __init__(
        self,
        start: State,
        spelled: CharSet,
        horizon: int,
        marked: Iterable[CharSet] = (),
    ):
        charsets = [charset for language in start for charset in language.charsets()]
        partition = Partition([*charsets, spelled, *marked])
        self.masks = partition.masks
        self.segments = partition.segments
        self.spelled = partition.masks[spelled]
        self.horizon = horizon
        self.completions = Completions(partition, spelled)
        self._edges: dict[State, list[tuple[int, State]]] = {}
        self._places: dict[State, Place] = {}
        self._far: dict[State, Place | None] = {}
        self._arrows: dict[Place, list[Arrow]] = {}
        self.start = self._prune(start)

    # -- states and their successors

    def _prune(self, state: State) -> State:
        return tuple([part if self.completions.live(part) else NONE for part in state])

    def edges(self, state: State) -> list[tuple[int, State]]:
        """(classes, the state that they lead to), without those that lead nowhere."""
        found = self._edges.get(state)
        if found is None:
            merged: dict[State, int] = {}
            for mask, after in self._after(state):
                after = self._prune(after)
                merged[after] = merged.get(after, 0) | mask
            found = sorted(
                ((mask, after) for after, mask in merged.items() if _alive(after)),
                key=lambda edge: edge[0],
            )
            self._edges[state] = found
        return found

    def _after(self, state: State) -> list[tuple[int, State]]:
        """(classes, what follows them)."""
        check_time()
        if len(state) == 1:
            return [(mask, (rest,)) for mask, rest in self.completions.after(state[0])]
        after: list[tuple[int, State]] = []
        for block in self.completions.blocks(state):
            check_time()
            bit = block & -block
            after.append((block, tuple([part.derive(self.masks, bit) for part in state])))
        return after

    # -- places

    def place(self, state: State) -> tuple[Place, int]:
        """The place of a state, and its counter there."""
        room = room_of(state)
        if room is not None and room > self.horizon:
            surplus = _surplus(state)
            base = shifted(state, -surplus)
            far = self._far[base] if base in self._far else self._make_far(base)
            if far is not None and far.limit is not None and surplus < far.limit:
                return far, surplus
        return self.exact(state), 0

    def exact(self, state: State) -> Place:
        found = self._places.get(state)
        return found or self._places.setdefault(state, Place(self, state, None))

    def landed(self, place: Place, counter: int) -> Place:
        """The place of the one state that a far place stands for at `counter`."""
        return self.exact(shifted(place.state, counter))

    def arrows(self, place: Place) -> list[Arrow]:
        """Where each class of characters leads; a mask is in one arrow only."""
        found = self._arrows.get(place)
        if found is None:
            found = self._arrows[place] = self._make_arrows(place)
        return found

    def _make_arrows(self, place: Place) -> list[Arrow]:
        if place.limit is None:
            return [
                Arrow(mask, target, 0, counter if target.limit is not None else None)
                for mask, after in self.edges(place.state)
                for target, counter in (self.place(after),)
            ]
        merged: dict[tuple[Place, int, int | None], int] = {}
        turns = self._turns(place.state)
        assert turns is not None
        for block, after, relative in turns:
            if relative:
                surplus = _surplus(after)
                far = self._far[shifted(after, -surplus)]
                assert far is not None
                way: tuple[Place, int, int | None] = (far, surplus, None)
            else:
                after = self._prune(after)
                if not _alive(after):
                    continue
                target, counter = self.place(after)
                way = (target, 0, counter)
            merged[way] = merged.get(way, 0) | block
        arrows = [Arrow(mask, *way) for way, mask in merged.items()]
        return sorted(arrows, key=lambda arrow: arrow.mask)

    def _make_far(self, base: State) -> Place | None:
        """The far place of `base` and of those that it leads to with its counters running on; None
        if what follows depends on how far the counters are."""
        cluster = {base: self._relatives(base)}
        queue = [base]
        while queue:
            relatives = cluster[queue.pop()]
            if relatives is None or len(cluster) > LARGEST_CLUSTER:
                self._far[base] = None
                return None
            for relative in relatives:
                if relative not in cluster:
                    cluster[relative] = self._relatives(relative)
                    queue.append(relative)
        margin = 0  # characters of the completions that show all of them to be alive
        for part in {part for state in cluster for part in state if part is not NONE}:
            proof = self._proof(part)
            if proof is None:
                self._far[base] = None
                return None
            margin = max(margin, proof)
        for state in cluster:
            room = room_of(state)
            assert room is not None
            limit = room - self.horizon - margin + 1
            if self._far.get(state) is None:
                self._far[state] = Place(self, state, limit)
        return self._far[base]

    def _relatives(self, state: State) -> list[State] | None:
        """The bases of the states that `state` leads to with its counters one further; None unless
        every other state that it leads to is the same wherever the counters are."""
        turns = self._turns(state)
        if turns is None:
            return None
        return [shifted(after, -_surplus(after)) for _, after, relative in turns if relative]

    def _turns(self, state: State) -> list[tuple[int, State, bool]] | None:
        """(classes, what follows, whether that has the counters of `state` one further, or is the
        same wherever they are); None if something else follows."""
        turned = shifted(state, 1)
        room = room_of(state)
        assert room is not None
        found: list[tuple[int, State, bool]] = []
        for block in self.completions.blocks((*state, *turned)):
            check_time()
            bit = block & -block
            now = tuple([part.derive(self.masks, bit) for part in state])
            later = tuple([part.derive(self.masks, bit) for part in turned])
            if now == later:
                found.append((block, now, False))
                continue
            after = room_of(now)
            if after is None or after < room - 1 or later != shifted(now, 1):
                return None
            if self._prune(now) != now or self._prune(later) != later:
                return None
            found.append((block, now, True))
        return found

    def _proof(self, part: Language) -> int | None:
        """The length of one short completion that works wherever the counters of `part` are; None
        if none is found."""
        if self.completions.surely_live_throughout(part) or part.nullable:
            return 0
        shortest = self.completions.shortest_within_length(part)
        if shortest is not None:
            return shortest
        later = part.shift(1)
        for word in sorted(self.completions.words, key=len):
            if self._ends(part, word) and self._ends(later, word):
                return len(word)
        pairs = [(part, later)]
        seen = set(pairs)
        for length in range(LONGEST_PROOF):
            following: list[tuple[Language, Language]] = []
            for now, later in pairs:
                check_time()
                if self._settled(now, later):
                    return length
                for block in self.completions.blocks((now, later)):
                    bit = block & -block
                    pair = (now.derive(self.masks, bit), later.derive(self.masks, bit))
                    if NONE not in pair and pair not in seen:
                        seen.add(pair)
                        following.append(pair)
            if len(seen) > MOST_PAIRS:
                return None
            pairs = following
        return None

    def _ends(self, part: Language, word: tuple[int, ...]) -> bool:
        for bit in word:
            part = part.derive(self.masks, bit)
        return part.nullable

    def _settled(self, now: Language, later: Language) -> bool:
        if now.nullable and later.nullable:
            return True
        if now == later:
            return self.completions.live(now)
        room = now.room()
        if room is None or later != now.shift(1):
            return False
        turns = any(rest == later for _, rest in self.completions.after(now))
        return turns and self.completions.live(now.shift(room))


def _alive(state: State) -> bool:
    return any(part is not NONE for part in state)


def room_of(state: State) -> int | None:
    """How far the counters of all parts may go on; None: there are none."""
    rooms = [room for part in state if (room := part.room()) is not None]
    return min(rooms) if rooms else None


def _surplus(state: State) -> int:
    return min(part.surplus() for part in state if part.room() is not None)


def shifted(state: State, steps: int) -> State:
    """The state with the counters of all parts `steps` further."""
    return tuple([part.shift(steps) for part in state])


__all__ = ["Arrow", "Automaton", "Place", "State", "room_of", "shifted"]
