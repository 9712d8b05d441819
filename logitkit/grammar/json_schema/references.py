"""Places in a schema document, and where a `$ref` leads from one.

A `Place` is a value of the document with the way to it; a `Resource` is what a `$ref` that begins
with `#` counts from: the document, or a part with an `$id` of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from logitkit.errors import GrammarError
from logitkit.grammar.json_schema.drafts import Draft

# Where schemas stand: only there an `$id` or `$anchor` names something.
_NAME_MAPS = frozenset(
    {"properties", "patternProperties", "definitions", "$defs", "dependencies", "dependentSchemas"}
)
_APPLIERS = frozenset(
    {
        *("items", "prefixItems", "additionalItems", "contains", "unevaluatedItems"),
        *("additionalProperties", "propertyNames", "unevaluatedProperties", "contentSchema"),
        *("allOf", "anyOf", "oneOf", "not", "if", "then", "else"),
    }
)


def _escaped(token: str | int) -> str:
    return str(token).replace("~", "~0").replace("/", "~1")


class Place:
    """`value` at `token` of `parent`; `resource` is the one that it belongs to."""

    __slots__ = ("parent", "resource", "token", "value")

    def __init__(self, value: Any, parent: Place | None, token: str | int, resource: Resource):
        self.value = value
        self.parent = parent
        self.token = token
        self.resource = resource

    @property
    def pointer(self) -> str:
        """The JSON pointer from the root of the document, as a fragment: `#/properties/a`."""
        tokens: list[str] = []
        place: Place = self
        while place.parent is not None:
            tokens.append(_escaped(place.token))
            place = place.parent
        return "/".join(["#", *reversed(tokens)])

    def at(self, token: str | int) -> str:
        """The JSON pointer of the value at `token`."""
        return f"{self.pointer}/{_escaped(token)}"


class Resource:
    """A schema with its own base URI; `root` is set once its place exists."""

    __slots__ = ("root", "uri")

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.root: Place


class Document:
    """One schema document. `place(...)` and `resolve(...)` hand out its places."""

    def __init__(self, schema: Any, draft: Draft) -> None:
        self.draft = draft
        resource = Resource("")
        self.root = Place(schema, None, "", resource)
        resource.root = self.root
        identifier = self._identifier(schema)
        if identifier is not None:
            resource.uri = urldefrag(identifier)[0]
        self._index: dict[str, Place] | None = None  # absolute URIs, with anchors

    def child(self, parent: Place, token: str | int, value: Any) -> Place:
        """The place of `value`, which stands at `token` in the value of `parent`."""
        place = Place(value, parent, token, parent.resource)
        identifier = self._identifier(value)
        if identifier is not None and not identifier.startswith("#"):
            resource = Resource(urldefrag(urljoin(parent.resource.uri, identifier))[0])
            resource.root = place
            place.resource = resource
        return place

    def resolve(self, place: Place, reference: str, where: str) -> Place:
        """The place that `reference` names from `place`; GrammarError where there is none."""
        uri, fragment = urldefrag(reference)
        root = place.resource.root
        if uri:
            target = urljoin(place.resource.uri, uri)
            if target != place.resource.uri:
                found = self._indexed().get(target)
                if found is None:
                    raise GrammarError(
                        f"`$ref` {reference!r} leads outside of the schema, and nothing is "
                        "fetched: put the schema it names under `$defs`",
                        where,
                    )
                root = found
        fragment = unquote(fragment)
        if not fragment:
            return root
        if fragment.startswith("/"):
            return self._walk(root, fragment, reference, where)
        found = self._indexed().get(f"{root.resource.uri}#{fragment}")
        if found is None:
            raise GrammarError(f"`$ref` {reference!r}: nothing has this anchor", where)
        return found

    def _walk(self, place: Place, fragment: str, reference: str, where: str) -> Place:
        for token in fragment[1:].split("/"):
            name = token.replace("~1", "/").replace("~0", "~")
            value = place.value
            if isinstance(value, dict) and name in value:
                place = self.child(place, name, value[name])
            elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
                place = self.child(place, int(name), value[int(name)])
            else:
                raise GrammarError(
                    f"`$ref` {reference!r}: there is no {name!r} in {place.pointer}", where
                )
        return place

    def _identifier(self, value: Any) -> str | None:
        """The `$id` (`id` in old drafts) of a schema; a `$ref` beside it hides it up to draft 7."""
        if not isinstance(value, dict):
            return None
        name = "id" if self.draft == Draft.DRAFT_4 else "$id"
        identifier = value.get(name)
        if identifier is None and self.draft == Draft.OPEN:
            identifier = value.get("id")
        if not isinstance(identifier, str) or (self.draft <= Draft.DRAFT_7 and "$ref" in value):
            return None
        return identifier

    def _indexed(self) -> dict[str, Place]:
        if self._index is None:
            self._index = {}
            for place in self._schemas():
                base = place.resource.uri
                if place.resource.root is place:
                    self._index.setdefault(base, place)
                identifier = self._identifier(place.value)
                if identifier is not None and identifier.startswith("#"):
                    self._index.setdefault(base + identifier, place)
                for name in ("$anchor", "$dynamicAnchor"):
                    anchor = place.value.get(name)
                    if isinstance(anchor, str) and self.draft >= Draft.DRAFT_2019:
                        self._index.setdefault(f"{base}#{anchor}", place)
        return self._index

    def _schemas(self) -> Iterator[Place]:
        """Every object of the document that stands where a schema does."""
        pending = [self.root]
        while pending:
            place = pending.pop()
            if isinstance(place.value, list):
                pending += [self.child(place, i, item) for i, item in enumerate(place.value)]
            if not isinstance(place.value, dict):
                continue
            yield place
            for name, item in place.value.items():
                if name in _APPLIERS:
                    pending.append(self.child(place, name, item))
                elif name in _NAME_MAPS and isinstance(item, dict):
                    names = self.child(place, name, item)
                    pending += [self.child(names, key, value) for key, value in item.items()]
