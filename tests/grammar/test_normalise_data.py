"""Real schemas: the normal form against the labels of MaskBench and the package `jsonschema`.

`python tests/grammar/test_normalise_data.py` runs everything and prints the counts.
"""

from __future__ import annotations

import collections
import json
import lzma
import random
import re
import sys
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from normalised import NoSample, fits, form, read, sample
from shared_data import shared

from logitkit.errors import GrammarError

FILES = ("core300", "dev700", "corner_dev")


def cases(name: str, step: int = 1) -> Iterator[dict[str, Any]]:
    with lzma.open(shared(f"maskbench_{name}.jsonl.xz"), "rt") as lines:
        for number, line in enumerate(lines):
            if number % step == 0:
                yield json.loads(line)


def outcome(case: dict[str, Any]) -> str:
    """pass, refused: why, false accept or false reject."""
    valid = [test["data"] for test in case["tests"] if test["valid"]]
    try:
        normal = form(json.dumps(case["schema"]))
    except GrammarError as error:
        if "no value fits" in str(error) and not valid:
            return "pass"
        return "refused: " + re.sub(r" \(at .*", "", str(error))[:90]
    for test in case["tests"]:
        got = fits(normal, read(json.dumps(test["data"])))
        if got != test["valid"]:
            return "false accept" if got else "false reject"
    return "pass"


@pytest.mark.parametrize("name", FILES)
def test_labelled_instances_are_judged_right(name: str) -> None:
    counts = collections.Counter(outcome(case).split(":")[0] for case in cases(name, step=8))
    assert counts["false accept"] == counts["false reject"] == 0
    assert counts["pass"] > 20 * counts["refused"]


def multiple_of(validator: Any, step: Any, value: Any, schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if (
        validator.is_type(value, "number")
        and (Fraction(str(value)) / Fraction(str(step))).denominator != 1
    ):
        yield ValidationError(f"{value} is no multiple of {step}")


def oracle(schema: Any) -> Any:
    """The validator of the schema's draft, with formats and exact multiples."""
    validators = pytest.importorskip("jsonschema.validators")
    from jsonschema import Draft202012Validator, FormatChecker

    chosen = validators.validator_for(schema, default=Draft202012Validator)
    exact = validators.extend(chosen, {"multipleOf": multiple_of})
    return exact(schema, format_checker=FormatChecker())


def plain(value: Any) -> Any:
    """The value as `json` reads it: int and float for Decimal."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return value


def false_samples(case: dict[str, Any], tries: int) -> Iterator[Any]:
    """Values of the normal form that `jsonschema` rejects."""
    schema = case["schema"]
    text = json.dumps(schema)
    # Its check of times wants no offset, and 1e+308 is not 10**308 to it.
    if '"time"' in text or "e+" in text:
        return
    try:
        normal = form(text)
    except GrammarError:
        return
    rng, validator = random.Random(case["id"]), oracle(schema)
    for _ in range(tries):
        try:
            value = plain(sample(normal, rng))
        except NoSample:
            continue
        if not validator.is_valid(value):
            yield value


@pytest.mark.parametrize("name", FILES)
def test_values_of_the_normal_form_are_valid(name: str) -> None:
    for case in cases(name, step=12):
        assert list(false_samples(case, tries=6)) == [], case["id"]


def main() -> None:
    for name in sys.argv[1:] or FILES:
        counts = collections.Counter(outcome(case) for case in cases(name))
        wrong = [case["id"] for case in cases(name) if list(false_samples(case, tries=20))]
        print(name, "values that jsonschema rejects:", wrong)
        for what, count in counts.most_common():
            print(f"  {count:4} {what}")


if __name__ == "__main__":
    main()
