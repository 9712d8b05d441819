"""`ObjectPlan`: which members an `Object` may have next and when it may end, for `machine`.

A thread is what must be remembered of the members so far: the names that are gone, and where the
object needs it how many members count towards the minimum and the maximum, whether one of them
was undeclared, the clauses that are still open, and whether the last undeclared member fits `some`.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple, Protocol

from logitkit.grammar.json_schema.types import NEVER, Node, Object
from logitkit.grammar.json_schema.undeclared import Undeclared

Clause = frozenset[tuple[int, bool]]  # one of these positions is present, or absent
Clauses = frozenset[Clause]
NO_CLAUSES: Clauses = frozenset()


class Thread(NamedTuple):
    """Where an object is; `plan` is the number of its plan."""

    plan: int
    gone: int = 0  # declared names that cannot come any more, as bits
    low: int = 0  # members that count towards the minimum, up to it
    high: int = 0  # members that count towards the maximum, if there is one
    extra: bool = False  # an undeclared member was counted in `low`
    clauses: Clauses = NO_CLAUSES
    fits: bool = True  # the last undeclared member is one of `some`, where there are any


class Nodes(Protocol):
    """What plans ask about nodes and keys."""

    def alive(self, node: Node) -> bool:
        """Whether some value of the node can be spelled."""

    def undeclared(self, obj: Object) -> Undeclared: ...

    def has_keys(self, keys: Undeclared, only_some: bool) -> bool:
        """Whether an undeclared key can be spelled (that is in a language of `some`)."""

    def allows_name(self, obj: Object, name: str) -> bool:
        """Whether `propertyNames` holds for a declared name."""


class Offer(NamedTuple):
    """The next keys: `names` as bits by declared position; undeclared ones, all or only `some`."""

    names: int
    undeclared: bool
    only_some: bool

    @property
    def any(self) -> bool:
        return self.names != 0 or self.undeclared


class ObjectPlan:
    """One `Object`, as plan number `index`.

    Where all members are known (all declared names must come, and no others may) they come in
    declared order. Else they come in any order: a name that is passed over may still come later.
    """

    def __init__(self, obj: Object, index: int, nodes: Nodes) -> None:
        self.obj = obj
        self.index = index
        self._nodes = nodes
        self.names = [name for name, _ in obj.properties]
        self.positions = {name: i for i, name in enumerate(self.names)}
        self._usable = self._required = 0
        for i, (name, node) in enumerate(obj.properties):
            usable = nodes.alive(node) and (obj.names is None or nodes.allows_name(obj, name))
            self._usable |= usable << i
            self._required |= (name in obj.required) << i
        self._possible = not self._required & ~self._usable
        only_declared = obj.additional == NEVER and not obj.patterns
        self._ordered = only_declared and not self._usable & ~self._required
        needed = self._required.bit_count()
        self._minimum = obj.min_properties if obj.min_properties > needed else 0
        self._maximum = obj.max_properties
        self._finish: dict[tuple[int, int, Thread], bool] = {}
        clauses = self._first_clauses()
        self.plain = not (self._minimum or self._maximum is not None or clauses or obj.some)
        self.start = Thread(index, clauses=clauses, fits=not obj.some)

    def _first_clauses(self) -> Clauses:
        """The clauses by position, without what is known already; an empty one cannot hold."""
        found: set[Clause] = set()
        for clause in self.obj.clauses:
            literals = {(self.positions[name], present) for name, present in clause}
            if any((i, not present) in literals for i, present in literals):
                continue
            known = {(i, present) for i, present in literals if self._is_settled(i)}
            if not any(present == bool(self._required >> i & 1) for i, present in known):
                found.add(frozenset(literals - known))
        return frozenset(found)

    def _is_settled(self, position: int) -> bool:
        """Whether the name must come, or cannot."""
        return bool((self._required | ~self._usable) >> position & 1)

    @cached_property
    def undeclared(self) -> Undeclared:
        return self._nodes.undeclared(self.obj)

    @cached_property
    def _has_undeclared(self) -> bool:
        return self._nodes.has_keys(self.undeclared, False)

    @property
    def alive(self) -> bool:
        return self._possible and (self.plain or self._can_finish(self.start))

    # What may come ----------------------------------------------------------------------------

    def ends(self, thread: Thread) -> bool:
        """Whether `}` may follow."""
        if self._required & ~thread.gone:
            return False
        if self.plain:
            return True
        absent = all(any(not present for _, present in clause) for clause in thread.clauses)
        return thread.low >= self._minimum and thread.fits and absent

    def offer(self, thread: Thread) -> Offer:
        """The keys that may come next and leave the object able to end."""
        names = self._usable & ~thread.gone
        if self._ordered:
            needed = self._required & ~thread.gone
            if needed:
                names &= (needed & -needed) * 2 - 1  # none after the next required one
        if self.plain:
            return Offer(names, self._has_undeclared, False)
        if self._maximum is not None and thread.high >= self._maximum:
            return Offer(0, False, False)
        names = self._keep(thread, names)
        if not self._has_undeclared:
            return Offer(names, False, False)
        if self._can_finish(self._add_undeclared(thread, not self.obj.some)):
            return Offer(names, True, False)
        fits = bool(self.obj.some) and self._can_finish(self._add_undeclared(thread, True))
        return Offer(names, fits, fits)

    def _keep(self, thread: Thread, names: int) -> int:
        """Those of `names` after which the object can still end."""
        special = 0
        for clause in thread.clauses:
            for position, _ in clause:
                special |= 1 << position
        kept = 0
        for alike in (names & self._required & ~special, names & ~self._required & ~special):
            if alike and self._can_finish(self._add_declared(thread, alike.bit_length() - 1)):
                kept |= alike
        special &= names
        while special:
            one = special & -special
            special ^= one
            if self._can_finish(self._add_declared(thread, one.bit_length() - 1)):
                kept |= one
        return kept

    def take(self, thread: Thread, position: int) -> tuple[Node, Thread]:
        """The value's node and the thread after the declared name at `position`."""
        node = self.obj.properties[position][1]
        if self.plain:
            return node, Thread(thread.plan, self._gone(thread, position))
        return node, self._add_declared(thread, position)

    def _gone(self, thread: Thread, position: int) -> int:
        if self._ordered:
            return (2 << position) - 1
        return thread.gone | 1 << position

    def take_undeclared(self, thread: Thread, tag: frozenset[int]) -> list[tuple[Node, Thread]]:
        """The value's nodes and threads after an undeclared key in the languages of `tag`."""
        node = self.undeclared.node(tag)
        if self.plain:
            return [] if node is None else [(node, thread)]
        found = []
        for fit in self.undeclared.fitting(tag):
            found.append((fit, self._add_undeclared(thread, True)))
        if node is not None:
            found.append((node, self._add_undeclared(thread, not self.obj.some)))
        return [pair for pair in found if self._can_finish(pair[1])]

    # Threads ----------------------------------------------------------------------------------

    def _add_declared(self, thread: Thread, position: int) -> Thread:
        gone = self._gone(thread, position)
        clauses = thread.clauses
        if clauses:
            clauses = _decide(clauses, gone, position)
        return thread._replace(
            gone=gone,
            low=min(thread.low + 1, self._minimum),
            high=thread.high + (self._maximum is not None),
            clauses=clauses,
        )

    def _add_undeclared(self, thread: Thread, fits: bool) -> Thread:
        counts = not thread.extra and self._minimum > 0
        return thread._replace(
            low=min(thread.low + counts, self._minimum),
            high=thread.high + (self._maximum is not None),
            extra=thread.extra or counts,
            fits=fits,
        )

    def _can_finish(self, thread: Thread) -> bool:
        """Whether the object can still be ended, whatever it takes."""
        left = (self._usable & ~thread.gone).bit_count()
        needed = (self._required & ~thread.gone).bit_count()
        key = (left, needed, thread._replace(gone=0))
        found = self._finish.get(key)
        if found is None:
            found = self._finish[key] = self._solve(thread, thread.clauses, left, needed)
        return found

    def _solve(self, thread: Thread, clauses: Clauses, left: int, needed: int) -> bool:
        """Whether some choice of names keeps the clauses and the counts.

        `left`: usable names that are not ruled out; `needed`: those that must come.
        """
        if not clauses:
            return self._counts_fit(thread, left, needed)
        clause = min(clauses, key=lambda each: (len(each), sorted(each)))
        tried: list[tuple[int, bool]] = []
        for literal in sorted(clause, key=lambda each: each[1]):
            now: Clauses | None = clauses
            for position, present in (*((i, not p) for i, p in tried), literal):
                now = None if now is None else _assign(now, position, present)
            if now is not None:
                chosen = [*((i, not p) for i, p in tried), literal]
                more = sum(present for _, present in chosen)
                fewer = len(chosen) - more
                if self._solve(thread, now, left - fewer, needed + more):
                    return True
            tried.append(literal)
        return False

    def _counts_fit(self, thread: Thread, left: int, needed: int) -> bool:
        must_fit = not thread.fits
        if must_fit and not self._nodes.has_keys(self.undeclared, True):
            return False
        room = left + 2 if self._maximum is None else self._maximum - thread.high
        if needed + must_fit > room:
            return False
        want = self._minimum - thread.low
        if want <= 0:
            return True
        bonus = not thread.extra and self._has_undeclared
        if must_fit:
            return min(left, room - 1) + bonus >= want
        return min(room, left + bonus) >= want


def _decide(clauses: Clauses, gone: int, taken: int) -> Clauses:
    """The clauses once `taken` was taken and nothing else of `gone` can come any more."""
    left: set[Clause] = set()
    for clause in clauses:
        if any(present == (i == taken) for i, present in clause if gone >> i & 1):
            continue
        left.add(frozenset(literal for literal in clause if not gone >> literal[0] & 1))
    return frozenset(left)


def _assign(clauses: Clauses, position: int, present: bool) -> Clauses | None:
    """The clauses once `position` is decided; None where one of them then cannot hold."""
    left: set[Clause] = set()
    for clause in clauses:
        if (position, present) in clause:
            continue
        rest = clause - {(position, not present)}
        if not rest:
            return None
        left.add(rest)
    return frozenset(left)
