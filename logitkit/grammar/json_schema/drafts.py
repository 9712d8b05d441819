"""Which draft a schema speaks and which keywords that draft has."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from logitkit.errors import GrammarError


class Draft(IntEnum):
    """The drafts in order; `OPEN`, without `$schema`, is 2020-12 plus the older spellings."""

    DRAFT_4 = 4
    DRAFT_6 = 6
    DRAFT_7 = 7
    DRAFT_2019 = 8
    DRAFT_2020 = 9
    OPEN = 10

    @property
    def title(self) -> str:
        return _TITLES[self]


_TITLES = {
    Draft.DRAFT_4: "draft 4",
    Draft.DRAFT_6: "draft 6",
    Draft.DRAFT_7: "draft 7",
    Draft.DRAFT_2019: "2019-09",
    Draft.DRAFT_2020: "2020-12",
    Draft.OPEN: "2020-12 with the older spellings",
}
_URIS = {
    "json-schema.org/schema": Draft.OPEN,
    "json-schema.org/draft-04/schema": Draft.DRAFT_4,
    "json-schema.org/draft-06/schema": Draft.DRAFT_6,
    "json-schema.org/draft-07/schema": Draft.DRAFT_7,
    "json-schema.org/draft/2019-09/schema": Draft.DRAFT_2019,
    "json-schema.org/draft/2020-12/schema": Draft.DRAFT_2020,
}

# Keywords that some drafts lack: (first draft, last draft that has it). A schema that uses one in
# another draft is refused: the author meant a constraint that the draft makes an annotation.
SPANS: dict[str, tuple[Draft, Draft]] = {
    "const": (Draft.DRAFT_6, Draft.OPEN),
    "contains": (Draft.DRAFT_6, Draft.OPEN),
    "propertyNames": (Draft.DRAFT_6, Draft.OPEN),
    "if": (Draft.DRAFT_7, Draft.OPEN),
    "then": (Draft.DRAFT_7, Draft.OPEN),
    "else": (Draft.DRAFT_7, Draft.OPEN),
    "minContains": (Draft.DRAFT_2019, Draft.OPEN),
    "maxContains": (Draft.DRAFT_2019, Draft.OPEN),
    "dependentRequired": (Draft.DRAFT_2019, Draft.OPEN),
    "dependentSchemas": (Draft.DRAFT_2019, Draft.OPEN),
    "unevaluatedProperties": (Draft.DRAFT_2019, Draft.OPEN),
    "unevaluatedItems": (Draft.DRAFT_2019, Draft.OPEN),
    "$recursiveRef": (Draft.DRAFT_2019, Draft.DRAFT_2019),
    "$dynamicRef": (Draft.DRAFT_2020, Draft.OPEN),
    "prefixItems": (Draft.DRAFT_2020, Draft.OPEN),
}
# `dependencies` left the drafts in 2019-09, but their meta-schemas still describe it: it counts.


def draft_of(schema: dict[str, Any], where: str, lenient: frozenset[str]) -> Draft:
    """The draft that `$schema` names; `OPEN` without one. GrammarError for an unknown one."""
    uri = schema.get("$schema")
    if uri is None or "$schema" in lenient:
        return Draft.OPEN
    if isinstance(uri, str):
        draft = _URIS.get(uri.removesuffix("#").removeprefix("https://").removeprefix("http://"))
        if draft is not None:
            return draft
    raise GrammarError(
        f"`$schema` is {uri!r}; drafts 4, 6, 7, 2019-09 and 2020-12 are understood: name one of "
        'them, or pass lenient={"$schema"} to read the schema as 2020-12',
        f"{where}/$schema",
    )


def check_keyword(name: str, draft: Draft, where: str) -> None:
    """Raise GrammarError where `draft` does not have the keyword `name`."""
    first, last = SPANS[name]
    if not first <= draft <= last:
        raise GrammarError(
            f"`{name}` is no keyword of {draft.title}, where it would constrain nothing: change "
            f'`$schema`, or pass lenient={{"{name}"}} to ignore it',
            f"{where}/{name}",
        )
