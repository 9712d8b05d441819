"""Fixtures that more than one test file uses, and the settings that hold for all of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import settings

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

os.environ["HF_HUB_OFFLINE"] = "1"  # no test may ask a hub; read when huggingface_hub is imported

# The same examples on every machine and no time limit: two busy cores are slow at random.
settings.register_profile("logitkit", deadline=None, derandomize=True, database=None)
settings.load_profile("logitkit")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of the demo model as `network`."""
    for item in items:
        if "smollm2" in getattr(item, "fixturenames", ()):
            item.add_marker("network")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def smollm2() -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return the demo model (float32, evaluation mode) and its tokenizer (padding on the left)."""
    from logitkit.demo.download import DemoModelUnavailableError
    from logitkit.demo.model import load_demo_model

    try:
        return load_demo_model(progress=False)
    except DemoModelUnavailableError as error:
        pytest.skip(str(error))
