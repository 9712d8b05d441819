"""`Undeclared`: the keys that an `Object` does not declare, as string languages, for `objects`.

Keys of an object fall into classes by the patterns that they match. Every language given out holds
only keys that may really come: where some class has no value, or only some keys are allowed, the
languages are cut down to what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

from logitkit.errors import GrammarError
from logitkit.grammar import strings
from logitkit.grammar.json_schema.types import Node, Object
from logitkit.grammar.strings import Language

Matched = frozenset[int]
NOTHING: Matched = frozenset()


class Undeclared:
    """`languages`, then those of `some` (of which each is inside one of the former).

    `open`: every string is in a language, so that declared names must be kept out by the caller;
    otherwise the languages hold no declared names.
    """

    def __init__(
        self, obj: Object, other: Callable[[Matched], Node], alive: Callable[[Node], bool]
    ) -> None:
        self._obj = obj
        self._other = other
        self._alive = alive
        keys = obj.names or strings.ANY
        self._classes: list[Matched] | None = None
        base = alive(other(NOTHING))
        self.open = base and obj.names is None
        if self._all_alive():
            found = [keys & language for language, _ in obj.patterns]
            if base:
                found.append(keys)
        else:
            self.open = False
            pairs = list(self._split(keys))
            self._classes = [matched for _, matched in pairs]
            found = [language for language, _ in pairs]
        if not self.open:
            found = [self._without_names(language) for language in found]
        self.languages = tuple(found)
        self.some = tuple(language for language, _ in obj.some)

    def _without_names(self, language: Language) -> Language:
        names = [name for name, _ in self._obj.properties if strings.matches(language, name)]
        return language - strings.literals(names) if names else language

    def _all_alive(self) -> bool:
        """Whether keys of every class that patterns may form have a value (if they match any)."""
        patterns = self._obj.patterns
        singles = range(len(patterns))
        if not all(self._alive(self._other(frozenset({i}))) for i in singles):
            return False
        meet = {(i, j) for i, j in combinations(singles, 2) if self._meet(i, j)}
        layer: list[tuple[int, ...]] = list(meet)
        while layer:
            if not all(self._alive(self._other(frozenset(group))) for group in layer):
                return False
            layer = [
                (*group, j)
                for group in layer
                for j in range(group[-1] + 1, len(patterns))
                if all((i, j) in meet for i in group) and self._all_meet((*group, j))
            ]
        return True

    def _meet(self, i: int, j: int) -> bool:
        first, second = self._obj.patterns[i][0], self._obj.patterns[j][0]
        try:
            return not strings.disjoint(first, second)
        except GrammarError:
            return True

    def _all_meet(self, group: tuple[int, ...]) -> bool:
        language = strings.ANY
        for i in group:
            language = language & self._obj.patterns[i][0]
        return not strings.is_empty(language)

    def _split(self, keys: Language) -> Iterator[tuple[Language, Matched]]:
        """The classes that have a value, as disjoint languages."""
        classes = [(keys, NOTHING)]
        for i, (pattern, _) in enumerate(self._obj.patterns):
            classes = [
                part
                for language, matched in classes
                for part in ((language & pattern, matched | {i}), (language - pattern, matched))
                if not strings.is_empty(part[0])
            ]
        for language, matched in classes:
            if self._alive(self._other(matched)):
                yield language, matched

    def node(self, tag: frozenset[int]) -> Node | None:
        """The node of a key that is in exactly the `languages` of the tag; None: no such key."""
        held = [index for index in tag if index < len(self.languages)]
        if not held:
            return None
        if self._classes is not None:
            assert len(held) == 1
            return self._other(self._classes[held[0]])
        return self._other(frozenset(index for index in held if index < len(self._obj.patterns)))

    def fitting(self, tag: frozenset[int]) -> list[Node]:
        """The nodes of `some` for a key that is in the languages of the tag."""
        first = len(self.languages)
        return [self._obj.some[index - first][1] for index in tag if index >= first]
