"""The keywords of objects, the dependencies included."""

from __future__ import annotations

from typing import Any

from logitkit.grammar import strings
from logitkit.grammar.json_schema import values
from logitkit.grammar.json_schema.keywords_checks import count, names, wrong
from logitkit.grammar.json_schema.keywords_reader import Reader
from logitkit.grammar.json_schema.keywords_scalar import pattern
from logitkit.grammar.json_schema.normalise_expressions import EVERYTHING, Leaf
from logitkit.grammar.json_schema.references import Place
from logitkit.grammar.json_schema.types import ANYTHING, NEVER, Node, Object, Type

OBJECT_KEYWORDS = (
    *("properties", "required", "additionalProperties", "patternProperties", "propertyNames"),
    *("minProperties", "maxProperties"),
    *("dependentRequired", "dependentSchemas", "dependencies"),
)

Clause = frozenset[tuple[str, bool]]


def objects(
    reader: Reader, place: Place, schema: dict[str, Any], integer: bool
) -> tuple[Type, ...]:
    """The objects that the keywords allow, but for schemas that depend on a member; none where
    nothing is left. `required` names that are not declared stay undeclared here."""
    patterns = _patterns(reader, place, schema)
    key_language = None
    if reader.has(schema, "propertyNames"):
        key_language = reader.key_language(reader.node(place, "propertyNames"))
        if key_language == strings.ANY:
            key_language = None
    properties = _properties(reader, place, schema, patterns, key_language)
    additional: Node = ANYTHING
    if reader.has(schema, "additionalProperties"):
        additional = reader.node(place, "additionalProperties")
    required: frozenset[str] = frozenset()
    if reader.has(schema, "required"):
        listed = names(place, "required", schema["required"])
        reader.nodes.mention(listed)
        required = frozenset(listed)
    least = count(place, "minProperties") if reader.has(schema, "minProperties") else 0
    most = count(place, "maxProperties") if reader.has(schema, "maxProperties") else None
    if most is not None and most < max(least, len(required)):
        return ()
    return (
        Object(
            properties,
            required,
            patterns,
            additional,
            key_language,
            least,
            most,
            _dependent_names(reader, place, schema),
        ),
    )


def _patterns(
    reader: Reader, place: Place, schema: dict[str, Any]
) -> tuple[tuple[strings.Language, Node], ...]:
    if not reader.has(schema, "patternProperties"):
        return ()
    inner = _map(reader, place, "patternProperties")
    return tuple((pattern(inner, text, text), reader.node(inner, text)) for text in inner.value)


def _properties(
    reader: Reader,
    place: Place,
    schema: dict[str, Any],
    patterns: tuple[tuple[strings.Language, Node], ...],
    key_language: strings.Language | None,
) -> tuple[tuple[str, Node], ...]:
    """Each declared name with its own schema and those of the patterns that it matches."""
    if not reader.has(schema, "properties"):
        return ()
    inner = _map(reader, place, "properties")
    properties = []
    for name in inner.value:
        if not name.isascii():
            values.check_text(name, inner.pointer)
        node = reader.node(inner, name)
        if patterns:
            matching = [item for language, item in patterns if strings.matches(language, name)]
            node = reader.nodes.conj([node, *matching])
        if key_language is not None and not strings.matches(key_language, name):
            node = NEVER
        properties.append((name, node))
    return tuple(properties)


def _map(reader: Reader, place: Place, name: str) -> Place:
    """The place of a keyword whose value maps names to schemas."""
    value = place.value[name]
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        wrong(place, name, "must be an object of schemas")
    return reader.child(place, name)


def _dependent_names(reader: Reader, place: Place, schema: dict[str, Any]) -> tuple[Clause, ...]:
    """One clause for each name that another one brings with it."""
    clauses: dict[Clause, None] = {}
    for keyword in ("dependentRequired", "dependencies"):
        if not reader.has(schema, keyword):
            continue
        inner = _map(reader, place, keyword)
        for name, value in inner.value.items():
            wanted: list[str]
            if isinstance(value, list):
                wanted = names(inner, name, value)
            elif isinstance(value, str) and keyword == "dependencies":
                wanted = [value]  # the form of draft 3, which old schemas still use
            elif keyword == "dependentRequired":
                wrong(inner, name, "must be a list of strings")
            else:
                continue
            values.check_text(name, inner.pointer)
            for other in wanted:
                if other != name:
                    clauses[frozenset({(name, False), (other, True)})] = None
    return tuple(clauses)


def dependent_schemas(reader: Reader, place: Place, schema: dict[str, Any]) -> list[Node]:
    """A node for each member whose presence brings a schema: absent, or present and the schema."""
    parts = []
    for keyword in ("dependentSchemas", "dependencies"):
        if not reader.has(schema, keyword):
            continue
        inner = _map(reader, place, keyword)
        for name, value in inner.value.items():
            if keyword == "dependencies" and isinstance(value, list | str):
                continue
            node = reader.node(inner, name)
            others = EVERYTHING[:-1]
            absent = Leaf((*others, Object(properties=((name, NEVER),))))
            present = Leaf((Object(required=frozenset({name})),))
            nodes = reader.nodes
            parts.append(nodes.disj([nodes.add(absent), nodes.conj([nodes.add(present), node])]))
    return parts
