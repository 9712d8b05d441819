"""`Language`: a set of strings, as an expression that can be read one character at a time.

The middle of `strings`. An expression is its own automaton state: `derive` gives what may follow a
character. Leaves are `Words` (finite sets) and `program.Match` (regular expressions); `And`, `Or`
and `Not` join them. Expressions are simplified as they are made, so that what is settled drops out.

A character is given as `masks` and `bit`: it is in a `CharSet` if `masks[charset] & bit`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import prod

from logitkit.errors import GrammarError
from logitkit.grammar.machine import check_time
from logitkit.grammar.strings.charset import CharSet, PointMasks, single

MOST_DEPTH = 50  # And, Or and Not inside one another
MOST_LEAVES = 5_000  # of one expression
MOST_TANGLED = 100  # of one expression with lookaheads
MOST_FILTERED = 5_000  # words that are tried one by one against another language
MOST_BRANCHES = 16  # into which an intersection is distributed
Masks = Mapping[CharSet, int]


class Language:
    """An immutable, hashable set of strings of Unicode scalar values.

    `a & b`, `a | b`, `~a`, `a - b` are the set operations. Equal expressions are equal; different
    expressions of one language may differ.
    """

    __slots__ = ("_hash", "depth", "leaves", "nullable", "tangled")

    nullable: bool  # holds the empty string
    depth: int
    leaves: int
    tangled: bool  # holds a place in a regular expression with lookaheads
    simple = False  # a place in a regular expression, which is not simplified with another one
    _hash: int

    def __and__(self, other: Language) -> Language:
        for words, rest in ((self, other), (other, self)):
            if isinstance(words, Words) and len(words) <= MOST_FILTERED:
                return literals(text for text in words if matches(rest, text))
        for bounds, rest in ((self, other), (other, self)):
            if bounds.holds_lengths_of(rest):
                return rest
        return conjunction((self, other))

    def __or__(self, other: Language) -> Language:
        return disjunction((self, other))

    def __invert__(self) -> Language:
        return negation(self)

    def __sub__(self, other: Language) -> Language:
        return self & negation(other)

    def __hash__(self) -> int:
        return self._hash

    def charsets(self) -> Iterator[CharSet]:
        """Every set that this language or what follows from it may test a character for."""
        raise NotImplementedError

    def first(self) -> Iterable[CharSet]:
        """The sets that `derive` tests the next character for."""
        raise NotImplementedError

    def derive(self, masks: Masks, bit: int) -> Language:
        """What may follow one character."""
        raise NotImplementedError

    def distance(self) -> int:
        """At least so many characters are missing."""
        return 0

    def holds_lengths_of(self, other: Language) -> bool:
        """Whether this only bounds the length, and plainly by nothing that `other` goes beyond."""
        return False

    def size(self) -> int:
        """How much work one step is, in leaves."""
        return 1

    def kind(self) -> object:
        """What it shares with the languages that `united` joins it with; None: with none."""
        return None

    def united(self, others: Sequence[Language]) -> Language:
        """The union with others of its kind as one leaf."""
        raise NotImplementedError

    def room(self) -> int | None:
        """How often `shift(1)` keeps this state's place between the bounds; None: no counters."""
        return None

    def surplus(self) -> int:
        """How often `shift(-1)` keeps this state's place between the bounds."""
        return 0

    def shift(self, steps: int) -> Language:
        """The state with all of its counters `steps` further."""
        return self


class Words(Language):
    """The rest of the words `texts[low:high]` (sorted, distinct) after `at` equal characters."""

    __slots__ = ("_branches", "at", "high", "low", "texts")

    def __init__(self, texts: tuple[str, ...], low: int, high: int, at: int):
        self.texts, self.low, self.high, self.at = texts, low, high, at
        self.nullable = len(texts[low]) == at
        self.depth, self.leaves, self.tangled = 1, 1, False
        self._hash = hash((high - low, len(texts[low]) - at, texts[low][at : at + 32]))
        self._branches: dict[CharSet, Words] | None = None

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Words) or self._hash != other._hash:
            return False
        return list(self) == list(other)

    __hash__ = Language.__hash__

    def __iter__(self) -> Iterator[str]:
        return (self.texts[index][self.at :] for index in range(self.low, self.high))

    def __len__(self) -> int:
        return self.high - self.low

    def kind(self) -> object:
        return Words

    def united(self, others: Sequence[Language]) -> Language:
        words = [self, *(other for other in others if isinstance(other, Words))]
        return literals(text for part in words for text in part)

    def charsets(self) -> Iterator[CharSet]:
        return (single(char) for char in {char for text in self for char in text})

    def distance(self) -> int:
        return min(len(self.texts[self.low]), len(self.texts[self.high - 1])) - self.at

    @property
    def branches(self) -> dict[CharSet, Words]:
        """The rest by next character."""
        if self._branches is None:
            found: dict[CharSet, Words] = {}
            at, texts = self.at, self.texts
            low = self.low + (1 if self.nullable else 0)
            while low < self.high:
                prefix = texts[low][: at + 1]
                beyond = prefix[:-1] + chr(ord(prefix[-1]) + 1) if prefix[-1] < "\U0010ffff" else ""
                high = bisect_left(texts, beyond, low, self.high) if beyond else self.high
                found[single(prefix[-1])] = Words(texts, low, high, at + 1)
                low = high
            self._branches = found
        return self._branches

    def first(self) -> Iterable[CharSet]:
        return self.branches

    def derive(self, masks: Masks, bit: int) -> Language:
        for charset, rest in self.branches.items():
            if masks[charset] & bit:
                return rest
        return NONE


class _Constant(Language):
    """Everything, or nothing."""

    __slots__ = ("name",)

    def __init__(self, name: str, nullable: bool):
        self.name, self.nullable, self.depth, self._hash = name, nullable, 0, hash(name)
        self.leaves, self.tangled = 1, False

    def __repr__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Constant) and self.name == other.name

    __hash__ = Language.__hash__

    def charsets(self) -> Iterator[CharSet]:
        return iter(())

    def first(self) -> Iterable[CharSet]:
        return ()

    def derive(self, masks: Masks, bit: int) -> Language:
        return self


ANY: Language = _Constant("ANY", True)
NONE: Language = _Constant("NONE", False)
EMPTY_WORD: Language = Words(("",), 0, 1, 0)


class _Joined(Language):
    """The common parts of And, Or and Not."""

    __slots__ = ("parts",)

    def __init__(self, parts: frozenset[Language], nullable: bool):
        self.parts, self.nullable = parts, nullable
        self._hash = hash((type(self), parts))
        depth, leaves, tangled = 0, 0, False
        for part in parts:
            depth = max(depth, part.depth)
            leaves += part.leaves
            tangled = tangled or part.tangled
        self.depth, self.leaves, self.tangled = depth + 1, leaves, tangled
        most = MOST_TANGLED if tangled else MOST_LEAVES
        if depth >= MOST_DEPTH or leaves > most:
            raise GrammarError(
                f"a string language joins more than {most} others, or nests and, or, not more than "
                f"{MOST_DEPTH} deep; simplify its patterns, their lookaheads above all"
            )

    def __eq__(self, other: object) -> bool:
        return self is other or (
            type(self) is type(other)
            and isinstance(other, _Joined)
            and self._hash == other._hash
            and self.parts == other.parts
        )

    __hash__ = Language.__hash__

    def charsets(self) -> Iterator[CharSet]:
        return (charset for part in self.parts for charset in part.charsets())

    def first(self) -> Iterable[CharSet]:
        return {charset for part in self.parts for charset in part.first()}

    def size(self) -> int:
        return sum(part.size() for part in self.parts)

    def room(self) -> int | None:
        rooms = [room for part in self.parts if (room := part.room()) is not None]
        return min(rooms) if rooms else None

    def surplus(self) -> int:
        return min(part.surplus() for part in self.parts if part.room() is not None)

    def _shifted(self, steps: int) -> list[Language]:
        return [part.shift(steps) for part in self.parts]


class And(_Joined):
    __slots__ = ()

    def distance(self) -> int:
        return max(part.distance() for part in self.parts)

    def derive(self, masks: Masks, bit: int) -> Language:
        derived: list[Language] = []
        for part in self.parts:
            rest = part.derive(masks, bit)
            if rest is NONE:
                return NONE
            derived.append(rest)
        return intersected(derived)

    def shift(self, steps: int) -> Language:
        return conjunction(self._shifted(steps))


class Or(_Joined):
    __slots__ = ()

    def distance(self) -> int:
        return min(part.distance() for part in self.parts)

    def derive(self, masks: Masks, bit: int) -> Language:
        return disjunction([part.derive(masks, bit) for part in self.parts])

    def shift(self, steps: int) -> Language:
        return disjunction(self._shifted(steps))


class Not(_Joined):
    __slots__ = ()

    @property
    def inner(self) -> Language:
        (part,) = self.parts
        return part

    def derive(self, masks: Masks, bit: int) -> Language:
        return negation(self.inner.derive(masks, bit))

    def shift(self, steps: int) -> Language:
        return negation(self.inner.shift(steps))


def negation(a: Language) -> Language:
    """The strings that are not in `a`."""
    if a is ANY:
        return NONE
    if a is NONE:
        return ANY
    if isinstance(a, Not):
        return a.inner
    return Not(frozenset((a,)), not a.nullable)


def intersected(parts: Sequence[Language]) -> Language:
    """The intersection of what follows two or more parts of an `And`; none of them is NONE."""
    nullable = True
    for part in parts:
        if not part.simple:
            return conjunction(parts)
        nullable = nullable and part.nullable
    return And(frozenset(parts), nullable)


def conjunction(parts: Iterable[Language]) -> Language:
    """The strings that are in every part."""
    flat: set[Language] = set()
    for part in parts:
        if part is NONE:
            return NONE
        if isinstance(part, And):
            flat |= part.parts
        elif part is not ANY:
            flat.add(part)
    if len(flat) == 1:
        return flat.pop()
    if not flat:
        return ANY
    if EMPTY_WORD in flat:
        return EMPTY_WORD if all(part.nullable for part in flat) else NONE
    if any(isinstance(part, Not) and _follows(part.inner, flat) for part in flat):
        return NONE
    words = [part for part in flat if isinstance(part, Words)]
    if len(words) > 1:
        return _common_words(words, flat)
    if any(part.tangled for part in flat):
        return _distributed(flat)
    return And(frozenset(flat), all(part.nullable for part in flat))


def _follows(a: Language, flat: set[Language]) -> bool:
    """Whether it is plain that what is in all of `flat` is in `a`."""
    return a in flat or (isinstance(a, And) and a.parts <= flat)


def _distributed(flat: set[Language]) -> Language:
    """The intersection as a union of intersections, where that is not much longer: what lookaheads
    make of one another then comes back to the same form."""
    unions = [part for part in flat if isinstance(part, Or) and not part.parts & flat]
    if unions and prod(len(union.parts) for union in unions) <= MOST_BRANCHES:
        others = flat.difference(part for part in flat if isinstance(part, Or))
        choices = product(*(union.parts for union in unions))
        return disjunction([conjunction([*choice, *others]) for choice in choices])
    return And(frozenset(flat), all(part.nullable for part in flat))


def _common_words(words: list[Words], flat: set[Language]) -> Language:
    common = set(words[0]).intersection(*words[1:])
    others = flat.difference(words)
    return conjunction([literals(common), *others])


def disjunction(parts: Iterable[Language]) -> Language:
    """The strings that are in at least one part."""
    flat: set[Language] = set()
    for part in parts:
        check_time()
        if part is ANY:
            return ANY
        if isinstance(part, Or):
            flat |= part.parts
        elif part is not NONE:
            flat.add(part)
    if len(flat) > 1:
        flat = _merged(flat)
    if len(flat) == 1:
        return flat.pop()
    if not flat:
        return NONE
    if ANY in flat or any(isinstance(part, Not) and part.inner in flat for part in flat):
        return ANY
    if any(part.tangled for part in flat):
        flat = {part for part in flat if not (isinstance(part, And) and part.parts & flat)}
        if len(flat) == 1:
            return flat.pop()
    return Or(frozenset(flat), any(part.nullable for part in flat))


def _merged(flat: set[Language]) -> set[Language]:
    """The parts with those of one kind joined: words with words, places in one program."""
    kinds: dict[object, list[Language]] = {}
    for part in flat:
        kind = part.kind()
        if kind is not None:
            kinds.setdefault(kind, []).append(part)
    for first, *others in kinds.values():
        if others:
            flat = flat.difference((first, *others)) | {first.united(others)}
    return flat


def literals(texts: Iterable[str]) -> Language:
    """The language of these strings and no others; strings with lone surrogates are left out."""
    sound = tuple(sorted({text for text in texts if not _has_surrogate(text)}))
    return Words(sound, 0, len(sound), 0) if sound else NONE


def literal(text: str) -> Language:
    """The language of one string."""
    return literals((text,))


def _has_surrogate(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)


def matches(a: Language, text: str) -> bool:
    """Whether `text` is in `a`. A text with lone surrogates is in no language."""
    if _has_surrogate(text):
        return False
    check_time()
    seen: dict[str, PointMasks] = {}
    for char in text:
        masks = seen.get(char)
        if masks is None:
            masks = seen[char] = PointMasks(ord(char))
        a = a.derive(masks, 1)
        if a is NONE:
            return False
    return a.nullable
