"""Where the data of the project lies: beside the checkout, or in `LOGITKIT_DATA`; not in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("LOGITKIT_DATA", Path(__file__).parents[3] / "shared" / "data"))


def shared(name: str) -> Path:
    """Return the path of a file or folder of the shared data; skips the test if it is absent."""
    if not (FOLDER / name).exists():
        pytest.skip(f"{FOLDER / name} is absent: set LOGITKIT_DATA to the folder that has {name}")
    return FOLDER / name
