"""Starts the suites that need Triton's interpreter, in a process of their own each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def interpreted(*arguments: str) -> None:
    """Run pytest with these arguments under TRITON_INTERPRET=1 and expect it to pass."""
    paths = [str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        env=os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(paths)},
        cwd=HERE.parent.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


def test_the_kernels_agree_with_plain_torch() -> None:
    interpreted(str(HERE / "test_triton_kernels.py"))


def test_a_batch_on_triton_is_a_batch() -> None:
    interpreted(str(HERE / "test_triton_batch.py"))


def test_the_laws_hold_on_triton() -> None:
    laws = str(HERE.parent / "test_laws.py")
    interpreted("-p", "on_triton", laws, "-k", "triton and everything")


@pytest.mark.slow
def test_more_draws_and_chains_agree() -> None:
    interpreted(str(HERE / "test_triton_kernels.py"), "-m", "slow")


@pytest.mark.slow
def test_every_law_holds_on_triton() -> None:
    interpreted("-p", "on_triton", str(HERE.parent / "test_laws.py"), "-k", "triton")
