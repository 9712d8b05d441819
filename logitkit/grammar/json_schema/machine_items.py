"""`Items`: the threads of an array's frame, for `machine`.

All threads of a frame are at the same item, so they share `n` (see `states`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from logitkit.grammar.json_schema.arrays import ArrayPlan, Extra
from logitkit.grammar.json_schema.states import Interned, Pairs

FEW = 8  # items that are not worth a far state


class Items:
    """Interned threads (plan, extra); `reach`: more items than one token can hold."""

    def __init__(self, plans: Sequence[ArrayPlan], horizon: int) -> None:
        self._plans = plans
        self._threads: Interned[tuple[int, Extra]] = Interned()
        self.reach = horizon // 2 + 2  # an item takes two bytes

    def start(self, plans: Iterable[int]) -> tuple[int, list[int]]:
        """`n` and the threads of an array that was just opened."""
        threads = [self._threads.id((plan, self._plans[plan].start)) for plan in plans]
        return self.place(threads, 0)[0], threads

    def limit(self, n: int) -> int | None:
        """The counter at which a far state must be left."""
        return -n - self.reach if n < 0 else None

    def wants(self, count: int, threads: Iterable[int]) -> Pairs:
        """The nodes that item number `count` may have, and the thread after each."""
        wants = {
            (node, self._threads.id((plan, extra)))
            for plan, before in map(self._threads.__getitem__, threads)
            for node, extra in self._plans[plan].options(count, before)
        }
        return tuple(sorted(wants))

    def ended(self, count: int, threads: Iterable[int]) -> frozenset[int]:
        """The plans that may end after `count` items."""
        return frozenset(
            plan
            for plan, extra in map(self._threads.__getitem__, threads)
            if self._plans[plan].ends(count, extra)
        )

    def place(
        self, threads: Iterable[int], count: int, far: bool = False
    ) -> tuple[int, tuple[int, int | None]]:
        """`n` for item number `count` of the threads, and a step's `add` and `put`.

        `far`: the counter has the number of the item before, and `count` is only between the same
        bounds.
        """
        plans = [self._plans[self._threads[thread][0]] for thread in threads]
        bounds = {bound for plan in plans for bound in plan.bounds}
        ahead = min((bound for bound in bounds if bound > count - far), default=None)
        if ahead is None:
            return max(bounds, default=0), (0, 0 if far else None)
        if far:
            return -ahead, (1, None)
        exact = count in bounds or any(not plan.simple for plan in plans)
        if exact or ahead - count <= self.reach + FEW:
            return count, (0, None)
        return -ahead, (0, count)

    def prune(self, threads: Iterable[int]) -> set[int]:
        """Without threads of the same array that another one makes needless."""
        groups: dict[int, set[Extra]] = {}
        for thread in threads:
            plan, extra = self._threads[thread]
            groups.setdefault(plan, set()).add(extra)
        return {
            self._threads.id((plan, extra))
            for plan, extras in groups.items()
            for extra in self._plans[plan].prune(extras)
        }
