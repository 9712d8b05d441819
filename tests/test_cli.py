"""The command line: what it prints and how it ends, with the demo itself replaced."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from logitkit.cli import app
from logitkit.demo.download import DemoModelError


def run_with(demo: Any, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Any:
    """Run `logitkit demo` with `demo` in the place of `logitkit.demo.show.run`."""
    monkeypatch.setitem(sys.modules, "logitkit.demo.show", SimpleNamespace(run=demo))
    return CliRunner().invoke(app, ["demo", *arguments])


def test_demo_hands_its_options_on(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def demo(model: str | None, **settings: Any) -> None:
        calls.append((model, settings))

    assert run_with(demo, monkeypatch).exit_code == 0
    options = ["--model", "some/model", "--max-new-tokens", "5", "--seed", str(2**64 - 1)]
    assert run_with(demo, monkeypatch, *options).exit_code == 0
    assert calls == [
        (None, {"max_new_tokens": 48, "seed": 7}),
        ("some/model", {"max_new_tokens": 5, "seed": 2**64 - 1}),
    ]


@pytest.mark.parametrize("error", [DemoModelError, OSError, ValueError])
def test_what_the_user_can_set_right_is_one_line(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def demo(model: str | None, **settings: Any) -> None:
        raise error("no such\n  model")

    result = run_with(demo, monkeypatch)
    assert result.exit_code == 1
    assert result.stderr == "error: no such model\n"


def test_an_error_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def demo(model: str | None, **settings: Any) -> None:
        raise AssertionError

    assert isinstance(run_with(demo, monkeypatch).exception, AssertionError)


@pytest.mark.parametrize("empty", ["", " "])
def test_an_empty_model_name_is_an_error(empty: str) -> None:
    result = CliRunner().invoke(app, ["demo", "--model", empty])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: the model's name is empty")


def test_ctrl_c_ends_with_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def demo(model: str | None, **settings: Any) -> None:
        raise KeyboardInterrupt

    result = run_with(demo, monkeypatch)
    assert result.exit_code == 130
    assert result.stderr == "interrupted\n"


def test_version_is_that_of_the_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logitkit.cli.version", lambda name: f"1.2.3 of {name}")
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, "logitkit 1.2.3 of logitkit\n")


@pytest.mark.parametrize("wrong", [("--max-new-tokens", "0"), ("--seed", "-1"), ("--models", "x")])
def test_a_wrong_option_is_refused_before_anything_runs(
    wrong: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def demo(model: str | None, **settings: Any) -> None:
        raise AssertionError("ran")

    result = run_with(demo, monkeypatch, *wrong)
    assert result.exit_code == 2
    assert wrong[0] in result.stderr
