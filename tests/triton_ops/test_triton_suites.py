"""Starts the suites that need Triton's interpreter, in a process of their own each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LAWS = str(HERE.parent / "test_laws.py")
# The chain of all stages under every law, and each stage alone under those that cost least.
QUICK_LAWS = (
    "triton and (everything or row_alone or kernels_keep or beside_others or neutral or raises or "
    "(any_order and (triton-0] or triton-1])))"
)


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


def test_what_was_made_to_break_the_kernels_does_not() -> None:
    interpreted(str(HERE / "test_triton_breaks.py"))


def test_a_batch_on_triton_is_a_batch() -> None:
    interpreted(str(HERE / "test_triton_batch.py"))


def test_commits_and_log_probabilities_agree_on_triton() -> None:
    ops = [str(HERE.parent / "ops" / name) for name in ("test_commit.py", "test_details.py")]
    interpreted("-p", "on_triton", str(HERE / "test_triton_details.py"), *ops)


def test_the_laws_hold_on_triton() -> None:
    interpreted("-p", "on_triton", LAWS, "-k", QUICK_LAWS)


@pytest.mark.slow
def test_more_draws_and_chains_agree() -> None:
    interpreted(str(HERE / "test_triton_kernels.py"), "-m", "slow")


@pytest.mark.slow
def test_every_law_holds_on_triton() -> None:
    interpreted("-p", "on_triton", LAWS, "-k", f"triton and not ({QUICK_LAWS})")
