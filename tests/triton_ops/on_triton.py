"""A pytest plugin: the suites that run on every backend run on Triton alone.

`python -m pytest -p on_triton tests/test_laws.py -k triton` with TRITON_INTERPRET=1, and with
`tests` and this folder on PYTHONPATH. It changes what `helpers` says before any suite has asked.
The interpreter is slow, so a batch of rows of every kind replaces a batch of each kind, unless
ALL_KINDS=1.
"""

from __future__ import annotations

import os

import helpers
import patch_once
import pytest
import torch
from torch import Tensor

import triton_ops

KINDS = ("ties", "random", "masked", "peaked", "flat", "spike", "one token left")
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_every_kind = helpers.logit_rows


def logit_rows(num_rows: int, vocab_size: int, seed: int = 0) -> dict[str, Tensor]:
    """Rows of every kind in turn, the odd ones with masked entries; dtype and stride by the seed.

    They stand under the name "masked", for which a law asks. ALL_KINDS=1: as in `helpers`.
    """
    kinds = _every_kind(num_rows, vocab_size, seed)
    if os.environ.get("ALL_KINDS") == "1":
        return kinds
    rows = torch.stack([kinds[KINDS[(r + seed) % len(KINDS)]][r] for r in range(num_rows)])
    hidden = torch.rand(rows.shape, generator=torch.Generator().manual_seed(seed)) < 0.3
    hidden[::2] = False
    hidden[torch.arange(num_rows), rows.argmax(-1)] = False
    wide = torch.zeros(num_rows, vocab_size, 1 + seed % 2, dtype=DTYPES[seed % len(DTYPES)])
    wide[:, :, 0] = rows.masked_fill(hidden, -torch.inf)
    return {"masked": wide[:, :, 0]}


def pytest_configure(config: pytest.Config) -> None:
    """numpy, which stands in for the GPU, warns of overflows and of rows without a token."""
    config.addinivalue_line("filterwarnings", "ignore::RuntimeWarning")


patch_once.install()
helpers.BACKENDS = ("triton",)
helpers.OPS = {**helpers.OPS, "triton": triton_ops}
helpers.logit_rows = logit_rows
