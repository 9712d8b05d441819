"""The normal form of a schema: what `normalise` makes and `machine` runs.

A schema becomes a *node*; a node's alternatives (`Schema.alternatives(node)`, computed on demand
and cached) are a union of the types below: a value is valid if it fits at least one. Everything
that is not a union of such types (allOf, not, oneOf, if, $ref, enum beside other keywords, ...) is
resolved by the normaliser, by merging or by refusing.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol

from logitkit.grammar.strings import Language

Node = int
NEVER: Node = 0  # the schema false: no value
ANYTHING: Node = 1  # the schema true: any JSON value


@dataclass(frozen=True)
class Literal:
    """One JSON value, spelled canonically; `text` is its compact JSON, which also identifies it.

    Only a number beyond 10**22 that was written with an exponent keeps it (`1e308`).
    """

    text: str


@dataclass(frozen=True)
class Number:
    """Numbers in a range; `integer` has neither fraction nor exponent.

    `multiple_of` is positive or None; `excluded` are values that are not allowed; the value is a
    multiple of none of `not_multiples` (from negations; not an integer: not a multiple of 1). All
    exact.
    """

    integer: bool
    minimum: Decimal | None = None
    maximum: Decimal | None = None
    exclusive_minimum: bool = False
    exclusive_maximum: bool = False
    multiple_of: Decimal | None = None
    excluded: frozenset[Decimal] = frozenset()
    not_multiples: frozenset[Decimal] = frozenset()


@dataclass(frozen=True)
class String:
    """Strings whose decoded value is in `language` (length, pattern, format: all in one)."""

    language: Language


@dataclass(frozen=True)
class Contains:
    """At least `minimum` and at most `maximum` (None: any number) items fit `node`.

    `rest` is the node of the values that do not fit `node` (None where it is not needed, which is
    where `maximum` is None). An item's own node and `node` are joined by `Schema.both`.
    """

    node: Node
    minimum: int
    maximum: int | None = None
    rest: Node | None = None


@dataclass(frozen=True)
class Array:
    """Items by position: `prefix`, then `rest` for each further item."""

    prefix: tuple[Node, ...] = ()
    rest: Node = ANYTHING
    min_items: int = 0
    max_items: int | None = None
    contains: tuple[Contains, ...] = ()
    unique: bool = False  # only where every item is one of few Literals


@dataclass(frozen=True)
class Object:
    """Members: `properties` in declared order, then others.

    A name in `properties` has its full schema there (patternProperties merged in); NEVER forbids
    it. `required` names that are not in `properties` were added to it. Another key whose matching
    `patterns` are the set s has the node `Schema.other(object, s)` (the AND of those patterns'
    schemas; `additional` where none matches). `names`: the language of all keys (propertyNames).
    `clauses`: each a disjunction of (name, present?) over declared names, all must hold
    (dependentRequired and the like). `some`, where it is not empty: at least one undeclared member
    has its key in a language of `some` and its value in that language's node (from negations). Each
    node there is already joined with the key's own node and not empty, the languages are disjoint
    and hold only keys that are allowed and undeclared. A parser keeps the last of duplicate keys,
    so it is the *last* undeclared member that must fit: every value can be spelled that way, and no
    duplicate can undo it. Likewise at most one undeclared member counts towards `min_properties`
    (all count towards `max_properties`); the normaliser refuses objects for which that is too few.
    """

    properties: tuple[tuple[str, Node], ...] = ()
    required: frozenset[str] = frozenset()
    patterns: tuple[tuple[Language, Node], ...] = ()
    additional: Node = ANYTHING
    names: Language | None = None
    min_properties: int = 0
    max_properties: int | None = None
    clauses: tuple[frozenset[tuple[str, bool]], ...] = ()
    some: tuple[tuple[Language, Node], ...] = ()


@dataclass(frozen=True)
class Null:
    """null."""


@dataclass(frozen=True)
class Boolean:
    """true or false or both."""

    values: frozenset[bool] = frozenset({True, False})


Type = Literal | Number | String | Array | Object | Null | Boolean


class Schema(Protocol):
    """A normalised schema, as the machine asks it. Every node that is reachable from `root` was
    visited before (keyword checks, refusals and emptiness are eager)."""

    root: Node
    options: Any  # the JsonSchema that was compiled: whitespace and so on

    def alternatives(self, node: Node) -> tuple[Type, ...]:
        """The union that a node is; () only for an empty node."""

    def is_empty(self, node: Node) -> bool:
        """Whether no (finite) value is valid; recursion without an end counts as empty."""

    def other(self, obj: Object, matched: frozenset[int]) -> Node:
        """The node for the value of an undeclared key that matches exactly these `patterns`.

        NEVER where it is empty; visited for every set that some undeclared key matches.
        """

    def both(self, first: Node, second: Node) -> Node:
        """The node of the values that fit both, NEVER where there are none. Visited for the items
        of an array with each of its `contains` (`node` and `rest`, and all of them together)."""
