"""The README says what the code does: parameters, neutral values, names, files."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

import logitkit as lk

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
ROWS = {
    cells[1].strip(" `"): [cell.strip() for cell in cells[2:-1]]
    for line in README.splitlines()
    if line.startswith("| `") and len(cells := re.split(r"(?<!\\)\|", line)) == 7
}


def test_every_parameter_has_its_line_and_no_other_has_one() -> None:
    assert list(ROWS) == [f.name for f in dataclasses.fields(lk.SamplingParams)]


@pytest.mark.parametrize("field", dataclasses.fields(lk.SamplingParams), ids=lambda f: f.name)
def test_the_neutral_value_is_the_default(field: dataclasses.Field[object]) -> None:
    neutral = ROWS[field.name][1].strip("`")
    default = getattr(lk.SamplingParams(), field.name)

    assert neutral == ("{}" if default == {} else repr(default))


@pytest.mark.parametrize("stage", lk.DEFAULT_STAGES, ids=lambda s: type(s).__name__)
def test_every_stage_is_named_beside_one_of_its_fields(stage: lk.Stage) -> None:
    named = {ROWS[f.name][3] for f in dataclasses.fields(stage) if f.name in ROWS}

    assert type(stage).__name__ in named


def test_every_file_that_the_readme_names_exists() -> None:
    links = re.findall(r"\]\(((?!http)[^)]+)\)", README)
    tests = re.findall(r"`(tests/[\w/]+\.(?:py|sh))`", README)

    assert [path for path in links + tests if not (ROOT / path).exists()] == []


def test_every_public_name_in_the_readme_exists() -> None:
    names = set(re.findall(r"\blk\.(\w+)", README))

    assert {name for name in names if not hasattr(lk, name)} == set()
