"""`Bodies`: the insides of strings by the languages wanted, numbered, for `machine`."""

from __future__ import annotations

from functools import lru_cache

from logitkit.grammar.json_schema.undeclared import Undeclared
from logitkit.grammar.machine import Budget, Context, Expansion, Key
from logitkit.grammar.strings import ANY, Language, StringBody
from logitkit.grammar.strings.automaton import Automaton, Place
from logitkit.grammar.strings.body import Middle
from logitkit.grammar.strings.charset import ALL

Languages = tuple[Language, ...]
StringKey = Place | Middle  # a state inside a string


@lru_cache(maxsize=32)
def _free_text(canonical: bool, horizon: int, alphabet: tuple[bool, ...]) -> StringBody:
    """The body of any string: the same one in all machines of a vocabulary."""
    return StringBody((ANY,), Context(horizon, alphabet, Budget()), canonical)


class Bodies:
    """Every body is made once; `canonical` ones have one spelling per string."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._ids: dict[tuple[Languages, bool], int] = {}
        self._bodies: list[StringBody] = []
        self._homes: dict[Automaton, StringBody] = {}
        self._expansions: dict[StringKey, Expansion] = {}

    def id(self, languages: Languages, canonical: bool) -> int:
        found = self._ids.get((languages, canonical))
        if found is None:
            body = self._make(languages, canonical)
            found = len(self._bodies)
            self._homes[body.home] = body
            self._bodies.append(body)
            self._ids[languages, canonical] = found
        return found

    def value(self, languages: Languages) -> int:
        """The body of a string value: with every spelling if only lengths are asked for.

        Where characters matter (patterns, formats, literals) each has one spelling; so what is
        forced stays forced, and states are fewer.
        """
        free = all(charset == ALL for language in languages for charset in language.charsets())
        return self.id(languages, not free)

    def _make(self, languages: Languages, canonical: bool) -> StringBody:
        context = self._context
        if languages == (ANY,):
            return _free_text(canonical, context.horizon, context.alphabet)
        return StringBody(languages, context, canonical)

    def __getitem__(self, index: int) -> StringBody:
        return self._bodies[index]

    def expand(self, state: StringKey) -> Expansion:
        """Where a state inside a string leads."""
        found = self._expansions.get(state)
        if found is None:
            found = self._expansions[state] = self._homes[state.home].expand(state)
        return found

    def land(self, state: StringKey, counter: int) -> tuple[Key, int]:
        return self._homes[state.home].land(state, counter)

    def has_keys(self, keys: Undeclared, only_some: bool) -> bool:
        """Whether an undeclared key can be spelled (that is in a language of `some`)."""
        languages = keys.some if only_some else (*keys.languages, *keys.some)
        return bool(languages) and not self[self.id(languages, True)].is_empty
