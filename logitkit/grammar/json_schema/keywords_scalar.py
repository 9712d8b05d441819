"""The keywords of numbers and strings."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from logitkit.errors import GrammarError
from logitkit.grammar import strings
from logitkit.grammar.json_schema.drafts import Draft
from logitkit.grammar.json_schema.keywords_checks import count, number, wrong
from logitkit.grammar.json_schema.keywords_reader import Reader
from logitkit.grammar.json_schema.merge_scalar import is_empty_number
from logitkit.grammar.json_schema.references import Place
from logitkit.grammar.json_schema.types import Number, String, Type

NUMBER_KEYWORDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
STRING_KEYWORDS = ("minLength", "maxLength", "pattern", "format")

# Strings that our narrower language of a format leaves out though the standard may mean them.
_DOUBTS = {
    "date": "^0000-",
    "date-time": "^0000-",
    "email": r"--|\[",
    "hostname": "--",
}


def numbers(
    reader: Reader, place: Place, schema: dict[str, Any], integer: bool
) -> tuple[Type, ...]:
    """The numbers that the range and `multipleOf` allow; none where nothing is left."""
    bounds: dict[str, Decimal | None] = {}
    strict: dict[str, bool] = {}
    for side, sign in (("minimum", 1), ("maximum", -1)):
        exclusive = f"exclusive{side.capitalize()}"
        bound = number(place, side) if reader.has(schema, side) else None
        open_end = False
        if reader.has(schema, exclusive):
            value = schema[exclusive]
            if isinstance(value, bool) and reader.draft in (Draft.DRAFT_4, Draft.OPEN):
                open_end = value and bound is not None
            elif reader.draft == Draft.DRAFT_4:
                wrong(place, exclusive, "must be a boolean in draft 4")
            else:
                limit = number(place, exclusive)
                if bound is None or sign * limit >= sign * bound:
                    bound, open_end = limit, True
        bounds[side], strict[side] = bound, open_end
    step = None
    if reader.has(schema, "multipleOf"):
        step = number(place, "multipleOf")
        if step <= 0:
            wrong(place, "multipleOf", "must be greater than 0")
    result = Number(
        integer,
        bounds["minimum"],
        bounds["maximum"],
        strict["minimum"],
        strict["maximum"],
        step,
    )
    return () if is_empty_number(result) else (result,)


def texts(reader: Reader, place: Place, schema: dict[str, Any], integer: bool) -> tuple[Type, ...]:
    """The strings that length, `pattern` and `format` allow together."""
    language = strings.ANY
    least = count(place, "minLength") if reader.has(schema, "minLength") else 0
    most = count(place, "maxLength") if reader.has(schema, "maxLength") else None
    if most is not None and most < least:
        return ()
    if least or most is not None:
        language = strings.length(least, most)
        reader.nodes.never_empty.add(language)
    if reader.has(schema, "pattern"):
        language = joined(language, pattern(place, "pattern", schema["pattern"]))
    if reader.has(schema, "format"):
        formatted = _format(reader, place, schema["format"])
        if formatted is not None:
            language = joined(language, formatted)
    return (String(language),)


def joined(first: strings.Language, second: strings.Language) -> strings.Language:
    """Both languages, without building a product where one of them is everything."""
    if first == strings.ANY:
        return second
    return first if second in (strings.ANY, first) else first & second


def pattern(place: Place, name: str, text: object) -> strings.Language:
    """The language of an ECMA pattern that searches the decoded value."""
    where = place.at(name)
    if not isinstance(text, str):
        raise GrammarError(f"`{name}` must be a regular expression in a string", where)
    return strings.pattern(text, dialect="ecma", search=True, where=where)


def _format(reader: Reader, place: Place, name: object) -> strings.Language | None:
    if not isinstance(name, str):
        wrong(place, "format", "must be a string")
    language = strings.formatted(name)
    if name in strings.STANDARD_FORMATS and reader.strict_formats:
        raise GrammarError(
            f"`format` {name!r} cannot be enforced: pass strict_formats=False to take it as an "
            "annotation",
            place.at("format"),
        )
    if language is not None:
        reader.nodes.never_empty.add(language)
    if name in _DOUBTS:
        reader.add_doubt(strings.pattern(_DOUBTS[name], dialect="ecma", search=True))
    return language
