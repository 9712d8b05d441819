"""Languages as byte machines: inside a JSON string, and alone as a whole grammar.

The top of `strings`: `automaton` gives the states between characters, `spelling` the bytes inside
one. Both machines are lazy; keys are compared by identity and belong to their machine.
"""

from __future__ import annotations

from typing import Protocol

from logitkit.errors import GrammarError
from logitkit.grammar.machine import (
    JSON_TEXT,
    PLAIN_TEXT,
    Context,
    Expansion,
    Key,
    Move,
    Return,
    Step,
    check_time,
)
from logitkit.grammar.strings.automaton import Automaton, Place
from logitkit.grammar.strings.charset import LAST, CharSet, chars
from logitkit.grammar.strings.decide import is_empty
from logitkit.grammar.strings.language import NONE, Language
from logitkit.grammar.strings.make import pattern
from logitkit.grammar.strings.parse import Dialect
from logitkit.grammar.strings.slices import Slices
from logitkit.grammar.strings.spelling import Mode, Node, Spelling, To

PLAIN = CharSet(((0x20, 0x7E), (0x80, LAST)))
IN_JSON = PLAIN - chars('"\\')


class Middle:
    """A key inside a character: a node, and where its slots lead. `origin` is the far place that
    the character follows, whose slots are then `slots`."""

    __slots__ = ("node", "origin", "slots", "steps")

    def __init__(
        self, node: Node, steps: tuple[Step, ...], origin: Place | None, slots: tuple[int, ...]
    ):
        self.node, self.steps, self.origin, self.slots = node, steps, origin, slots

    @property
    def home(self) -> Automaton:
        place = self.steps[0].key
        assert isinstance(place, Place)
        return place.home


class Bytes:
    """The byte automaton of some languages in one spelling."""

    def __init__(self, languages: tuple[Language, ...], context: Context, mode: Mode):
        self.horizon = context.horizon
        self.spelling = Spelling(mode, context.alphabet)
        marked = (PLAIN, IN_JSON)
        self.automaton = Automaton(languages, self.spelling.spelled, context.horizon, marked)
        self.start, self.counter = self.automaton.place(self.automaton.start)
        self._slices = Slices(self.automaton)
        self._roots: dict[tuple[int, ...], list[tuple[int, int, To]]] = {}
        self._middles: dict[tuple[tuple[Step, ...], Place | None], dict[Node, Step]] = {}

    def expand(self, key: Place | Middle) -> Expansion:
        """Where a key leads; for a place without what ends the text."""
        if isinstance(key, Middle):
            limit = None if key.origin is None else key.origin.limit
            moves = self._moves(key.node.moves, key.steps, key.origin, key.slots)
            return Expansion(moves, limit=limit)
        masks, steps = self._steps(key)
        origin = key if key.limit is not None else None
        slots = tuple(range(len(steps)))
        return Expansion(self._moves(self._root(masks), steps, origin, slots), limit=key.limit)

    def _steps(self, place: Place) -> tuple[tuple[int, ...], tuple[Step, ...]]:
        masks: list[int] = []
        steps: list[Step] = []
        for mask, target, add, put in self.automaton.arrows(place):
            masks.append(mask)
            steps.append(Step(target, add, put))
        return tuple(masks), tuple(steps)

    def _moves(
        self,
        moves: list[tuple[int, int, To]],
        steps: tuple[Step, ...],
        origin: Place | None,
        slots: tuple[int, ...],
    ) -> list[tuple[int, int, Move]]:
        found: list[tuple[int, int, Move]] = []
        known: dict[tuple[int, ...], tuple[tuple[Step, ...], dict[Node, Step]]] = {}
        for low, high, to in moves:
            if isinstance(to, int):
                found.append((low, high, steps[to]))
                continue
            node, used = to
            if used not in known:
                inner = tuple([steps[index] for index in used])
                known[used] = inner, self._middles.setdefault((inner, origin), {})
            inner, middles = known[used]
            step = middles.get(node)
            if step is None:
                through = tuple([slots[index] for index in used])
                step = middles.setdefault(node, Step(Middle(node, inner, origin, through)))
            found.append((low, high, step))
        return found

    def _root(self, masks: tuple[int, ...]) -> list[tuple[int, int, To]]:
        """The first bytes of characters whose classes are in each of `masks`."""
        found = self._roots.get(masks)
        if found is None:
            spans: list[tuple[int, int, int]] = []
            for low, high, bit in self.automaton.segments:
                check_time()
                for slot, mask in enumerate(masks):
                    if mask & bit:
                        if spans and spans[-1][1] + 1 == low and spans[-1][2] == slot:
                            spans[-1] = (spans[-1][0], high, slot)
                        else:
                            spans.append((low, high, slot))
                        break
            found = self._roots.setdefault(masks, self.spelling.root(spans))
        return found

    def land(self, key: Place | Middle, counter: int) -> Key:
        """The key of the state that a far key stands for at this counter."""
        if isinstance(key, Place):
            return self.automaton.landed(key, counter)
        assert key.origin is not None
        landed = self.automaton.landed(key.origin, counter)
        masks, steps = self._steps(landed)
        wanted = self._steps(key.origin)[0]
        inner = tuple(
            next(step for mask, step in zip(masks, steps, strict=True) if mask & wanted[slot])
            for slot in key.slots
        )
        middles = self._middles.setdefault((inner, None), {})
        made = Step(Middle(key.node, inner, None, key.slots))
        return middles.setdefault(key.node, made).key

    def room(self, place: Place, text: CharSet) -> int:
        """How many characters of `text`, whichever can be spelled, are accepted from `place` on and
        no more, at most the horizon; 0 where that is not certain."""
        wanted = self.automaton.masks[text] & self.automaton.spelled
        return self._slices.room(place, wanted) if wanted else 0


class StringBody:
    """The inside of a JSON string, from behind its opening quote to its closing one.

    On the closing quote it returns the frozenset of the indexes of the `languages` that hold the
    string's value; every byte that it offers can still lead there. `canonical`: each character has
    one spelling (raw; `\\" \\\\ \\b \\f \\n \\r \\t`; other controls as `\\u00xx`), else all that
    JSON has, without lone surrogates.
    """

    def __init__(self, languages: tuple[Language, ...], context: Context, canonical: bool):
        self.languages = languages
        self._bytes = Bytes(languages, context, "canonical" if canonical else "any")
        self.home = self._bytes.automaton  # of all of its keys
        if not context.alphabet[0x22]:
            self._bytes.start = self._bytes.automaton.exact((NONE,) * len(languages))
        self.start: Key = self._bytes.start

    @property
    def is_empty(self) -> bool:
        """Whether no string of any language can be spelled."""
        return all(part is NONE for part in self._bytes.start.state)

    def expand(self, key: Key) -> Expansion:
        """The moves of a key, with `Return` on the closing quote."""
        assert isinstance(key, Place | Middle)
        expansion = self._bytes.expand(key)
        if isinstance(key, Middle):
            return expansion
        ended = frozenset([i for i, part in enumerate(key.state) if part.nullable])
        moves = list(expansion.moves)
        if ended:
            moves.append((0x22, 0x22, Return(ended)))
            moves.sort(key=_first_byte)
        room = self._bytes.room(key, IN_JSON)
        slices = JSON_TEXT if room else 0
        most = room if 0 < room < self._bytes.horizon else None
        return expansion._replace(moves=moves, slices=slices, room=most)

    def land(self, key: Key, counter: int) -> tuple[Key, int]:
        """The state in place of a far one whose counter reached its limit."""
        assert isinstance(key, Place | Middle)
        return self._bytes.land(key, counter), 0


class RegexMachine:
    """One language over raw UTF-8 as a whole grammar: regular, with a counter."""

    has_stack = False

    def __init__(self, language: Language, context: Context):
        self._bytes = Bytes((language,), context, "raw")
        self.start: Key = self._bytes.start
        if self._bytes.start.state[0] is NONE:
            raise GrammarError(_why_empty(language))

    def expand(self, key: Key) -> Expansion:
        assert isinstance(key, Place | Middle)
        expansion = self._bytes.expand(key)
        if isinstance(key, Middle):
            return expansion
        slices, room = 0, self._bytes.room(key, PLAIN)
        if room:
            slices = JSON_TEXT | PLAIN_TEXT
        else:
            room = self._bytes.room(key, IN_JSON)
            slices = JSON_TEXT if room else 0
        most = room if 0 < room < self._bytes.horizon else None
        return expansion._replace(final=key.state[0].nullable, slices=slices, room=most)

    def resume(self, site: Key, tag: Key) -> Key | None:
        raise AssertionError("a regex calls nothing")

    def land(self, key: Key, counter: int) -> tuple[Key, int]:
        assert isinstance(key, Place | Middle)
        return self._bytes.land(key, counter), 0


class RegexSpec(Protocol):
    """What `build_regex` needs of `lk.Regex`."""

    @property
    def pattern(self) -> str: ...

    @property
    def dialect(self) -> Dialect: ...


def build_regex(spec: RegexSpec, context: Context) -> RegexMachine:
    """The machine of `lk.Regex`: full matches over raw UTF-8."""
    nesting = context.budget.nesting
    language = pattern(spec.pattern, dialect=spec.dialect, search=False, nesting=nesting)
    return RegexMachine(language, context)


def _why_empty(language: Language) -> str:
    """What to say of a regex whose texts are all out of reach."""
    try:
        nothing = is_empty(language)
    except GrammarError:  # too large to tell
        nothing = False
    if nothing:
        return "the regex matches no text at all: its parts contradict each other"
    return (
        "the regex matches no text that the vocabulary can spell: every match holds a character "
        "with bytes that are in no token"
    )


def _first_byte(move: tuple[int, int, Move]) -> int:
    return move[0]
