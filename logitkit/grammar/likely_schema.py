"""How `likely` reads a schema: roughly, as nothing depends on it being right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from logitkit.grammar.likely_words import BESIDE, OF_TYPE

Schema = Mapping[str, Any]


def merged(schema: Schema, other: Any, root: Any) -> Schema:
    """Roughly what both ask for."""
    if isinstance(other, Mapping) and isinstance(other.get("$ref"), str):
        other = resolved(root, other["$ref"])
    if not isinstance(other, Mapping):
        return schema
    both = {**schema, **other}
    for key in ("properties", "patternProperties"):
        if isinstance(schema.get(key), Mapping) and isinstance(other.get(key), Mapping):
            both[key] = {**schema[key], **other[key]}
    for key in ("required", "allOf"):
        if key in schema and key in other:
            both[key] = [*list_of(schema[key]), *list_of(other[key])]
    return both


def resolved(root: Any, reference: str) -> Any:
    """What a reference inside of the schema `root` points at, or its last known part."""
    found = root
    for part in reference.removeprefix("#").split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found.get(name, True)
        elif isinstance(found, list) and name.isdigit() and int(name) < len(found):
            found = found[int(name)]
    return found


def kinds(schema: Schema) -> list[Any]:
    """The types of a schema's values; "anything" where nothing is said."""
    given = schema.get("type")
    if given is not None:
        return list_of(given) or [given]
    named = [kind for kind, keys in OF_TYPE.items() if any(key in schema for key in keys)]
    return named or ["anything"]


def is_scalar(schema: Any) -> bool:
    """Whether it is of one type that `likely_words.BESIDE` has texts for."""
    kind = schema.get("type") if isinstance(schema, Mapping) and "enum" not in schema else None
    return isinstance(kind, str) and kind in BESIDE


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def list_of(value: Any) -> list[Any]:
    """A list as it is; nothing for what is none."""
    return value if isinstance(value, list) else []
