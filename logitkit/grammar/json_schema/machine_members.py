"""`Members`: the threads of an object's frame and the keys that they offer, for `machine`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from logitkit.grammar.json_schema.bodies import Bodies
from logitkit.grammar.json_schema.objects import ObjectPlan, Offer, Thread
from logitkit.grammar.json_schema.spelling import Spelling
from logitkit.grammar.json_schema.states import Interned, Pairs
from logitkit.grammar.json_schema.words import Words
from logitkit.grammar.machine import Key
from logitkit.grammar.strings import Language

Threads = tuple[int, ...]


CHUNK = 16


class Names:
    """The declared names of some plans, sorted by their spelling; `texts` are the names."""

    def __init__(self, plans: Sequence[ObjectPlan], spelling: Spelling) -> None:
        spelled = {spelling.string(name): name for plan in plans for name in plan.names}
        self.words = Words(spelled)
        self.texts = [spelled[word] for word in self.words.spellings]
        self._ranks = {text: rank for rank, text in enumerate(self.texts)}
        self._memo: dict[tuple[int, int, int], int] = {}

    def ranked(self, plan: ObjectPlan, positions: int) -> int:
        """Declared positions of a plan (as bits), as bits by rank."""
        found, start = 0, 0
        while positions >> start:
            chunk = positions >> start & (1 << CHUNK) - 1
            key = (plan.index, start, chunk)
            bits = self._memo.get(key)
            if bits is None:
                names = (plan.names[start + i] for i in range(CHUNK) if chunk >> i & 1)
                bits = self._memo[key] = sum(1 << self._ranks[name] for name in names)
            found |= bits
            start += CHUNK
        return found


class KeySet(NamedTuple):
    """The keys that may come next for some threads.

    `names`: number of the declared names; `bits`: which of them may come, by rank; `body`: number
    of the string body of undeclared keys, if there are any; `maps`: for each thread, its own
    languages of undeclared keys and where they are among the body's.
    """

    names: int
    bits: int
    body: int | None
    maps: tuple[dict[int, int], ...]


class Members:
    """Interned threads, and everything about keys."""

    def __init__(self, plans: Sequence[ObjectPlan], spelling: Spelling, bodies: Bodies) -> None:
        self._plans = plans
        self._spelling = spelling
        self._bodies = bodies
        self._threads: Interned[Thread] = Interned()
        self._offers: dict[int, Offer] = {}
        self._key_sets: dict[Threads, KeySet] = {}
        self._plan_sets: Interned[tuple[int, ...]] = Interned()
        self._names: dict[int, Names] = {}

    def start(self, plans: Iterable[int]) -> Threads:
        """The threads of an object that was just opened."""
        return tuple(self._threads.id(self._plans[plan].start) for plan in plans)

    def ended(self, threads: Threads) -> frozenset[int]:
        """The plans that may end here."""
        members = map(self._threads.__getitem__, threads)
        return frozenset(member.plan for member in members if self._plans[member.plan].ends(member))

    def onward(self, threads: Threads) -> Threads:
        """The threads that may have another member."""
        return tuple(thread for thread in threads if self._offer(thread).any)

    def _offer(self, thread: int) -> Offer:
        found = self._offers.get(thread)
        if found is None:
            member = self._threads[thread]
            found = self._offers[thread] = self._plans[member.plan].offer(member)
        return found

    # Keys ---------------------------------------------------------------------------------------

    def keys(self, threads: Threads) -> KeySet:
        """What may come after the opening quote of a key."""
        found = self._key_sets.get(threads)
        if found is None:
            members = [self._threads[thread] for thread in threads]
            names = self._plan_sets.id(tuple(sorted({member.plan for member in members})))
            table = self.names(names)
            bits = 0
            for thread, member in zip(threads, members, strict=True):
                plan = self._plans[member.plan]
                bits |= table.ranked(plan, self._offer(thread).names)
            languages, maps = self._languages(threads)
            body = self._bodies.id(languages, True) if languages else None
            found = self._key_sets[threads] = KeySet(names, bits, body, maps)
        return found

    def names(self, index: int) -> Names:
        found = self._names.get(index)
        if found is None:
            plans = [self._plans[plan] for plan in self._plan_sets[index]]
            found = self._names[index] = Names(plans, self._spelling)
        return found

    def is_single(self, index: int) -> bool:
        """Whether these names are of one object only."""
        return len(self._plan_sets[index]) == 1

    def _languages(
        self, threads: Threads
    ) -> tuple[tuple[Language, ...], tuple[dict[int, int], ...]]:
        """The languages of undeclared keys of all threads, and for each thread its own."""
        languages: dict[Language, int] = {}
        maps: list[dict[int, int]] = []
        for thread in threads:
            offer = self._offer(thread)
            own: dict[int, int] = {}
            if offer.undeclared:
                keys = self._plans[self._threads[thread].plan].undeclared
                first = len(keys.languages) if offer.only_some else 0
                for i, language in enumerate((*keys.languages, *keys.some)):
                    if i >= first:
                        own[i] = languages.setdefault(language, len(languages))
            maps.append(own)
        return tuple(languages), tuple(maps)

    def after_key(self, threads: Threads, tag: Key) -> Pairs:
        """The nodes of the value after a key, and the thread after each.

        `tag`: the indexes of the body's languages that hold an undeclared key, or (rank of the
        declared name, such indexes).
        """
        keys = self.keys(threads)
        name = None
        if isinstance(tag, tuple):
            rank, tag = tag
            name = self.names(keys.names).texts[rank]
        assert isinstance(tag, frozenset)
        wants: set[tuple[int, int]] = set()
        for thread, own in zip(threads, keys.maps, strict=True):
            member = self._threads[thread]
            plan = self._plans[member.plan]
            position = None if name is None else plan.positions.get(name)
            if position is None:
                held = frozenset(i for i, there in own.items() if there in tag)
                found = plan.take_undeclared(member, held) if held else []
            elif self._offer(thread).names >> position & 1:
                found = [plan.take(member, position)]
            else:
                found = []
            wants |= {(node, self._threads.id(after)) for node, after in found}
        return tuple(sorted(wants))
