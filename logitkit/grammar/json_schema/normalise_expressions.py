"""The expressions that a node can be, over other nodes; `normalise_nodes` keeps the table."""

from __future__ import annotations

from dataclasses import dataclass

from logitkit.grammar.json_schema.references import Place
from logitkit.grammar.json_schema.types import (
    Array,
    Boolean,
    Literal,
    Node,
    Null,
    Number,
    Object,
    String,
    Type,
)
from logitkit.grammar.strings import ANY, Language

EVERYTHING: tuple[Type, ...] = (
    Null(),
    Boolean(),
    Number(integer=False),
    String(ANY),
    Array(),
    Object(),
)


@dataclass(frozen=True, eq=False)
class Raw:
    """The schema at `place`, not opened."""

    place: Place


@dataclass(frozen=True)
class Alias:
    """The same values as `node`."""

    node: Node


@dataclass(frozen=True)
class Leaf:
    """A union of types.

    `doubt`: strings that are kept out of the complement too, because a format may mean them (the
    languages of formats are narrowed where the standard is not regular).
    """

    types: tuple[Type, ...]
    doubt: Language | None = None

    @property
    def finite(self) -> bool:
        """Whether it is a list of literals."""
        return all(type(item) is Literal for item in self.types)

    @property
    def plain(self) -> bool:
        """Whether it is a list of literals that are no arrays or objects."""
        return all(type(item) is Literal and item.text[0] not in "[{" for item in self.types)


@dataclass(frozen=True)
class And:
    """The values that fit all nodes; the order decides the order of members."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Or:
    """The values that fit at least one node."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class OneOf:
    """The values that fit exactly one node; `where` is the keyword's place."""

    nodes: tuple[Node, ...]
    where: str


@dataclass(frozen=True)
class Not:
    """The values that do not fit `node`."""

    node: Node


Opened = Leaf | And | Or | OneOf | Not
Expression = Raw | Alias | Opened
