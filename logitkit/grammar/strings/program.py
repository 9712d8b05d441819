"""`Program` and `Match`: a regular expression as a nondeterministic automaton made while it runs.

Beside `language`, of which `Match` is a leaf. A place is a `Cont`: a syntax node and what comes
after it. The places of a `Match` all stand before a character. Repeats of one character set keep a
count beside their place; any other repeat counts in its `Cont`, so it is unrolled as it is entered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

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
from logitkit.grammar.strings.syntax import (
    ANYTHING,
    Ahead,
    AtEnd,
    AtStart,
    Behind,
    Chars,
    Concat,
    Node,
    Repeat,
    Union,
)

SHORTEST_COUNTED = 16  # a repeat of one character set is worth a counter from here on
TANGLED_COST = 50  # a step past assertions costs as much as so many others

Item = tuple["Cont", int]  # a place before a character, how often its repeat has run
Closed = tuple[tuple[Item, ...], bool]  # places before a character, whether the text may end
Before = tuple[Masks, int] | None  # the character before; None at the start


class Cont:
    """The rest of a match: `node`, then `rest` (None: the end). Interned by its program.

    `charset` is set where the node reads one character, with `low` and `high` (-1: no bound) where
    it repeats it. `counts`: the repeat is long enough to be worth a counter of the engine.
    `least`: characters that a match still needs at least, `after` without the node's own.
    """

    __slots__ = (
        "after",
        "charset",
        "closed",
        "count",
        "counts",
        "high",
        "least",
        "low",
        "node",
        "repeats",
        "rest",
    )

    least: int

    def __init__(self, node: Node, rest: Cont | None, count: int):
        self.node, self.rest, self.count = node, rest, count
        self.closed: Closed | None = None
        self.after = rest.least if rest else 0
        done = count * node.body.least if isinstance(node, Repeat) else 0
        self.least = self.after + max(node.least - done, 0)
        self.charset: CharSet | None = None
        self.repeats, self.counts, self.low, self.high = False, False, 1, 1
        if isinstance(node, Chars):
            self.charset = node.charset
        elif isinstance(node, Repeat) and isinstance(node.body, Chars):
            self.charset = node.body.charset
            self.repeats, self.low = True, node.low
            self.high = -1 if node.high is None else node.high
            self.counts = max(self.low, self.high) >= SHORTEST_COUNTED


class Program:
    """A syntax tree with the places in it that were visited.

    `plain`: no assertion is left, so every place can still lead to a match.
    """

    def __init__(self, root: Node):
        self.plain = root.plain
        self._conts: dict[tuple[Node, Cont | None, int], Cont] = {}
        self.charsets, self.behind = _collect(root)
        self.start = self.closure(self.cont(root, None), None)

    def cont(self, node: Node, rest: Cont | None, count: int = 0) -> Cont:
        key = (node, rest, count)
        found = self._conts.get(key)
        return found or self._conts.setdefault(key, Cont(node, rest, count))

    def closed(self, cont: Cont | None) -> Closed:
        """The places before a character that `cont` leads to; for plain programs."""
        if cont is None:
            return (), True
        if cont.closed is None:
            walk = _Walk(self, None)
            walk.run(cont)
            items, final = walk.groups.get(NO_LOOKS, ({}, False))
            cont.closed = (tuple(items), final)
        return cont.closed

    def closure(self, cont: Cont | None, before: Before) -> Language:
        """The language of `cont` after the character `before`."""
        if self.plain:
            return settle(self, *self.closed(cont))
        walk = _Walk(self, before)
        walk.run(cont)
        return walk.language()


NO_LOOKS = frozenset[Language]()


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
        while self.stack:
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
            more, ends = program.closed(rest)
            items += more
            final = final or ends
        return settle(program, items, final)

    def distance(self) -> int:
        if self.nullable:
            return 0
        return min(cont.after + max(cont.low - count, 1) for cont, count in self.items)

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


def join(parts: Sequence[Match]) -> Language:
    """The union of places of one program."""
    places = frozenset[Item]().union(*(part.items for part in parts))
    return settle(parts[0].program, places, any(part.nullable for part in parts))


def _collect(root: Node) -> tuple[frozenset[CharSet], frozenset[CharSet]]:
    """The character sets of a tree, and those that it looks behind for."""
    charsets: set[CharSet] = set()
    behind: set[CharSet] = set()
    stack: list[Node] = [root]
    seen: set[Node] = set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, Chars):
            charsets.add(node.charset)
        elif isinstance(node, Behind):
            behind.add(node.charset)
        elif isinstance(node, Concat | Union):
            stack += node.parts
        elif isinstance(node, Repeat | Ahead):
            stack.append(node.body)
            if isinstance(node, Ahead):
                charsets.add(ALL)
    return frozenset(charsets | behind), frozenset(behind)
