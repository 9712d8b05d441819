"""The members of a JSON object, read with an error that says where."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from logitkit.errors import GrammarError


class Fields:
    """One object of the structure; every member must be taken, and `done` says so."""

    def __init__(self, value: Any, pointer: str) -> None:
        if not isinstance(value, dict):
            raise GrammarError("structural tag: expected an object", pointer)
        self.value = value
        self.pointer = pointer
        self._taken: set[str] = set()

    def fail(self, message: str, member: str | None = None) -> GrammarError:
        pointer = self.pointer if member is None else self.at(member)
        return GrammarError(f"structural tag: {message}", pointer or "/")

    def at(self, *path: str | int) -> str:
        """The pointer to something inside this object."""
        escaped = (str(part).replace("~", "~0").replace("/", "~1") for part in path)
        return "/".join([self.pointer, *escaped])

    def __contains__(self, member: str) -> bool:
        return member in self.value

    def get(self, member: str) -> Any:
        self._taken.add(member)
        if member not in self.value:
            raise self.fail(f"the member {member!r} is missing")
        return self.value[member]

    def text(self, member: str, *, empty: bool = True) -> str:
        found = self.get(member)
        if not isinstance(found, str):
            raise self.fail(f"`{member}` must be a string, not {type(found).__name__}", member)
        if not found and not empty:
            raise self.fail(f"`{member}` must not be empty", member)
        return found

    def flag(self, member: str) -> bool:
        """A bool that is False where it is left out."""
        found = self.get(member) if member in self.value else False
        if not isinstance(found, bool):
            raise self.fail(f"`{member}` must be a bool, not {type(found).__name__}", member)
        return found

    def number(self, member: str) -> int:
        found = self.get(member)
        if not isinstance(found, int) or isinstance(found, bool):
            raise self.fail(f"`{member}` must be an integer, not {type(found).__name__}", member)
        return found

    def sequence(self, member: str, *, empty: bool = False) -> list[Any]:
        found = self.get(member)
        if not isinstance(found, list):
            raise self.fail(f"`{member}` must be a list, not {type(found).__name__}", member)
        if not found and not empty:
            raise self.fail(f"`{member}` must not be empty", member)
        return found

    def texts(self, member: str, *, optional: bool = False) -> list[str]:
        """A list of strings that are not empty; the list may be left out or empty if `optional`."""
        if optional and self.value.get(member) is None:
            self._taken.add(member)
            return []
        found = self.sequence(member, empty=optional)
        for number, text in enumerate(found):
            if not isinstance(text, str) or not text:
                raise GrammarError(
                    f"structural tag: `{member}` must hold strings that are not empty",
                    self.at(member, number),
                )
        return found

    def neutral(self, member: str, *values: object) -> None:
        """Refuse a member that says anything but its default."""
        if member in self.value and self.get(member) not in values:
            raise self.fail(f"`{member}`={self.value[member]!r} is not supported", member)

    def done(self, *also: str) -> None:
        """Refuse members that were not taken."""
        known: Collection[str] = self._taken.union(also)
        for member in self.value:
            if member not in known:
                raise self.fail(f"unknown member {member!r}", member)
