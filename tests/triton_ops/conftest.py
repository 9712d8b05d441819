"""Which tests belong into which process: `@triton.jit` reads TRITON_INTERPRET when it decorates.

Under TRITON_INTERPRET=1 the kernels run on the CPU; without it they can be compiled but not run.
`test_triton_suites.py` starts the interpreted tests in a process of their own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
collect_ignore = (
    ["test_triton_suites.py", "test_triton_compiles.py"]
    if INTERPRETED
    else [
        "test_triton_kernels.py", "test_triton_breaks.py", "test_triton_batch.py",
        "test_triton_details.py",
    ]
)  # fmt: skip
if INTERPRETED:
    import patch_once

    patch_once.install()


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """torch's threads wait for each other on busy cores, which costs far more than they bring."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
