"""The examples run as a reader would run them, and stay short."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
# What is a tool rather than an example has options, and may be longer.
TOOLS = {
    "bench_speculative": ["--quick", "--tokens", "8"],
    "distill_draft": ["--minutes", "0.02", "--tokens", "4"],
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs(
    path: Path,
    smollm2: object,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(path), *TOOLS.get(path.stem, [])])
    runpy.run_path(str(path), run_name="__main__")

    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= (60 if path.stem not in TOOLS else 260)
