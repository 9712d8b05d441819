"""Other systems' requests in the words of `SamplingParams`, and ours in words that JSON has.

Pure functions from mappings to mappings, between `fields` and `sampling_params`: the spellings of
OpenAI, vLLM, SGLang and llama.cpp, and transformers' `GenerationConfig` (duck-typed). What cannot
be honoured is an error that names it, never dropped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from logitkit.params.checks import FrozenDict
from logitkit.params.fields import STRUCTURED_FIELDS
from logitkit.params.names import SPELLINGS, TRANSPORT, UNSUPPORTED, unknown_fields
from logitkit.params.structured import KINDS, named, plain

# names that say how to constrain, inside vLLM's `structured_outputs` and OpenAI's `response_format`
_STRUCTURED = {
    "json": "json_schema",
    "regex": "regex",
    "choice": "choice",
    "grammar": "ebnf",
    "structural_tag": "structural_tag",
}
# Fields that are taken apart before their names are looked up.
_OPENED = (
    "response_format", "structured_outputs", "guided_decoding", "guided_json_object",
    "top_logprobs",
)  # fmt: skip
_ANY_OBJECT = {"type": "object"}
# What OpenAI's `json_schema` holds besides the schema; a schema is always enforced here.
_LABELS = {"name", "description", "strict"}


def spelled_fields(mapping: Mapping[str, Any], own: Iterable[str]) -> dict[str, Any]:
    """`mapping` in our names: what `from_dict` hands to the constructor; `own` are those names.

    Raises ValueError that names every unknown field, every one that cannot be honoured and every
    pair of spellings that disagree, as they are spelled in `mapping`.
    """
    if not isinstance(mapping, Mapping):
        raise ValueError(f"from_dict takes a mapping of field names to values, not {mapping!r}.")
    own = list(own)
    given: dict[str, dict[str, Any]] = {}
    unknown: list[str] = []
    problems: list[str] = []
    for name, inner, value in _opened(mapping, problems):
        field = SPELLINGS.get(inner, inner)
        if field in own:
            value = _read(name, value)
            if value is not None:
                given.setdefault(field, {})[name] = value
        elif name in TRANSPORT and value is None:
            continue
        elif name not in UNSUPPORTED:
            unknown.append(name)
        elif value is not None and value not in UNSUPPORTED[name]:
            problems.append(f"`{name}` is {value!r}, which cannot be honoured: leave it out.")
    for field, spelled in given.items():
        if any(value != next(iter(spelled.values())) for value in spelled.values()):
            pairs = " and ".join(f"`{name}` = {value!r}" for name, value in spelled.items())
            problems.append(f"{pairs} are both `{field}` and disagree: keep one.")
    structured = [name for name in STRUCTURED_FIELDS if name in given]
    if len(structured) > 1:
        problems.append(named([next(iter(given[name])) for name in structured]))
    problems = unknown_fields(unknown, [*own, *SPELLINGS, *UNSUPPORTED]) + problems
    if problems:
        raise ValueError(" ".join(problems))
    return {field: next(iter(spelled.values())) for field, spelled in given.items()}


def _opened(mapping: Mapping[str, Any], problems: list[str]) -> Iterator[tuple[str, str, Any]]:
    """The names in `mapping`, the fields meant and their values; a name may hold several fields."""
    for name, value in mapping.items():
        if name in _OPENED and value is None:
            continue
        if name == "response_format":
            yield from ((name, *item) for item in _response_format(value, problems))
        elif name in ("structured_outputs", "guided_decoding"):
            yield from _structured_outputs(name, value, problems)
        elif name == "guided_json_object":
            yield name, "json_schema", _ANY_OBJECT if value else None
        elif name == "logprobs" and isinstance(value, bool):
            # OpenAI's chat form: a switch, with the number beside it
            yield name, name, (mapping.get("top_logprobs") or 0) if value else None
        elif name == "top_logprobs":
            count = mapping.get("logprobs")
            if value and (count is None or count is False):
                problems.append(f"`top_logprobs` is {value!r} without `logprobs`: set that True.")
            elif count not in (None, False, True) and value != count:
                problems.append(
                    f"`top_logprobs` = {value!r} and `logprobs` = {count!r} disagree: keep one."
                )
        else:
            yield name, name, value


def _response_format(value: Any, problems: list[str]) -> Iterator[tuple[str, Any]]:
    kind = value.get("type") if isinstance(value, Mapping) else None
    if kind in ("json_object", "json_schema"):
        inner = value.get("json_schema")
        holder = inner if isinstance(inner, Mapping) else value
        odd = sorted(set(holder) - _LABELS - {"type", "schema", "json_schema"})
        schema = holder.get("schema")
        if odd:
            problems.append(f"`response_format` holds {odd}, which cannot be honoured.")
        elif schema is None and kind == "json_schema":
            problems.append("`response_format` has the type 'json_schema' and holds no `schema`.")
        else:
            yield "json_schema", _ANY_OBJECT if schema is None else schema
    elif kind == "structural_tag":
        yield "structural_tag", value
    elif kind != "text":
        problems.append(
            f"`response_format` is {value!r}: its type is one of 'text', 'json_object', "
            "'json_schema' and 'structural_tag'."
        )


def _structured_outputs(
    name: str, value: Any, problems: list[str]
) -> Iterator[tuple[str, str, Any]]:
    if not isinstance(value, Mapping):
        problems.append(f"`{name}` is {value!r}: give a mapping with one of {list(_STRUCTURED)}.")
        return
    for key, entry in value.items():
        place = f"{name}[{key!r}]"
        if key in _STRUCTURED:
            yield place, _STRUCTURED[key], entry
        elif key == "json_object" and entry:
            yield place, "json_schema", _ANY_OBJECT
        elif entry:
            problems.append(f"`{name}` holds `{key}` = {entry!r}, which cannot be honoured.")


def _read(name: str, value: Any) -> Any:
    """A value in our form, where another system's differs; None for the default."""
    if name in ("seed", "n_predict", "max_tokens", "max_completion_tokens") and value == -1:
        return None  # vLLM and llama.cpp: drawn at random; until the end
    if name == "n_probs" and value == 0:
        return None
    if name == "logit_bias" and isinstance(value, list | tuple):
        pairs = {str(entry[0]): entry[1] for entry in value if _is_pair(entry)}
        if len(pairs) < len(value):
            raise ValueError(
                f"`logit_bias` is {value!r}: as a list it holds [token id, bias] pairs, each id "
                "once. Give such pairs or a mapping."
            )
        value = pairs
    if name == "logit_bias" and isinstance(value, Mapping):
        # llama.cpp's spelling of a ban, and ours in JSON
        return {
            token: -math.inf if bias is False or bias == "-inf" else bias
            for token, bias in value.items()
        }
    return value


def _is_pair(entry: Any) -> bool:
    return isinstance(entry, list | tuple) and len(entry) == 2


def plain_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """`values` with lists for tuples, strings for ids as keys, and "-inf" for a ban.

    Raises ValueError that names a value which strict JSON does not have.
    """
    result = {name: value for name, value in values.items() if name != "logit_bias"}
    result = {
        name: plain(name, value) if name in KINDS else _plain(name, value)
        for name, value in result.items()
    }
    if "logit_bias" in values:
        result["logit_bias"] = {
            str(token): "-inf" if bias == -math.inf else bias
            for token, bias in values["logit_bias"].items()
        }
    return result


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(f"{name}[{index}]", entry) for index, entry in enumerate(value)]
    if isinstance(value, FrozenDict) and all(isinstance(key, str) for key in value):
        return {key: _plain(f"{name}[{key!r}]", entry) for key, entry in value.items()}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise ValueError(
        f"`{name}` is {value!r}, which JSON does not have: to_dict takes None, bools, finite "
        "numbers, strings, lists and mappings with string keys. Replace it before to_dict."
    )
