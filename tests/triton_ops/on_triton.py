"""A pytest plugin: the suites that run on every backend run on Triton alone.

`python -m pytest -p on_triton tests/test_laws.py` with TRITON_INTERPRET=1, and with `tests` and
this folder on PYTHONPATH. It changes what `helpers` says before any suite has asked. The
interpreter is slow, so rows of two kinds do, unless ALL_KINDS=1.
"""

from __future__ import annotations

import os

import helpers
import pytest
from torch import Tensor

import triton_ops

KINDS = ("ties", "masked")
_every_kind = helpers.logit_rows


def logit_rows(num_rows: int, vocab_size: int, seed: int = 0) -> dict[str, Tensor]:
    """Some of the rows of `helpers.logit_rows` (all of them where a law asks for one)."""
    found = _every_kind(num_rows, vocab_size, seed)
    return found if os.environ.get("ALL_KINDS") == "1" else {k: found[k] for k in KINDS}


def pytest_configure(config: pytest.Config) -> None:
    """numpy, which stands in for the GPU, warns of overflows and of rows without a token."""
    config.addinivalue_line("filterwarnings", "ignore::RuntimeWarning")


helpers.BACKENDS = ("triton",)
helpers.OPS = {**helpers.OPS, "triton": triton_ops}
helpers.logit_rows = logit_rows
