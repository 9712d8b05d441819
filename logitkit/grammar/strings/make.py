"""Languages out of patterns and length bounds."""

from __future__ import annotations

from functools import lru_cache

from logitkit.errors import GrammarError
from logitkit.grammar.strings import syntax
from logitkit.grammar.strings.charset import ALL
from logitkit.grammar.strings.language import ANY, NONE, Language
from logitkit.grammar.strings.match import started
from logitkit.grammar.strings.parse import Dialect, parse


@lru_cache(256)
def length(minimum: int, maximum: int | None) -> Language:
    """The strings of `minimum` to `maximum` code points (None: any number)."""
    if maximum is not None and (minimum > maximum or maximum < 0):
        return NONE
    minimum = max(minimum, 0)
    if minimum == 0 and maximum is None:
        return ANY
    return started(syntax.repeat(syntax.one_of(ALL), minimum, maximum))


@lru_cache(512)
def _compiled(text: str, dialect: Dialect, search: bool, nesting: int) -> Language:
    return started(parse(text, dialect, search=search, where=None, nesting=nesting))


def pattern(
    text: str,
    *,
    dialect: Dialect = "ecma",
    search: bool = True,
    where: str | None = None,
    nesting: int = 1_000,
) -> Language:
    """The strings in which `text` matches somewhere (`search`), or that it matches as a whole.

    `where` is the place of the keyword, for errors; GrammarError if the pattern is wrong or not
    regular, with the position in it.
    """
    try:
        return _compiled(text, dialect, search, nesting)
    except GrammarError:
        if where is not None:
            parse(text, dialect, search=search, where=where, nesting=nesting)  # says where
        raise
