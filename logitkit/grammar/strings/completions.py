"""`Completions`: whether the rest of a string can be written.

Below `automaton`. The languages of regular expressions without assertions always can; for products,
complements and lookaheads a completion is searched, best first, and remembered.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from logitkit.errors import GrammarError
from logitkit.grammar.machine import check_time, is_timed
from logitkit.grammar.strings.charset import CharSet, Partition
from logitkit.grammar.strings.language import (
    ANY,
    EMPTY_WORD,
    NONE,
    And,
    Language,
    Not,
    Or,
    Words,
    conjunction,
    intersected,
)
from logitkit.grammar.strings.match import Match
from logitkit.grammar.strings.program import Program

MOST_STEPS = 100_000  # steps that one question may take where no budget limits its time
MOST_WORDS = 4  # completions that are kept
MOST_PIECES = 1_000  # of one intersection
MOST_PRODUCT = 100  # pairs of classes that are cut with one another


class Completions:
    """Languages over the classes of `partition`, of which only the characters of `spelled` can be
    written."""

    def __init__(self, partition: Partition, spelled: CharSet):
        self.masks = partition.masks
        self.spelled = partition.masks[spelled]
        self.words: list[tuple[int, ...]] = []  # completions that were found, as classes
        self._sound: dict[Program, bool] = {}
        self._live: dict[Language, bool] = {}
        self._after: dict[Language, list[tuple[int, Language]]] = {}

    def blocks(self, parts: Iterable[Language]) -> list[int]:
        """The spelled classes in groups that no part tells apart."""
        masks = self.masks
        blocks = [self.spelled] if self.spelled else []
        for mask in {masks[charset] for part in parts for charset in part.first()}:
            check_time()
            rest = mask & self.spelled
            at = 0
            while rest:
                block = blocks[at]
                inside = block & rest
                if inside:
                    rest ^= inside
                    if inside != block:
                        blocks[at] = block ^ inside
                        blocks.append(inside)
                at += 1
        return blocks

    def surely_live(self, part: Language) -> bool:
        """Whether it is plain that some spelled text completes `part`."""
        if part.nullable:
            return True
        if isinstance(part, Match) and part.program.plain:
            sound = self._sound.get(part.program)
            if sound is None:
                sound = all(self.masks[s] & self.spelled for s in part.program.charsets)
                self._sound[part.program] = sound
            return sound
        if isinstance(part, Or):
            return any(self.surely_live(each) for each in part.parts)
        return isinstance(part, Not) and isinstance(part.inner, Words) and self.spelled != 0

    def surely_live_throughout(self, part: Language) -> bool:
        """Whether it is plain that `part` is alive wherever its counters are."""
        if isinstance(part, Or):
            return any(self.surely_live_throughout(each) for each in part.parts)
        plain = isinstance(part, Match) or (isinstance(part, Not) and isinstance(part.inner, Words))
        return part is ANY or (plain and self.surely_live(part))

    def live(self, part: Language) -> bool:
        """Whether some spelled text completes `part`; GrammarError if that takes too long."""
        if part is NONE:
            return False
        if self.surely_live(part):
            return True
        found = self._live.get(part)
        if found is None:
            bounded = within_length(part)
            if bounded is not None and bounded[0].distance() > bounded[1]:
                found = False
            elif self.shortest_within_length(part) is not None:
                found = True
            else:
                found = self._completed(part) or self._search(part)
            self._live[part] = found
        return found

    def shortest_within_length(self, part: Language) -> int | None:
        """The characters of a text that completes `part` wherever its counters are, where it is a
        regular expression within a bound of the length; None where that is not plain."""
        bounded = within_length(part)
        if bounded is None or bounded[0].room() is not None or not self.surely_live(bounded[0]):
            return None
        return bounded[0].distance()

    def _completed(self, part: Language) -> bool:
        """Whether one of the latest completions that were found completes `part` too."""
        for word in self.words:
            after = part
            for bit in word:
                after = after.derive(self.masks, bit)
                if after is NONE:
                    break
                if self._live.get(after) or self.surely_live(after):
                    if word is not self.words[0]:
                        self.words = [word, *(each for each in self.words if each is not word)]
                    return True
        return False

    def _search(self, root: Language) -> bool:
        """Looks for a completion among the pieces of unions, of which one is enough: that needs
        no determinisation, except of what is negated."""
        parents: dict[Language, tuple[Language, int] | None] = dict.fromkeys(pieces(root))
        heap = [(piece.distance(), index, piece) for index, piece in enumerate(parents)]
        heapify(heap)
        steps = 0
        while heap:
            part = heappop(heap)[2]
            for bit, after in self._onward(part):
                check_time()
                known = self._live.get(after)
                if after in parents or known is False:
                    continue
                parents[after] = (part, bit)
                if known or self.surely_live(after):
                    self._found(after, parents)
                    return True
                heappush(heap, (after.distance(), len(parents), after))
                steps += after.size()
            steps += part.size()
            if steps > MOST_STEPS and not is_timed():
                raise GrammarError(
                    f"whether a string can still be completed takes more than {MOST_STEPS} steps "
                    f"to decide; simplify the pattern or the bounds"
                )
        self._live.update(dict.fromkeys(parents, False))
        return False

    def _found(self, end: Language, parents: dict[Language, tuple[Language, int] | None]) -> None:
        """Notes what a search has found: all on the way to `end` is alive, and how to get there."""
        word: list[int] = []
        self._live[end] = True
        step = parents[end]
        while step is not None:
            part, bit = step
            word.append(bit)
            self._live[part] = True
            step = parents[part]
        if all(word) and self.surely_live(end):
            self.words = [tuple(reversed(word)), *self.words[: MOST_WORDS - 1]]

    def after(self, part: Language) -> list[tuple[int, Language]]:
        """(classes, what follows them), for every spelled class that something follows."""
        if isinstance(part, Match) and part.program.plain:
            found = self._after.get(part)
            if found is None:
                found = self._after[part] = self._derived(part)
            return found
        if isinstance(part, And) and all(each.simple and not each.tangled for each in part.parts):
            product = self._product(part)
            if product is not None:
                return product
        return self._derived(part)

    def _derived(self, part: Language) -> list[tuple[int, Language]]:
        masks = self.masks
        merged: dict[Language, int] = {}
        for block in self.blocks((part,)):
            check_time()
            rest = part.derive(masks, block & -block)
            if rest is not NONE:
                merged[rest] = merged.get(rest, 0) | block
        return [(mask, rest) for rest, mask in merged.items()]

    def _product(self, whole: And) -> list[tuple[int, Language]] | None:
        """`after` of an intersection out of that of its parts, of which many intersections share
        one; None where that is not less work than to derive it."""
        ways: list[tuple[int, tuple[Language, ...]]] = [(self.spelled, ())]
        for part in whole.parts:
            after = self.after(part)
            if len(ways) * len(after) > MOST_PRODUCT:
                return None
            ways = [
                (mask & more, (*rests, rest))
                for mask, rests in ways
                for more, rest in after
                if mask & more
            ]
        return [(mask, met) for mask, rests in ways if (met := intersected(rests)) is not NONE]

    def _onward(self, part: Language) -> list[tuple[int, Language]]:
        """(a class, what follows it), and with class 0 what follows as many characters as the
        counters have room for."""
        after = self._pieces_after(part)
        room = part.room()
        if room is None or room < 2:
            return [(bit, rest) for rest, bit in after.items()]
        turned = part.shift(1)
        if turned in after:
            later = self._pieces_after(turned).keys()
            if later - {turned.shift(1)} == after.keys() - {turned}:
                del after[turned]
            after[part.shift(room)] = 0
        return [(bit, rest) for rest, bit in after.items()]

    def _pieces_after(self, part: Language) -> dict[Language, int]:
        return {
            piece: block & -block
            for block, rest in self.after(part)
            if rest is not NONE
            for piece in pieces(rest)
        }


def pieces(whole: Language) -> list[Language]:
    """Languages whose union is `whole`, as small as they are easily had."""
    if isinstance(whole, Match):
        found: list[Language] = [whole.alone(item) for item in whole.items]
        return [*found, EMPTY_WORD] if whole.nullable else found
    if isinstance(whole, Or):
        return [piece for part in whole.parts for piece in pieces(part)]
    if isinstance(whole, And):
        products: list[Language] = [ANY]
        for part in whole.parts:
            split = [part] if isinstance(part, Not) else pieces(part)
            if len(products) * len(split) > MOST_PIECES:
                split = [part]
            products = [conjunction((left, right)) for left in products for right in split]
        return [piece for piece in products if piece is not NONE]
    return [whole]


def within_length(part: Language) -> tuple[Match, int] | None:
    """An intersection as a regular expression and how many characters it may have at most."""
    if isinstance(part, And) and len(part.parts) == 2:
        one, other = part.parts
        if isinstance(one, Match) and isinstance(other, Match):
            for bound, rest in ((one, other), (other, one)):
                most = bound.at_most()
                if most is not None:
                    return rest, most
    return None
