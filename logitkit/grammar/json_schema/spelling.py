"""How literals and names are spelled in bytes, for `machine`.

Names, enums and constants have one spelling: short escapes where JSON has them, `\\u00xx` for other
control characters, everything else raw. Only a character that the vocabulary has no bytes for is
escaped too, so that every literal can be spelled.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from logitkit.errors import GrammarError
from logitkit.grammar.json_schema.types import NEVER, Array, Literal, Object

NEEDED = b'{}[]":,\\-.0123456789abcdeflnrstu'  # no JSON without these


@lru_cache(maxsize=32)
def spelling_of(alphabet: tuple[bool, ...]) -> Spelling:
    """The spelling of an alphabet, made once."""
    return Spelling(alphabet)


class Spelling:
    """Spells strings with the bytes of an alphabet."""

    def __init__(self, alphabet: Sequence[bool]) -> None:
        missing = [byte for byte in NEEDED if not alphabet[byte]]
        if missing:
            raise GrammarError(
                f"no token of the vocabulary spells {chr(missing[0])!r}, which JSON needs; "
                "use a vocabulary that has all of ASCII"
            )
        self._missing = {byte for byte in range(0x20, 0xF5) if not alphabet[byte]}

    def string(self, text: str) -> bytes:
        """The inside of the JSON string `text` with its closing quote."""
        data = json.dumps(text, ensure_ascii=False)[1:].encode()
        if not self._missing or self._missing.isdisjoint(data):
            return data
        return "".join(map(self._char, text)).encode() + b'"'

    def _char(self, char: str) -> str:
        spelled = json.dumps(char, ensure_ascii=False)[1:-1]
        if self._missing.isdisjoint(spelled.encode()):
            return spelled
        return json.dumps(char)[1:-1] if char > "~" else f"\\u{ord(char):04x}"


class RawNumber(str):
    """A number as it is spelled."""

    __slots__ = ()


def parse(text: str) -> Any:
    """The value of a literal's text, with its numbers as they are spelled."""
    return json.loads(text, parse_float=RawNumber, parse_int=RawNumber)


def unparse(value: Any) -> str:
    """The compact text of a value from `parse`."""
    if isinstance(value, RawNumber):
        return str(value)
    if isinstance(value, list):
        return "[" + ",".join(map(unparse, value)) + "]"
    if isinstance(value, dict):
        members = (f"{json.dumps(k, ensure_ascii=False)}:{unparse(v)}" for k, v in value.items())
        return "{" + ",".join(members) + "}"
    return json.dumps(value, ensure_ascii=False)


def literal_object(members: Sequence[tuple[str, int]]) -> Object:
    """The object with exactly these members, in this order."""
    return Object(tuple(members), frozenset(name for name, _ in members), additional=NEVER)


def literal_array(items: Sequence[int]) -> Array:
    """The array with exactly these items."""
    return Array(tuple(items), NEVER, len(items), len(items))


def children(value: Any) -> list[Literal]:
    """The members' or items' values of a parsed object or array, as literals."""
    values = value.values() if isinstance(value, dict) else value
    return [Literal(unparse(item)) for item in values]
