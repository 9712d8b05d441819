"""`Bodies`: the insides of strings by the languages wanted, numbered, for `machine`."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from logitkit.grammar.json_schema.states import TEXT, Moves
from logitkit.grammar.json_schema.undeclared import Undeclared
from logitkit.grammar.machine import Budget, Context, Expansion, Key, Step
from logitkit.grammar.strings import ANY, Language, StringBody
from logitkit.grammar.strings.charset import ALL

Languages = tuple[Language, ...]


class Inner(NamedTuple):
    """A state inside a string: as its body gives it, and with the keys of `machine`."""

    own: Expansion
    moves: Moves


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
        self._inner: dict[tuple[int, Key], Inner] = {}

    def id(self, languages: Languages, canonical: bool) -> int:
        found = self._ids.get((languages, canonical))
        if found is None:
            body = self._make(languages, canonical)
            found = len(self._bodies)
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

    def inner(self, body: int, state: Key) -> Inner:
        """Where a state inside a string leads."""
        found = self._inner.get((body, state))
        if found is None:
            own = self._bodies[body].expand(state)
            moves: Moves = [
                (low, high, Step((TEXT, body, move.key), move.add, move.put))
                if isinstance(move, Step)
                else (low, high, move)
                for low, high, move in own.moves
            ]
            found = self._inner[body, state] = Inner(own, moves)
        return found

    def has_keys(self, keys: Undeclared, only_some: bool) -> bool:
        """Whether an undeclared key can be spelled (that is in a language of `some`)."""
        languages = keys.some if only_some else (*keys.languages, *keys.some)
        return bool(languages) and not self[self.id(languages, True)].is_empty
