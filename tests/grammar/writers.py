"""A tiny model and tokenizer that can spell JSON, and requests of every kind."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from tiny import tiny_model
from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

import logitkit as lk

PAD, BOS, EOS = 0, 1, 2
WORDS = ['"', '":', '", "', "true", "tr", "{", '{"', "}", "ab", "abc", "12", "-1", "  ", "\n"]
PIECES = ["<pad>", "<s>", "</s>", *map(chr, range(32, 127))]
PIECES += [word for word in WORDS if word not in PIECES]
VOCAB = len(PIECES) + 7  # the logits are wider than the tokenizer
IDS = torch.tensor([[PAD, PAD, 70, 71, 72], [70, 80, 75, 78, 90], [PAD, 77, 80, 80, 81]])
MASK = (IDS != PAD).long()
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 999}, "b": {"enum": ["x", 1]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


@cache
def model() -> Any:
    return tiny_model(seed=3, vocab_size=VOCAB, pad_token_id=PAD, bos_token_id=BOS)


@cache
def tokenizer() -> Any:
    """Printable ASCII, a token each, and a few longer tokens that it never writes itself."""
    core = Tokenizer(models.BPE({piece: i for i, piece in enumerate(PIECES)}, []))
    core.decoder = decoders.Fuse()
    core.add_special_tokens([AddedToken(piece, special=True) for piece in PIECES[:3]])
    make: Any = PreTrainedTokenizerFast
    return make(
        tokenizer_object=core, pad_token="<pad>", bos_token="<s>", eos_token="</s>",
        padding_side="left", clean_up_tokenization_spaces=False,
    )  # fmt: skip


def is_object(text: str) -> bool:
    value = json.loads(text)
    return list(value) == ["a", "b"] and 0 <= value["a"] <= 999 and value["b"] in ("x", 1)


# The field, its value, and whether a whole text is right.
KINDS: dict[str, tuple[dict[str, Any], Callable[[str], bool]]] = {
    "regex": (
        {"regex": r"[a-f]{3}(-\d{1,4})?"},
        lambda text: re.fullmatch(r"[a-f]{3}(-\d{1,4})?", text) is not None,
    ),
    "json_schema": ({"json_schema": SCHEMA}, is_object),
    "choice": ({"choice": ["abc", "abd", "true"]}, lambda text: text in ("abc", "abd", "true")),
    "ebnf": (
        {"ebnf": 'root ::= "(" root? ")" | [x-z]'},
        lambda text: (
            re.fullmatch(r"(\(*)[x-z]?(\)*)", text) is not None
            and text.count("(") == text.count(")")
        ),
    ),
    "structural_tag": (
        {"structural_tag": {"format": {"type": "regex", "pattern": "ab|true!"}}},
        lambda text: text in ("ab", "true!"),
    ),
}


def request(kind: str, seed: int, **fields: Any) -> lk.SamplingParams:
    return lk.SamplingParams(
        **{"sampling_seed": seed, "max_new_tokens": 40} | KINDS[kind][0] | fields
    )


def encode(text: str) -> list[int]:
    found: list[int] = tokenizer().encode(text, add_special_tokens=False)
    return found
