"""`Regex`, `JsonSchema`, `Ebnf`, `Choice`, `StructuralTag`: what a caller asks for.

Frozen values, checked when they are made. Two specs with the same `identity` mean the same grammar:
it is half of the key under which `compile_grammar` keeps its results. They know nothing of
vocabularies or automata.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, is_dataclass
from decimal import Decimal
from typing import Any, Literal

from logitkit.errors import GrammarError
from logitkit.grammar.machine import Budget

ANY_OBJECT = "$$ANY$$"  # SGLang's spelling of "any JSON object"
DIALECTS = ("python", "ecma")
_CHECKED_EBNF = 100_000  # characters of an EBNF text that are read when the spec is made
_NO_LIMIT = 2**63  # budgets are for `compile_grammar`
WHITESPACE = ("default", "compact", "any")

Dialect = Literal["python", "ecma"]
Whitespace = Literal["default", "compact", "any"] | int


class Spec:
    """What the five kinds share: equality, hash and cache key are the `identity`."""

    identity: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spec) and other.identity == self.identity

    def __hash__(self) -> int:
        return hash(self.identity)

    def _identify(self, *parts: object) -> None:
        digest = hashlib.sha256(repr(parts).encode("utf-8", "backslashreplace")).hexdigest()
        object.__setattr__(self, "identity", f"{type(self).__name__}:{digest}")


def _told(kind: str, name: str, error: GrammarError) -> GrammarError:
    """The error with the spec's kind and field before it."""
    told = GrammarError(f"{kind}: `{name}`: {error}")
    told.where = error.where
    return told


def _check_text(kind: str, name: str, value: object) -> str:
    """The value if it is text that UTF-8 can encode."""
    if not isinstance(value, str):
        raise GrammarError(f"{kind}: `{name}` must be a str, not {type(value).__name__}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise GrammarError(
            f"{kind}: `{name}` has a lone surrogate at index {error.start}; remove it"
        ) from None
    return value


@dataclass(frozen=True, eq=False)
class Regex(Spec):
    """Text that `pattern` matches as a whole.

    `dialect` "python" is `re.fullmatch`, "ecma" is ECMA-262 with the `u` flag (as in JSON Schema).
    GrammarError, with the position, for a pattern that is wrong or not regular. Whether it matches
    any text is asked by `compile_grammar`, which refuses the empty text alone (`""`) as it does
    for the other kinds.
    """

    pattern: str
    dialect: Dialect = "python"
    identity: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _check_text("Regex", "pattern", self.pattern)
        if self.dialect not in DIALECTS:
            raise GrammarError(f"Regex: `dialect` must be one of {DIALECTS}, not {self.dialect!r}")
        self._check_syntax()
        self._identify(self.pattern, self.dialect)

    def _check_syntax(self) -> None:
        from logitkit.grammar import strings  # it imports the package that this module is part of

        budget = Budget()
        if self.pattern.count("(") > budget.nesting:
            return  # may be allowed by the budget that `compile_grammar` gets
        try:
            strings.pattern(
                self.pattern, dialect=self.dialect, search=False, nesting=budget.nesting
            )
        except GrammarError as error:
            raise _told("Regex", "pattern", error) from None


@dataclass(frozen=True, eq=False)
class JsonSchema(Spec):
    """JSON documents that `schema` accepts.

    `schema`: a dict, a bool, JSON text or its bytes, a pydantic model, or a type that pydantic
    understands (dataclass, TypedDict, ...); `"$$ANY$$"` means any JSON object. It becomes a plain
    dict or bool that keeps the order of members. That it is JSON is checked here, its keywords by
    `compile_grammar`. `whitespace` between tokens: "default" (nothing, one space, or
    one newline and at most 20 spaces or tabs), "compact" (none), "any", or an indent in spaces.
    `lenient`: keywords that may go unenforced. `strict_formats=False` makes formats that cannot be
    enforced annotations instead of errors.
    """

    schema: Any
    whitespace: Whitespace = "default"
    lenient: Collection[str] = frozenset()
    strict_formats: bool = True
    identity: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        schema, text = _plain_schema(self.schema)
        object.__setattr__(self, "schema", schema)
        space = self.whitespace
        indent = isinstance(space, int) and not isinstance(space, bool) and 0 <= space <= 20
        if not indent and space not in WHITESPACE:
            raise GrammarError(
                f"JsonSchema: `whitespace` must be one of {WHITESPACE} or an indent from 0 to 20,"
                f" not {space!r}"
            )
        lenient = self.lenient
        if (
            isinstance(lenient, str | bytes)
            or not isinstance(lenient, Collection)
            or not all(isinstance(keyword, str) for keyword in lenient)
        ):
            raise GrammarError(
                "JsonSchema: `lenient` must be a set of keywords, for example "
                f'{{"unevaluatedProperties"}}, not {lenient!r}'
            )
        object.__setattr__(self, "lenient", frozenset(lenient))
        if not isinstance(self.strict_formats, bool):
            raise GrammarError(
                f"JsonSchema: `strict_formats` must be True or False, not {self.strict_formats!r}"
            )
        self._identify(text, space, sorted(self.lenient), self.strict_formats)


@dataclass(frozen=True, eq=False)
class Ebnf(Spec):
    """Text that the rule `root` of an EBNF grammar derives (GBNF and xgrammar's dialect).

    GrammarError, with line and column, for what is not EBNF or names a rule that is not defined;
    of a text of more than 100 000 characters `compile_grammar` raises it.
    """

    text: str
    root: str = "root"
    identity: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _check_text("Ebnf", "text", self.text)
        if not _check_text("Ebnf", "root", self.root):
            raise GrammarError("Ebnf: `root` must name a rule")
        if len(self.text) <= _CHECKED_EBNF:
            from logitkit.grammar.ebnf.build import read_rules  # as above

            read_rules(self.text, self.root, Budget(nesting=_NO_LIMIT, repeats=_NO_LIMIT))
        self._identify(self.text, self.root)


@dataclass(frozen=True, eq=False)
class Choice(Spec):
    """Exactly one of `options`, a sequence of str.

    The empty text may be one of several; `compile_grammar` refuses it as the only one.
    """

    options: tuple[str, ...]
    identity: str = field(init=False, repr=False)

    def __init__(self, options: Sequence[str]) -> None:
        if isinstance(options, str) or not isinstance(options, Sequence):
            raise GrammarError(
                f"Choice: `options` must be a sequence of str, not {type(options).__name__}"
            )
        if not options:
            raise GrammarError("Choice: `options` must name at least one text")
        texts = tuple(_check_text("Choice", f"options[{i}]", o) for i, o in enumerate(options))
        object.__setattr__(self, "options", texts)
        self._identify(self.options)


@dataclass(frozen=True, eq=False)
class StructuralTag(Spec):
    """Text of the structure that SGLang and xgrammar describe in JSON (tool calls and the like).

    That it is a JSON object is checked here, its formats by `compile_grammar`.
    """

    structure: Any
    identity: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        structure, text = _plain_json("StructuralTag", "structure", self.structure)
        if not isinstance(structure, dict):
            raise GrammarError("StructuralTag: `structure` must be a JSON object")
        object.__setattr__(self, "structure", structure)
        self._identify(text)


def _plain_schema(schema: Any) -> tuple[dict[str, Any] | bool, str]:
    """The schema as plain JSON, and its canonical text."""
    if isinstance(schema, str) and schema == ANY_OBJECT:
        schema = {"type": "object"}
    elif not isinstance(schema, dict | bool | str | bytes):
        schema = _schema_of_type(schema)
    plain, text = _plain_json("JsonSchema", "schema", schema)
    if not isinstance(plain, dict | bool):
        raise GrammarError(f"JsonSchema: a schema is an object or a bool, not {text[:40]}")
    return plain, text


_SCHEMAS = (
    "give a dict, a bool, JSON text (str or bytes), a pydantic model, or a type that pydantic "
    "understands, such as a dataclass or a TypedDict"
)


def _schema_of_type(kind: Any) -> Any:
    """The schema that pydantic gives for a model or another type."""
    is_value = is_dataclass(kind) and not isinstance(kind, type)
    if kind is None or is_value or isinstance(kind, int | float | list | tuple | set | bytearray):
        raise GrammarError(f"JsonSchema: `schema` is {kind!r}; {_SCHEMAS}")
    try:
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticUserError
    except ImportError:
        raise GrammarError(
            f"JsonSchema: `schema` is {kind!r}; types need pydantic (pip install pydantic), or "
            "give the schema as a dict"
        ) from None
    try:
        return TypeAdapter(kind).json_schema()
    except (PydanticUserError, TypeError, NameError):
        what = "a type" if isinstance(kind, type) else f"an object of {type(kind).__name__}"
        raise GrammarError(
            f"JsonSchema: `schema` is {kind!r}, {what} of which pydantic makes no schema; "
            f"{_SCHEMAS}"
        ) from None


def _plain_json(kind: str, name: str, value: Any) -> tuple[Any, str]:
    """A private copy of a JSON value (given as such or as text), and its compact text."""
    try:
        if isinstance(value, bytes):
            value = value.decode()
        text = value if isinstance(value, str) else json.dumps(value, allow_nan=False)
        plain = json.loads(
            text,
            object_pairs_hook=_without_duplicates,
            parse_constant=_no_constant,
            parse_float=_exact_float,
        )
        return plain, json.dumps(plain, separators=(",", ":"))
    except GrammarError as error:
        raise GrammarError(f"{kind}: `{name}` {error}") from None
    except RecursionError:
        raise GrammarError(f"{kind}: `{name}` is nested too deeply to be read") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise GrammarError(f"{kind}: `{name}` is not JSON: {error.msg}", where) from None
    except (TypeError, ValueError) as error:
        raise GrammarError(f"{kind}: `{name}` is not JSON: {error}") from None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise GrammarError(f"names the member {twice!r} twice in one object")
    return members


def _no_constant(name: str) -> float:
    raise GrammarError(f"holds {name}, which is not JSON")


def _exact_float(text: str) -> float:
    """The float that prints as this number does; any other number would be changed in silence."""
    value = float(text)
    if value in (float("inf"), float("-inf")) or Decimal(repr(value)) != Decimal(text):
        raise GrammarError(f"holds the number {text}, which has more digits than a float64 keeps")
    return value
