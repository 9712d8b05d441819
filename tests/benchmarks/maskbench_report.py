"""What `maskbench` found, as tables and lists."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

Outcome = Literal["passed", "wrong", "refused", "failed", "timeout"]

KEYWORD = re.compile(
    r"(?<![\w$])("
    r"additionalItems|additionalProperties|allOf|anyOf|const|contains|dependencies|"
    r"dependentRequired|dependentSchemas|else|enum|exclusiveMaximum|exclusiveMinimum|format|"
    r"if|items|maxContains|maxItems|maxLength|maxProperties|maximum|minContains|minItems|"
    r"minLength|minProperties|minimum|multipleOf|not|oneOf|pattern|patternProperties|"
    r"prefixItems|properties|propertyNames|required|then|type|unevaluatedItems|"
    r"unevaluatedProperties|uniqueItems|\$ref|\$dynamicRef|\$recursiveRef"
    r")(?!\w)"
)
OUTCOMES = ("passed", "wrong", "refused", "failed", "timeout")


@dataclass
class Result:
    """What one engine made of one schema; times in ns, documents by their number."""

    id: str
    outcome: Outcome
    reason: str = ""
    first_mask: int = 0
    false_accepts: list[int] = field(default_factory=list)
    false_rejects: list[tuple[int, str]] = field(default_factory=list)  # and the text up to there
    first_pass: list[int] = field(default_factory=list)
    cold: list[int] = field(default_factory=list)
    warm: list[int] = field(default_factory=list)
    peak_mb: int = 0


def keyword_of(reason: str) -> str:
    """The first keyword of JSON Schema that an error names, if possible outside JSON pointers."""
    named = KEYWORD.search(re.sub(r"#\S*", "", reason)) or KEYWORD.search(reason)
    return named[0] if named else reason.split("\n")[0][:60]


def percentile(times: list[int], percent: float) -> str:
    return f"{np.percentile(times, percent) / 1e3:,.2f}" if times else "-"


def tables(found: dict[str, list[Result]]) -> Iterator[Any]:
    """What came out, and what it cost, as tables."""
    from rich.table import Table

    headers = (*OUTCOMES, "false accepts", "false rejects", "+MB")
    table = Table("engine", *headers, title="schemas; wrong documents; memory above the start")
    for name, results in found.items():
        counts = Counter[str](result.outcome for result in results)
        numbers = (
            *(counts[outcome] for outcome in OUTCOMES),
            sum(len(result.false_accepts) for result in results),
            sum(len(result.false_rejects) for result in results),
            max((result.peak_mb for result in results), default=0),
        )
        table.add_row(name, *map(str, numbers))
    yield table
    percents = (50, 90, 99, 99.9, 100)
    columns = ("engine", "steps", "number", "p50", "p90", "p99", "p99.9", "max")
    table = Table(*columns, title="us; a step is mask + accept")
    for name, results in found.items():
        first = [result.first_mask for result in results if result.first_mask]
        shown = (percentile(first, percent) for percent in percents)
        table.add_row(name, "to first mask", f"{len(first):,}", *shown)
        for steps in ("first_pass", "cold", "warm"):
            times = [took for result in results for took in getattr(result, steps)]
            shown = (percentile(times, percent) for percent in percents)
            table.add_row(name, steps.replace("_", " "), f"{len(times):,}", *shown)
    yield table


def refusals(results: list[Result]) -> Iterator[str]:
    """Refusals and failures by keyword, most frequent first, each with the schemas concerned."""
    by_keyword: dict[str, list[Result]] = {}
    for result in results:
        if result.outcome in ("refused", "failed", "timeout"):
            by_keyword.setdefault(keyword_of(result.reason), []).append(result)
    for keyword, group in sorted(by_keyword.items(), key=lambda item: -len(item[1])):
        yield f"{len(group):4} {keyword}"
        for result in group:
            yield f"       {result.id}: {result.outcome}: {result.reason[:200]!r}"


def wrongs(results: list[Result]) -> Iterator[str]:
    """The documents that were accepted or rejected against the data."""
    for result in results:
        for number in result.false_accepts:
            yield f"  {result.id} document {number}: accepted, though invalid"
        for number, text in result.false_rejects:
            yield f"  {result.id} document {number}: rejected, though valid, at the end of {text!r}"
