"""`Vocabulary` on real tokenizers: byte-level BPE, sentencepiece, Tekken, tiktoken."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from vocabularies import NAMES, Unavailable, tokenizer

from logitkit.grammar.vocabulary import Vocabulary

TEXTS = (
    '{"name": "Zo\u00eb", "tags": ["a\\n", "\\u00e9"], "size": [1, -2.5e+3]}',
    "def f(x):\n\treturn x ** 2\r\n\n\n    # done",
    "\u4e2d\u6587\u3001\u65e5\u672c\u8a9e \U0001f469\u200d\U0001f680 \u05e9\u05dc\u05d5\u05dd",
    "word",
    "  two spaces first, one last ",
    ")))))\n",
)


def real(name: str) -> Any:
    try:
        return tokenizer(name)
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(
    scope="module",
    params=[pytest.param(n, marks=pytest.mark.network) if n == "smollm2" else n for n in NAMES],
)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def vocabulary(name: str) -> Vocabulary:
    return Vocabulary.from_tokenizer(real(name))


@pytest.mark.parametrize("text", TEXTS)
def test_the_tokens_of_a_text_spell_it(vocabulary: Vocabulary, name: str, text: str) -> None:
    assert vocabulary._encode is not None
    spelled = vocabulary.spell(vocabulary._encode(text))
    space = b" " if name.startswith("spm") else b""  # sentencepiece's space before the first word
    assert spelled == space + text.encode()


@pytest.mark.parametrize("text", TEXTS)
def test_tokenize_gives_the_tokenizers_own_tokens(vocabulary: Vocabulary, text: str) -> None:
    assert vocabulary._encode is not None
    tokens = vocabulary.tokenize(text.encode())
    assert vocabulary.spell(tokens) == text.encode()
    after_newline = vocabulary._encode("\n" + text)
    assert tokens in (vocabulary._encode(text), after_newline[-len(tokens) :])


def test_tokens_decode_to_what_they_spell(vocabulary: Vocabulary, name: str) -> None:
    # Random tokens, a whole text each time, so that most are complete UTF-8.
    made = real(name)
    decode = getattr(made, "decode", None)
    assert decode is not None
    draw = random.Random(0)
    words = [i for i in range(vocabulary.size) if vocabulary.spell([i])]
    for _ in range(500):
        tokens = [draw.choice(words) for _ in range(3)]
        try:
            spelled = vocabulary.spell(tokens).decode()
        except UnicodeDecodeError:
            continue
        assert decode(tokens).lstrip(" ") == spelled.lstrip(" ")


@pytest.mark.parametrize(
    ("name", "size", "text_tokens", "eos", "horizon", "control"),
    [
        pytest.param("smollm2", 49_152, 49_135, 2, 81, "<|im_start|>", marks=pytest.mark.network),
        ("tekken", 131_072, 130_072, 2, 76, "[TOOL_CALLS]"),
        ("spm_v1", 32_000, 31_997, 2, 25, "<unk>"),
        ("spm_v3", 32_768, 32_017, 2, 25, "[TOOL_CALLS]"),
        ("qwen2", 151_851, 151_643, 151_643, 128, "<|im_end|>"),
        ("qwen3", 248_077, 248_044, 248_044, 128, "<think>"),
    ],
    indirect=["name"],
)
def test_sizes_eos_and_controls(
    vocabulary: Vocabulary, size: int, text_tokens: int, eos: int, horizon: int, control: str
) -> None:
    assert vocabulary.size == size
    assert (
        sum(map(bool, (vocabulary.offsets[1:] - vocabulary.offsets[:-1]).tolist())) == text_tokens
    )
    assert vocabulary.eos_token_ids == (eos,)
    assert vocabulary.horizon == horizon
    assert vocabulary.spell(vocabulary.controls[control]) == b""


@pytest.mark.network
def test_the_backend_of_a_fast_tokenizer_is_read_alike() -> None:
    fast = real("smollm2")
    whole = Vocabulary.from_tokenizer(fast)
    backend = Vocabulary.from_tokenizer(fast.backend_tokenizer, eos_token_id=fast.eos_token_id)
    assert whole.identity == backend.identity


@pytest.mark.network
def test_smollm2_cannot_spell_eight_bytes_that_utf8_has() -> None:
    vocabulary = Vocabulary.from_tokenizer(real("smollm2"))
    utf8 = set(range(256)) - {0xC0, 0xC1, *range(0xF5, 0x100)}
    assert {b for b in utf8 if not vocabulary.alphabet[b]} == {
        4,
        6,
        0x13,
        0x14,
        0x16,
        0x1D,
        0xF1,
        0xF2,
    }


def test_sentencepiece_is_read_alike_from_every_library(tmp_path: Path) -> None:
    inner = real("spm_v1").instruct_tokenizer.tokenizer
    expected = Vocabulary.from_tokenizer(real("spm_v1"))
    assert Vocabulary.from_tokenizer(inner).identity == expected.identity
    assert Vocabulary.from_tokenizer(inner._model).identity == expected.identity

    from transformers import LlamaTokenizer
    from transformers.tokenization_utils_sentencepiece import SentencePieceBackend

    model = tmp_path / "tokenizer.model"
    shutil.copy(inner.file_path, model)
    fast = LlamaTokenizer.from_pretrained(tmp_path)
    slow = SentencePieceBackend(
        vocab_file=str(model), unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )
    for made in (fast, slow):
        vocabulary = Vocabulary.from_tokenizer(made)
        assert vocabulary.data.tobytes() == expected.data.tobytes()
        assert vocabulary.offsets.tolist() == expected.offsets.tolist()
        assert vocabulary.controls == expected.controls


def test_a_quarter_of_a_million_tokens_take_less_than_half_a_second() -> None:
    made = real("qwen3")
    best = float("inf")
    for size in (248_077, 248_078, 248_079):  # another size, another vocabulary
        start = time.process_time()
        Vocabulary.from_tokenizer(made, size=size)
        best = min(best, time.process_time() - start)
    assert best < 0.5
