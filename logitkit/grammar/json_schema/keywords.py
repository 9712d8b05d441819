"""Keywords to expressions: one schema object becomes a leaf and the combinations beside it.

`Compiler(place)` checks every keyword of the schema there, builds the types that its assertions
allow, and joins them with `$ref`, `allOf`, `anyOf`, `oneOf`, `not`, `if` and the dependencies.
Subschemas stay unopened. The families of keywords are in `keywords_values`, `keywords_array` and
`keywords_object`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logitkit.errors import GrammarError
from logitkit.grammar.json_schema.drafts import SPANS, Draft, check_keyword
from logitkit.grammar.json_schema.keywords_array import ARRAY_KEYWORDS, arrays
from logitkit.grammar.json_schema.keywords_checks import short, wrong
from logitkit.grammar.json_schema.keywords_object import (
    OBJECT_KEYWORDS,
    dependent_schemas,
    objects,
)
from logitkit.grammar.json_schema.keywords_reader import Reader
from logitkit.grammar.json_schema.keywords_scalar import (
    NUMBER_KEYWORDS,
    STRING_KEYWORDS,
    numbers,
    texts,
)
from logitkit.grammar.json_schema.keywords_values import listed, of_types
from logitkit.grammar.json_schema.normalise_expressions import (
    EVERYTHING,
    Alias,
    Expression,
    Leaf,
    OneOf,
)
from logitkit.grammar.json_schema.references import Place
from logitkit.grammar.json_schema.types import (
    ANYTHING,
    Array,
    Boolean,
    Node,
    Null,
    Number,
    Object,
    String,
    Type,
)
from logitkit.grammar.strings import ANY

_TYPES: dict[str, Type] = {
    "null": Null(),
    "boolean": Boolean(),
    "number": Number(integer=False),
    "integer": Number(integer=True),
    "string": String(ANY),
    "array": Array(),
    "object": Object(),
}
_REFUSED = ("unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef")
_COMBINERS = ("$ref", "allOf", "anyOf", "oneOf", "not", "if", "then", "else")
_FAMILIES: dict[str, str] = {
    **dict.fromkeys(NUMBER_KEYWORDS, "number"),
    **dict.fromkeys(STRING_KEYWORDS, "string"),
    **dict.fromkeys(ARRAY_KEYWORDS, "array"),
    **dict.fromkeys(OBJECT_KEYWORDS, "object"),
    **dict.fromkeys(("type", "enum", "const"), "value"),
    **dict.fromkeys(_COMBINERS, "combiner"),
    **dict.fromkeys(_REFUSED, "refused"),
}
KEYWORDS = frozenset(_FAMILIES)

Family = Callable[[Reader, Place, dict[str, Any], bool], tuple[Type, ...]]
_BUILDERS: dict[str, Family] = {
    "number": numbers,
    "string": texts,
    "array": arrays,
    "object": objects,
}


class Compiler(Reader):
    """Opens the schemas of one document; `nodes` gets the subschemas."""

    def compile(self, place: Place) -> Expression:
        """The expression of the schema at `place`; GrammarError names keyword, value and place."""
        schema = place.value
        if not isinstance(schema, dict):
            raise GrammarError(f"a schema is an object, not {short(schema)}", place.pointer)
        for name in ("$defs", "definitions"):
            if name in schema and not isinstance(schema[name], dict):
                wrong(place, name, "must be an object whose members are schemas")
        if "$ref" in schema and self.draft <= Draft.DRAFT_7 and "$ref" not in self.lenient:
            return Alias(self._reference(place))
        families = self._families(place, schema)
        if "combiner" not in families and "object" not in families and "value" not in families:
            return self._leaf(place, schema, families)
        parts: list[Node] = []  # own keywords first: their members come first
        literals = listed(self, place, schema) if "value" in families else None
        if literals is not None or families - {"combiner", "value"} or "type" in schema:
            leaf = self._leaf(place, schema, families)
            if literals is not None:
                parts.append(self.nodes.add(Leaf(of_types(literals, leaf.types))))
            if literals is None or families & _BUILDERS.keys():
                if not (parts or "combiner" in families or _has_dependencies(schema)):
                    return leaf
                parts.append(self.nodes.add(leaf))
            if "object" in families:
                parts += dependent_schemas(self, place, schema)
        for name in schema:
            parts += self._combined(place, schema, name)
        return Alias(self.nodes.conj(parts))

    def _families(self, place: Place, schema: dict[str, Any]) -> set[str]:
        families = set()
        for name in schema:
            family = _FAMILIES.get(name)
            if family is None or name in self.lenient:
                continue
            if name in SPANS and family != "refused":
                check_keyword(name, self.draft, place.pointer)
            if family == "refused":
                self._refuse(place, name)
            else:
                families.add(family)
        return families

    def _refuse(self, place: Place, name: str) -> None:
        if name.startswith("unevaluated") and place.value[name] in (True, {}):
            return
        raise GrammarError(
            f"`{name}` cannot be enforced: express it with other keywords, or pass "
            f'lenient={{"{name}"}} to ignore it',
            place.at(name),
        )

    def _leaf(self, place: Place, schema: dict[str, Any], families: set[str]) -> Leaf:
        """The types that `type` and the assertions for each type allow."""
        allowed = EVERYTHING
        if "type" in schema and "type" not in self.lenient:
            allowed = self._types(place, schema["type"])
        if not families & _BUILDERS.keys():
            return Leaf(allowed)
        types: list[Type] = []
        around, self.doubt = self.doubt, None
        for item in allowed:
            family = _FAMILY_OF[type(item)]
            if family in families:
                integer = isinstance(item, Number) and item.integer
                types += _BUILDERS[family](self, place, schema, integer)
            else:
                types.append(item)
        doubt, self.doubt = self.doubt, around
        return Leaf(tuple(types), doubt)

    def _types(self, place: Place, value: Any) -> tuple[Type, ...]:
        names = [value] if isinstance(value, str) else value
        if isinstance(names, list) and names:
            if "number" in names:
                names = [name for name in names if name != "integer"]
            if all(isinstance(name, str) and name in _TYPES for name in names):
                return tuple(_TYPES[name] for name in dict.fromkeys(names))
        wrong(place, "type", f"must be one or a list of {', '.join(_TYPES)}")
        raise AssertionError

    def _reference(self, place: Place) -> Node:
        reference = place.value["$ref"]
        if not isinstance(reference, str):
            wrong(place, "$ref", "must be a string")
        where = place.at("$ref")
        target = self.document.resolve(place, reference, where)
        if not isinstance(target.value, dict | bool):
            raise GrammarError(
                f"`$ref` {reference!r} leads to {short(target.value)}, which is no schema", where
            )
        return self.nodes.raw(target)

    def _combined(self, place: Place, schema: dict[str, Any], name: str) -> list[Node]:
        """The nodes of a keyword that combines schemas; none for any other keyword."""
        if name in self.lenient or _FAMILIES.get(name) != "combiner":
            return []
        if name == "$ref":
            return [self._reference(place)]
        if name == "not":
            return [self.nodes.neg(self.node(place, name))]
        if name == "if":
            return [self._conditional(place, schema)]
        if name in ("then", "else"):
            if "if" not in schema:
                self.node(place, name)  # without `if` it says nothing, but it must be a schema
            return []
        options = self.list_of_nodes(place, name)
        if name == "allOf":
            return options
        if name == "anyOf" or len(options) == 1:
            return [self.nodes.disj(options)]
        return [self.nodes.add(OneOf(tuple(options), place.at(name)))]

    def _conditional(self, place: Place, schema: dict[str, Any]) -> Node:
        condition, otherwise = self.node(place, "if"), self.nodes.neg(self.node(place, "if"))
        branches = []
        for name, test in (("then", condition), ("else", otherwise)):
            if name in schema and name not in self.lenient:
                branches.append(self.nodes.conj([test, self.node(place, name)]))
            else:
                branches.append(test)
        if branches == [condition, otherwise]:
            return ANYTHING
        return self.nodes.disj(branches)


_FAMILY_OF: dict[type, str] = {
    Null: "null",
    Boolean: "boolean",
    Number: "number",
    String: "string",
    Array: "array",
    Object: "object",
}


def _has_dependencies(schema: dict[str, Any]) -> bool:
    return "dependentSchemas" in schema or "dependencies" in schema
