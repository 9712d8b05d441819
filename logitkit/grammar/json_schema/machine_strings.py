"""`Inside`: the states inside strings and keys, for `machine`.

A literal string or a declared name is a range of a sorted list of spellings. A key that may be
declared or not is a state of both until it leaves every declared name.
"""

from __future__ import annotations

from collections.abc import Callable

from logitkit.grammar.json_schema.bodies import Bodies, StringKey
from logitkit.grammar.json_schema.machine_members import Members
from logitkit.grammar.json_schema.spelling import Spelling
from logitkit.grammar.json_schema.states import (
    EITHER,
    NAME,
    WORD,
    Interned,
    Ints,
    Moves,
    first,
)
from logitkit.grammar.json_schema.words import QUOTE, Words
from logitkit.grammar.machine import Expansion, Key, Move, Return, Step

Groups = tuple[tuple[str, ...], ...]
NO_INDEXES: frozenset[int] = frozenset()


class Inside:
    """`allows(threads, tag)`: whether the threads of an object may have a key with this tag."""

    def __init__(
        self,
        bodies: Bodies,
        members: Members,
        spelling: Spelling,
        allows: Callable[[int, Key], bool],
    ) -> None:
        self._bodies = bodies
        self._members = members
        self._spelling = spelling
        self._allows = allows
        self._groups: Interned[Groups] = Interned()
        self._words: dict[int, tuple[Words, list[frozenset[int]]]] = {}

    # Where a string begins ----------------------------------------------------------------------

    def literals(self, groups: Groups) -> Key:
        """The start of the strings of all groups; it returns the indexes of the groups."""
        index = self._groups.id(groups)
        if index not in self._words:
            tags: dict[bytes, set[int]] = {}
            for number, group in enumerate(groups):
                for text in group:
                    tags.setdefault(self._spelling.string(text), set()).add(number)
            words = Words(tags)
            self._words[index] = (words, [frozenset(tags[word]) for word in words.spellings])
        return (WORD, index, 0, len(self._words[index][0].spellings), 0)

    def text(self, body: int) -> Key:
        """The start of a string body; it returns the indexes of its languages."""
        return self._bodies[body].start

    def key(self, threads_id: int, threads: tuple[int, ...]) -> Key | None:
        """The start of the keys that may come next; see `Members.after_key` for what it returns."""
        keys = self._members.keys(threads)
        if keys.body is None:
            return (NAME, keys.names, keys.bits, 0) if keys.bits else None
        count = len(self._members.names(keys.names).texts)
        state = self._bodies[keys.body].start
        return self._either(keys.names, 0, count, keys.bits, 0, state, threads_id)

    # Where it leads -----------------------------------------------------------------------------

    def expand(self, key: Ints) -> Expansion:
        if key[0] == WORD:
            return self._expand_word(*key[1:])
        if key[0] == NAME:
            return self._expand_name(*key[1:])
        assert key[0] == EITHER
        return self._expand_either(*key[1:])

    def land(self, key: Ints, counter: int) -> tuple[Key, int]:
        assert key[0] == EITHER
        state, counter = self._bodies.land(key[6], counter)
        return (*key[:6], state, key[7]), counter

    def _expand_word(self, index: int, low: int, high: int, depth: int) -> Expansion:
        words, tags = self._words[index]
        moves: Moves = []
        for byte, start, stop in words.children(low, high, depth):
            if byte == QUOTE and len(words.spellings[start]) == depth + 1:
                moves.append((byte, byte, Return(tags[start])))
            else:
                moves.append((byte, byte, Step((WORD, index, start, stop, depth + 1))))
        return Expansion(moves)

    def _expand_name(self, names: int, bits: int, depth: int) -> Expansion:
        words = self._members.names(names).words
        low, high = (bits & -bits).bit_length() - 1, bits.bit_length()
        moves: Moves = []
        for byte, start, stop in words.children(low, high, depth):
            inside = bits & _range(start, stop)
            if not inside:
                continue
            if byte == QUOTE and len(words.spellings[start]) == depth + 1:
                moves.append((byte, byte, Return((start, NO_INDEXES))))
            else:
                moves.append((byte, byte, Step((NAME, names, inside, depth + 1))))
        return Expansion(moves)

    def _either(
        self, names: int, low: int, high: int, bits: int, depth: int, state: Key, threads: int
    ) -> Key:
        """A state inside a declared name and an undeclared key at once.

        `threads` is kept only where more than one object has a say; else the state is the same at
        all positions of the object.
        """
        if low == high:
            return state
        who = -1 if self._members.is_single(names) else threads
        return (EITHER, names, low, high, bits, depth, state, who)

    def _expand_either(
        self,
        names: int,
        low: int,
        high: int,
        bits: int,
        depth: int,
        state: StringKey,
        threads: int,
    ) -> Expansion:
        words = self._members.names(names).words
        own = self._bodies.expand(state)
        ways = words.children(low, high, depth)
        taken = [byte for byte, _, _ in ways]
        moves: Moves = []
        for start, stop, move in own.moves:
            moves += _without(start, stop, move, taken)
        for byte, start, stop in ways:
            under = next((move for a, b, move in own.moves if a <= byte <= b), None)
            mask = bits & _range(start, stop)
            if byte == QUOTE and len(words.spellings[start]) == depth + 1:
                tag = (start, under.tag if isinstance(under, Return) else NO_INDEXES)
                if mask or (threads >= 0 and self._allows(threads, tag)):
                    moves.append((byte, byte, Return(tag)))
            elif isinstance(under, Step):
                to = self._either(names, start, stop, mask, depth + 1, under.key, threads)
                moves.append((byte, byte, Step(to, under.add, under.put)))
            elif mask:
                moves.append((byte, byte, Step((NAME, names, mask, depth + 1))))
        moves.sort(key=first)
        # A declared name may be longer than the room of the others.
        slices = own.slices if own.room is None else 0
        return Expansion(moves, limit=own.limit, slices=slices)


def _range(low: int, high: int) -> int:
    """Bits low to high - 1."""
    return (1 << high) - (1 << low)


def _without(low: int, high: int, move: Move, taken: list[int]) -> Moves:
    """The range in pieces, without the bytes of `taken` (sorted)."""
    moves: Moves = []
    for byte in taken:
        if low <= byte <= high:
            if low < byte:
                moves.append((low, byte - 1, move))
            low = byte + 1
    if low <= high:
        moves.append((low, high, move))
    return moves
