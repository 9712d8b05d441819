"""`Returns`: where the callers of a rule go on; equal futures are equal numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, product

from logitkit.grammar.ebnf.plans import Entered, Plan, Plans
from logitkit.grammar.ebnf.tables import Tables
from logitkit.grammar.machine import check_time

Item = tuple[int, int]  # (node, return); (-1, TOP or a caller) says that this return was reached
Items = tuple[Item, ...]

TOP = 0
CALLERS = 4  # returns 1 to CALLERS stand for callers that the engine's stack knows
_SELF = -2
_TRIES = 16
_CHECKED_EVERY = 64  # steps between two looks at the clock


class Returns:
    """`items[ret]`: what is added to a state when a rule with this return ends."""

    def __init__(self, tables: Tables, plans: Plans) -> None:
        self.items: list[Items] = [((-1, given),) for given in range(1 + CALLERS)]
        self._tables = tables
        self._plans = plans
        self._made: list[tuple[int, Items]] = [(-1, ())] * (
            1 + CALLERS
        )  # rule, items that led to it
        self._by_content = {frozenset(self.items[given]): given for given in range(1 + CALLERS)}
        self._left: dict[tuple[int, Items], int] = {}
        self._replaced: dict[tuple[int, tuple[tuple[int, int], ...]], int] = {}

    def reduce(self, items: Iterable[Item]) -> set[Item]:
        """The items that can read on, with rules that ended carried to their callers."""
        reads, final = self._tables.reads, self._tables.final
        kept: set[Item] = set()
        seen: set[Item] = set()
        work = list(items)
        while work:
            item = work.pop()
            if item in seen:
                continue
            seen.add(item)
            if not len(seen) % _CHECKED_EVERY:
                check_time()
            node, ret = item
            if node < 0:
                kept.add(item)
                continue
            if reads[node]:
                kept.add(item)
            if final[node]:
                work += self.items[ret]
        return kept

    def of(self, items: Items, plan: Plan) -> list[int]:
        """The returns of a state's items, then those of the rules that it enters."""
        returns = [ret for _, ret in items]
        count = len(plan.entered)
        place = 0
        while place < count:
            entered = plan.entered[place]
            if not self._tables.left_recursive[entered.rule]:
                returns.append(self._plain(items, entered, returns))
                place += 1
                continue
            component = self._tables.component
            stop = place + 1
            while stop < count and component[plan.entered[stop].rule] == component[entered.rule]:
                stop += 1
            self._knot(items, plan.entered[place:stop], returns)
            place = stop
        return returns

    def _plain(self, items: Items, entered: Entered, returns: Sequence[int]) -> int:
        """The return of a rule that is not left recursive: all that it leads to is known."""
        content = frozenset(self.reduce((node, returns[source]) for source, node in entered.waits))
        ret = self._by_content.get(content)
        if ret is None:
            ret = self._add(entered.rule, tuple(items[i] for i in entered.origins), tuple(content))
            self._by_content[content] = ret
        return ret

    def _add(self, rule: int, origins: Items, content: Items) -> int:
        ret = len(self.items)
        self._made[ret:] = [(rule, origins)]  # an interrupt may have left one without a number
        self.items.append(content)
        return ret

    def _knot(self, items: Items, knot: Sequence[Entered], returns: list[int]) -> None:
        """Append the returns of rules that are left recursive through each other."""
        origins = [tuple(items[i] for i in entered.origins) for entered in knot]
        keys = [(entered.rule, origin) for entered, origin in zip(knot, origins, strict=True)]
        fresh: list[int] = []
        try:
            for key in keys:
                if key not in self._left:
                    fresh.append(self._add(*key, ()))
                    self._left[key] = fresh[-1]
                returns.append(self._left[key])
            if not fresh:
                return
            for key, entered in zip(keys, knot, strict=True):
                if self._left[key] in fresh:
                    raw = tuple((node, returns[source]) for source, node in entered.waits)
                    self.items[self._left[key]] = raw
            for ret in fresh:
                self.items[ret] = tuple(self.reduce(self.items[ret]))
            merged = self._merge(fresh)
        except BaseException:
            for key in keys:
                if self._left.get(key) in fresh:
                    del self._left[key]  # to be made anew when somebody asks again
            raise
        for key in keys:
            self._left[key] = merged.get(self._left[key], self._left[key])
        returns[len(returns) - len(knot) :] = [self._left[key] for key in keys]

    def _merge(self, fresh: Sequence[int]) -> dict[int, int]:
        """The return to use for each fresh one: an older one that behaves alike where there is one,
        and one for all fresh ones that lead to the same."""
        merged = self._fold(fresh)
        apart = sorted(set(merged.values()))
        known = self._by_content.get(self._normal(apart[0])) if len(apart) == 1 else None
        older = self._older(apart) if known is None else {apart[0]: known}
        for ret in apart if not older else ():
            self._by_content.setdefault(self._normal(ret), ret)
            self._by_content.setdefault(frozenset(self.items[ret]), ret)
        return {ret: older.get(into, into) for ret, into in merged.items()}

    def _fold(self, fresh: Sequence[int]) -> dict[int, int]:
        """Fresh returns with equal items made one, until no two are equal."""
        merged = {ret: ret for ret in fresh}
        while True:
            into: dict[frozenset[Item], int] = {}
            same = {
                ret: into.setdefault(frozenset(self.items[ret]), ret)
                for ret in sorted(set(merged.values()))
            }
            if len(into) == len(same):
                return merged
            merged = {ret: same[to] for ret, to in merged.items()}
            for ret in into.values():
                self.items[ret] = tuple({(n, merged.get(r, r)) for n, r in self.items[ret]})

    def _older(self, fresh: Sequence[int]) -> dict[int, int]:
        """Older returns that behave as the fresh ones do, by fresh return; empty if there are none.

        They do if their items are the same once every fresh return is replaced by its older one,
        for every item reads a byte before its return matters. Tried are the returns of the same
        rules that the fresh ones lead to.
        """
        found = {r for ret in fresh for _, r in self.items[ret]}.difference(fresh)
        rule = {ret: self._made[ret][0] for ret in (*found, *fresh)}
        choices = [sorted(r for r in found if rule[r] == rule[ret]) for ret in fresh]
        for candidate in islice(product(*choices), _TRIES):
            older = dict(zip(fresh, candidate, strict=True))
            if all(
                {(n, older.get(r, r)) for n, r in self.items[ret]} == set(self.items[older[ret]])
                for ret in fresh
            ):
                return older
        return {}

    def _normal(self, ret: int) -> frozenset[Item]:
        """What a return leads to, with itself under a fixed name."""
        return frozenset((node, _SELF if r == ret else r) for node, r in self.items[ret])

    def ends_caller(self, ret: int) -> bool:
        """Whether reaching a return at once reaches a caller on the engine's stack."""
        return any(node < 0 and given != TOP for node, given in self.items[ret])

    def replaced(self, ret: int, place: Mapping[int, int]) -> int:
        """A return with callers replaced wherever they occur in what it leads to."""
        mapping = tuple(sorted(place.items()))
        work = [ret]
        while work:
            top = work[-1]
            rule, origins = self._made[top]
            missing = [r for _, r in origins if self._known(r, place, mapping) is None]
            if self._known(top, place, mapping) is None and not missing:
                moved = tuple(
                    sorted({(n, self._known(r, place, mapping) or TOP) for n, r in origins})
                )
                plan = self._plans.of(tuple([node for node, _ in moved]))
                index = next(i for i, e in enumerate(plan.entered) if e.rule == rule)
                self._replaced[top, mapping] = self.of(moved, plan)[len(moved) + index]
                missing = []
            if missing:
                work += missing
            else:
                work.pop()
        known = self._known(ret, place, mapping)
        assert known is not None
        return known

    def _known(
        self, ret: int, place: Mapping[int, int], mapping: tuple[tuple[int, int], ...]
    ) -> int | None:
        if ret <= CALLERS:
            return place.get(ret, ret)
        return self._replaced.get((ret, mapping))
