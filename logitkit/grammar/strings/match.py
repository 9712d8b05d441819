"""`Match`: the places in a regular expression that a text may stand at, as a language.

Beside `language`, of which it is a leaf, and above `program`. The places all stand before a
character: after each one, `_Walk` follows everything that reads none, assertions included.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from logitkit.grammar.machine import check_time
from logitkit.grammar.strings.charset import ALL, CharSet
from logitkit.grammar.strings.language import (
    ANY,
    EMPTY_WORD,
    NONE,
    Language,
    Masks,
    conjunction,
    disjunction,
    negation,
)
from logitkit.grammar.strings.program import Closed, Cont, Item, Program
from logitkit.grammar.strings.syntax import (
    ANYTHING,
    Ahead,
    AtEnd,
    AtStart,
    Behind,
    Concat,
    Node,
    Repeat,
    Union,
)

TANGLED_COST = 50  # a step past assertions costs as much as so many others
CHECKED_EVERY = 64  # steps between two looks at the clock
NO_LOOKS = frozenset[Language]()

Before = tuple[Masks, int] | None  # the character before; None at the start


def started(root: Node) -> Language:
    """The language of a syntax tree."""
    program = Program(root)
    if program.plain:
        return settle(program, *_closed(program, program.root))
    walk = _Walk(program, None)
    walk.run(program.root)
    return walk.language()


def _closed(program: Program, cont: Cont | None) -> Closed:
    """The places before a character that `cont` leads to; for plain programs."""
    if cont is None:
        return (), True
    if cont.closed is None:
        walk = _Walk(program, None)
        walk.run(cont)
        items, final = walk.groups.get(NO_LOOKS, ({}, False))
        cont.closed = (tuple(items), final)
    return cont.closed


class _Walk:
    """Follows a place through everything that reads no character, assertions included."""

    def __init__(self, program: Program, before: Before):
        self.program, self.before = program, before
        self.looked: dict[Ahead, Language] = {}
        # The lookaheads that must hold -> places before a character, whether the text may end.
        self.groups: dict[frozenset[Language], tuple[dict[Item, None], bool]] = {}

    def run(self, *conts: Cont | None) -> None:
        self.seen: set[tuple[Cont | None, bool, frozenset[Language]]] = set()
        self.stack = [(cont, False, NO_LOOKS) for cont in conts]
        steps = 0
        while self.stack:
            steps += 1
            if not steps % CHECKED_EVERY:
                check_time()
            entry = self.stack.pop()
            if entry not in self.seen:
                self.seen.add(entry)
                self._visit(*entry)

    def language(self) -> Language:
        """The union over the groups of what was found."""
        return disjunction(
            conjunction([settle(self.program, items, final), *looks])
            for looks, (items, final) in self.groups.items()
        )

    def _visit(self, cont: Cont | None, ended: bool, looks: frozenset[Language]) -> None:
        if cont is None:
            self._record(looks, None)
            return
        node, rest = cont.node, cont.rest
        if cont.charset is not None:
            if not ended:
                self._record(looks, (cont, 0))
            if cont.repeats and cont.low == 0:
                self.stack.append((rest, ended, looks))
        elif isinstance(node, Concat):
            for part in reversed(node.parts):
                rest = self.program.cont(part, rest)
            self.stack.append((rest, ended, looks))
        elif isinstance(node, Union):
            self.stack += [(self.program.cont(part, rest), ended, looks) for part in node.parts]
        elif isinstance(node, Repeat):
            self._enter(cont, node, ended, looks)
        else:
            self._assert(node, rest, ended, looks)

    def _record(self, looks: frozenset[Language], item: Item | None) -> None:
        items, final = self.groups.get(looks, ({}, False))
        if item is not None:
            items[item] = None
        self.groups[looks] = (items, final or item is None)

    def _enter(self, cont: Cont, node: Repeat, ended: bool, looks: frozenset[Language]) -> None:
        done = cont.count
        if done >= node.low:
            self.stack.append((cont.rest, ended, looks))
        if node.high is None or done < node.high:
            again = done + 1 if node.high is not None else min(done + 1, node.low)
            back = self.program.cont(node, cont.rest, again)
            if node.body.nullable:
                # Coming back without a character adds nothing that this place has not.
                self.seen.add((back, ended, looks))
            self.stack.append((self.program.cont(node.body, back), ended, looks))

    def _assert(
        self, node: Node, rest: Cont | None, ended: bool, looks: frozenset[Language]
    ) -> None:
        if isinstance(node, AtStart):
            if self.before is None:
                self.stack.append((rest, ended, looks))
        elif isinstance(node, AtEnd):
            self.stack.append((rest, True, looks))
        elif isinstance(node, Behind):
            held = False
            if self.before is not None:
                masks, bit = self.before
                held = bool(masks[node.charset] & bit)
            if held != node.negate:
                self.stack.append((rest, ended, looks))
        else:
            assert isinstance(node, Ahead)
            self._look(node, rest, ended, looks)

    def _look(
        self, node: Ahead, rest: Cont | None, ended: bool, looks: frozenset[Language]
    ) -> None:
        language = self.looked.get(node)
        if language is None:
            walk = _Walk(self.program, self.before)
            walk.looked = self.looked
            walk.run(self.program.cont(node.body, self.program.cont(ANYTHING, None)))
            language = negation(walk.language()) if node.negate else walk.language()
            self.looked[node] = language
        if ended:
            language = ANY if language.nullable else NONE
        if language is ANY:
            self.stack.append((rest, ended, looks))
        elif language is not NONE:
            self.stack.append((rest, ended, looks | {language}))


class Match(Language):
    """The places in a program that a text may stand at, and whether it may end here."""

    __slots__ = ("items", "program")

    simple = True

    def __init__(self, program: Program, items: frozenset[Item], final: bool):
        self.program, self.items, self.nullable = program, items, final
        self.depth, self.leaves, self.tangled = 1, 1, not program.plain
        self._hash = hash((items, final))

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Match)
            and self._hash == other._hash
            and self.nullable == other.nullable
            and self.items == other.items
        )

    __hash__ = Language.__hash__

    def kind(self) -> object:
        return self.program

    def united(self, others: Sequence[Language]) -> Language:
        parts = [self, *(other for other in others if isinstance(other, Match))]
        places = frozenset[Item]().union(*(part.items for part in parts))
        return settle(self.program, places, any(part.nullable for part in parts))

    def charsets(self) -> Iterator[CharSet]:
        return iter(self.program.charsets)

    def first(self) -> Iterable[CharSet]:
        found = {cont.charset for cont, _ in self.items if cont.charset is not None}
        return found.union(self.program.behind) if self.program.behind else found

    def derive(self, masks: Masks, bit: int) -> Language:
        program = self.program
        items: list[Item] = []
        final = False
        onward: list[Cont | None] = []
        for cont, count in self.items:
            assert cont.charset is not None
            if not masks[cont.charset] & bit:
                continue
            if not cont.repeats:
                onward.append(cont.rest)
                continue
            count += 1
            if cont.high < 0:
                count = min(count, cont.low)
                items.append((cont, count))
            elif count < cont.high:
                items.append((cont, count))
            if count >= cont.low:
                onward.append(cont.rest)
        if not program.plain:
            walk = _Walk(program, (masks, bit))
            walk.groups[NO_LOOKS] = (dict.fromkeys(items), False)
            walk.run(*onward)
            return walk.language()
        for rest in onward:
            more, ends = _closed(program, rest)
            items += more
            if len(more) > CHECKED_EVERY:
                check_time()
            final = final or ends
        return settle(program, items, final)

    def distance(self) -> int:
        if self.nullable:
            return 0
        return min(cont.after + max(cont.low - count, 1) for cont, count in self.items)

    def at_most(self) -> int | None:
        """n if this holds exactly the texts of at most n characters; None if that is not plain."""
        if len(self.items) != 1 or not self.nullable:
            return None
        ((cont, count),) = self.items
        if cont.charset is not ALL or cont.rest is not None or not cont.repeats or cont.high < 0:
            return None
        return cont.high - count if count >= cont.low else None

    def holds_lengths_of(self, other: Language) -> bool:
        if not isinstance(other, Match) or len(self.items) != 1:
            return False
        ((cont, count),) = self.items
        if cont.charset is not ALL or cont.rest is not None or not cont.repeats:
            return False
        longest = other.program.longest
        high = cont.high < 0 or (longest is not None and longest <= cont.high - count)
        return high and other.distance() >= cont.low - count

    def size(self) -> int:
        return len(self.items) * (TANGLED_COST if self.tangled else 1)

    def alone(self, item: Item) -> Match:
        """The language of one of the places, without the end."""
        return (
            self
            if len(self.items) == 1 and not self.nullable
            else Match(self.program, frozenset((item,)), False)
        )

    def room(self) -> int | None:
        found: int | None = None
        for cont, count in self.items:
            if cont.counts and (count < cont.low or cont.high > 0):
                room = (cont.low if count < cont.low else cont.high) - 1 - count
                found = room if found is None else min(found, room)
        return found

    def surplus(self) -> int:
        return min(
            count if count < cont.low else count - cont.low
            for cont, count in self.items
            if cont.counts and (count < cont.low or cont.high > 0)
        )

    def shift(self, steps: int) -> Language:
        moved = frozenset(
            (cont, count + steps)
            if cont.counts and (count < cont.low or cont.high > 0)
            else (cont, count)
            for cont, count in self.items
        )
        return Match(self.program, moved, self.nullable)


def settle(program: Program, items: Iterable[Item], final: bool) -> Language:
    """The language of these places, simplified."""
    places = frozenset(items)
    if not places:
        return EMPTY_WORD if final else NONE
    counted: dict[Cont, int] = {}
    spent: list[Item] = []
    for item in places:
        cont, count = item
        if not cont.repeats:
            continue
        if cont.high < 0:
            if count >= cont.low and cont.rest is None and cont.charset is ALL:
                return ANY
        elif count >= cont.low:
            # Of two counts that may both leave, the lower one can do all that the higher can.
            least = counted.get(cont)
            if least is None:
                counted[cont] = count
            else:
                counted[cont] = min(count, least)
                spent.append((cont, max(count, least)))
    if spent:
        places = places.difference(spent)
    return Match(program, places, final)
