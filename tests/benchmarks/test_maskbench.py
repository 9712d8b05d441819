"""`maskbench` counts right: run with an engine that knows the texts it accepts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:  # `maskbench` is run as a module from there
    sys.path.append(str(ROOT))

from logitkit.grammar.vocabulary import Vocabulary  # noqa: E402
from tests.benchmarks.maskbench import documents, judge  # noqa: E402
from tests.benchmarks.maskbench_engines import Engine, Run, Start  # noqa: E402
from tests.benchmarks.maskbench_report import Result, keyword_of  # noqa: E402

EOS = 256
BYTES = Vocabulary([*(bytes([byte]) for byte in range(256)), None], EOS)
CLOCK = iter(range(10**9)).__next__  # every reading is one later: a mask and an accept take 2


def engine_of(*texts: str, refuses: bool = False, dies: bool = False) -> Engine:
    """An engine that accepts exactly these texts, whatever the schema."""
    accepted = [[*text.encode(), EOS] for text in texts]

    def compile_(schema: Any) -> Start:
        if refuses:
            raise ValueError("`not` is refused (at #/items)")

        def start() -> Run:
            sofar: list[int] = []

            def mask() -> Sequence[int]:
                if dies and len(sofar) == 2:
                    raise RuntimeError("too many states")
                n = len(sofar)
                return [t[n] for t in accepted if len(t) > n and t[:n] == sofar]

            def words(allowed: Sequence[int]) -> np.ndarray[Any, Any]:
                bits = np.zeros(9 * 32, np.uint8)
                bits[list(allowed)] = 1
                return np.packbits(bits, bitorder="little").view(np.int32)

            return Run(mask, sofar.append, words, lambda found: bool(int(found[8]) & 1))

        return start

    return compile_


def judged(engine: Engine, *instances: tuple[Any, bool]) -> Result:
    out = Result("x", "passed")
    tests = [{"data": data, "valid": valid} for data, valid in instances]
    judge(engine, {}, documents(tests, BYTES), out, CLOCK)
    return out


def test_a_schema_passes_if_exactly_its_valid_documents_go_through() -> None:
    out = judged(engine_of("[1]", "[2]"), ([1], True), ([2], True), ([3], False))
    assert out.outcome == "passed" and not out.false_accepts and not out.false_rejects


def test_an_invalid_document_that_goes_through_is_a_false_accept() -> None:
    out = judged(engine_of("[1]", "[3]"), ([1], True), ([3], False))
    assert out.outcome == "wrong" and out.false_accepts == [1]


def test_a_valid_document_that_stops_is_a_false_reject_with_its_text() -> None:
    out = judged(engine_of("[1]"), ([12], True))
    assert out.outcome == "wrong" and out.false_rejects == [(0, "[12")]


@pytest.mark.parametrize("valid", [True, False])
def test_a_document_counts_as_accepted_only_if_eos_is_allowed(valid: bool) -> None:
    out = judged(engine_of('{"a": 1} '), ({"a": 1}, valid))
    assert out.outcome == ("wrong" if valid else "passed")


def test_refusals_and_failures_are_told_apart() -> None:
    refused, died = (
        judged(engine_of(refuses=True)),
        judged(engine_of("[1]", dies=True), ([1], True)),
    )
    assert (refused.outcome, died.outcome) == ("refused", "failed")
    assert keyword_of(refused.reason) == "not" and died.reason == "RuntimeError: too many states"


def test_cold_steps_are_those_after_new_prefixes() -> None:
    # "[1]" three steps, of which the first prefix is known from the first mask; "[2]" shares "[".
    out = judged(engine_of("[1]", "[2]"), ([1], True), ([2], True), ([3], False))
    assert len(out.first_pass) == len(out.warm) == 8  # "[3]" ends at its second token
    assert len(out.cold) == 3  # "1]" of the first document, "]" of the second
    assert out.warm == [2, 2, 2, 2, 2, 2, 2, 1]


@pytest.mark.parametrize(
    ("reason", "keyword"),
    [
        ("#/properties/a/oneOf/1: unsupported oneOf: cannot", "oneOf"),
        ("the format 'x' is unknown (at #/items)", "format"),
        ("unsupported (at #/items)", "items"),
        ("$ref goes to another document", "$ref"),
        ("nothing known", "nothing known"),
    ],
)
def test_refusals_are_grouped_by_the_keyword_that_they_name(reason: str, keyword: str) -> None:
    assert keyword_of(reason) == keyword
