"""`Reader`: what every family of keywords may ask about the schema object that it stands in.

Below `keywords_array`, `keywords_object`, `keywords_scalar` and `keywords_values`; `keywords` makes
a compiler of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from logitkit.errors import GrammarError
from logitkit.grammar.json_schema.keywords_checks import short, wrong
from logitkit.grammar.json_schema.normalise_expressions import Expression
from logitkit.grammar.json_schema.normalise_fits import doubt_about, key_language
from logitkit.grammar.json_schema.normalise_nodes import Nodes
from logitkit.grammar.json_schema.references import Document, Place
from logitkit.grammar.json_schema.types import ANYTHING, NEVER, Node
from logitkit.grammar.machine import Budget
from logitkit.grammar.strings import Language


class Reader(ABC):
    """One document and its options; `nodes` gets the subschemas."""

    def __init__(
        self,
        document: Document,
        lenient: frozenset[str],
        strict_formats: bool,
        budget: Budget,
    ) -> None:
        self.document = document
        self.draft = document.draft
        self.lenient = lenient
        self.strict_formats = strict_formats
        self.nodes = Nodes(self.compile, budget)
        self.doubt: Language | None = None  # of the leaf being built

    @abstractmethod
    def compile(self, place: Place) -> Expression:
        """The expression of the schema at `place`; GrammarError names keyword, value and place."""

    def has(self, schema: dict[str, Any], name: str) -> bool:
        """Whether the keyword is there and counts."""
        return name in schema and name not in self.lenient

    def key_language(self, node: Node) -> Language:
        """The strings that fit `node`, for `propertyNames`."""
        self.add_doubt(doubt_about(self.nodes, node))
        return key_language(self.nodes, node)

    def add_doubt(self, doubt: Language | None) -> None:
        """Keep `doubt` out of the complement of the leaf that is being built."""
        if doubt is not None:
            self.doubt = doubt if self.doubt is None else self.doubt | doubt

    def child(self, place: Place, name: str | int) -> Place:
        return self.document.child(place, name, place.value[name])

    def node(self, place: Place, name: str | int) -> Node:
        """The node of the subschema that stands at `name`."""
        value = place.value[name]
        if not isinstance(value, dict | bool):
            raise GrammarError(
                f"`{name}` must be a schema, an object or a boolean, not {short(value)}",
                place.at(name),
            )
        if value is True or value == {}:
            return ANYTHING
        if value is False:
            return NEVER
        return self.nodes.raw(self.child(place, name))

    def list_of_nodes(self, place: Place, name: str) -> list[Node]:
        """The nodes of a keyword whose value is a list of schemas."""
        value = place.value[name]
        if not isinstance(value, list) or not value:
            wrong(place, name, "must be a list of at least one schema")
        inner = self.child(place, name)
        return [self.node(inner, position) for position in range(len(value))]
