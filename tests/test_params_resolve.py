"""`resolve`: words as token ids, and ids against the vocabulary."""

from __future__ import annotations

import pickle
import time
from typing import Any

import pytest

from logitkit.params import ResolvedParams, SamplingParams, resolve


class Letters:
    """A tokenizer with the longest match first; token i is the i-th of `words`."""

    def __init__(self, *words: str) -> None:
        self.words = list(words)
        self.decoded = 0

    def __len__(self) -> int:
        return len(self.words)

    def get_vocab(self) -> dict[str, int]:
        return {word: token for token, word in enumerate(self.words)}

    def decode(self, ids: list[int], **_: Any) -> str:
        self.decoded += 1
        return "".join(self.words[token] for token in ids).replace("\u2581", " ").lstrip(" ")

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        assert not add_special_tokens
        ids, text = [], text.replace(" ", "\u2581")
        while text:
            fits = [word for word in self.words if text.startswith(word)]
            if not fits:
                text = text[1:]
                continue
            word = max(fits, key=len)
            ids.append(self.words.index(word))
            text = text[len(word) :]
        return ids


def test_resolving_nothing_changes_nothing() -> None:
    resolved = resolve(SamplingParams(top_k=3))
    assert isinstance(resolved, ResolvedParams)
    assert (resolved.top_k, resolved.eos_token_ids, resolved.dry_sequence_breakers) == (3, (), ())
    assert resolve(resolved, eos_token_ids=2).eos_token_ids == (2,)
    assert pickle.loads(pickle.dumps(resolved)) == resolved


def test_bad_words_become_ids_with_and_without_a_space() -> None:
    tok = Letters("ab", "\u2581ab", "\u2581", "c")
    params = SamplingParams(bad_words=["ab", " abc", "c"], bad_words_ids=[[3]])
    resolved = resolve(params, tokenizer=tok)
    # ab -> (0), (1); " abc" -> (0, 3), (1, 3); c -> (3), which was there, and (2, 3)
    assert resolved.bad_words_ids == ((3,), (0,), (1,), (0, 3), (1, 3), (2, 3))
    assert resolved.bad_words == ()
    assert resolve(resolved) == resolved


def test_a_bad_word_without_tokens_or_at_the_end_of_text_is_refused() -> None:
    tok = Letters("a", "</s>")
    with pytest.raises(ValueError, match="`bad_words`: 'z' has no tokens"):
        resolve(SamplingParams(bad_words="z"), tokenizer=tok)
    with pytest.raises(ValueError, match="`bad_words`: '</s>' is the end-of-text token 1"):
        resolve(SamplingParams(bad_words="</s>"), tokenizer=tok, eos_token_ids=[1])
    by_id = resolve(SamplingParams(bad_words_ids=[[1]]), eos_token_ids=[1])
    assert by_id.bad_words_ids == ((1,),)


def test_breakers_become_every_way_to_spell_them() -> None:
    tok = Letters("a", "b", "ca", "xaby", "aa", "ba", "\u2581", "ac")
    params = SamplingParams(dry_multiplier=1.0, dry_sequence_breakers=["ab", [5, 5], " "])
    resolved = resolve(params, tokenizer=tok)
    # "ab": token 3 contains it; 0 (a), 2 (ca), 4 (aa), 5 (ba) end in its head "a", then b = 1;
    # 7 (ac) does not
    assert resolved.dry_sequence_breakers == ((0, 1), (2, 1), (3,), (4, 1), (5, 1), (5, 5), (6,))
    assert resolve(resolved) == resolved


def test_the_tail_of_a_breaker_is_twenty_tokens_at_most() -> None:
    params = SamplingParams(dry_multiplier=1.0, dry_sequence_breakers=["x" + "a" * 30])
    resolved = resolve(params, tokenizer=Letters("a", "x"))
    assert resolved.dry_sequence_breakers == ((1,) + (0,) * 20,)


@pytest.mark.parametrize("off", [{"dry_multiplier": 0.0}, {"dry_multiplier": 1.0, "dry_range": 0}])
def test_breakers_vanish_where_dry_is_off(off: dict[str, Any]) -> None:
    params = SamplingParams(dry_sequence_breakers=["ab", [1]], **off)
    assert resolve(params).dry_sequence_breakers == ()


def test_breaker_tokens_that_the_model_lacks_are_left_out() -> None:
    tok = Letters("a", "b", "aa")
    params = SamplingParams(dry_multiplier=1.0, dry_sequence_breakers=["a"])
    assert resolve(params, tokenizer=tok, vocab_size=2).dry_sequence_breakers == ((0,),)


def test_a_vocabulary_is_decoded_once() -> None:
    tok = Letters(*(f"<{token}>" for token in range(150_000)))
    resolve(SamplingParams(dry_multiplier=1.0), tokenizer=tok)
    assert tok.decoded == 150_000
    start = time.perf_counter()
    breakers = ["<777>", ">"]
    params = SamplingParams(dry_multiplier=1.0, dry_sequence_breakers=breakers)
    # "<777>" is one token; as a head ends no other token in "<", "<7", "<77" or "<777"
    assert len(resolve(params, tokenizer=tok).dry_sequence_breakers) == 150_000
    assert time.perf_counter() - start < 5  # about 0.4 s; generous, for a busy machine
    assert tok.decoded == 150_000
    tok.words.append("more")
    resolve(params, tokenizer=tok)
    assert tok.decoded == 150_000 + 150_001


@pytest.mark.parametrize(
    "fields", [{"bad_words": "a"}, {"dry_multiplier": 1.0}], ids=["bad_words", "breakers"]
)
def test_text_without_a_tokenizer_is_refused(fields: dict[str, Any]) -> None:
    name = "bad_words" if "bad_words" in fields else "dry_sequence_breakers"
    with pytest.raises(ValueError, match=f"`{name}` holds text, which needs a tokenizer"):
        resolve(SamplingParams(**fields))
    with pytest.raises(ValueError, match="`tokenizer` is an object without encode"):
        resolve(SamplingParams(**fields), tokenizer=object())


@pytest.mark.parametrize("size", [0, -1])
def test_a_vocabulary_without_tokens_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"`vocab_size` is {size}"):
        resolve(SamplingParams(stop_token_ids=[1]), vocab_size=size)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("logit_bias", {"logit_bias": {10: 1.0}}),
        ("allowed_token_ids", {"allowed_token_ids": [1, 10]}),
        ("stop_token_ids", {"stop_token_ids": [10]}),
        ("bad_words_ids", {"bad_words_ids": [[1, 10]]}),
        ("dry_sequence_breakers", {"dry_multiplier": 1.0, "dry_sequence_breakers": [[10, 1]]}),
    ],
)
def test_an_id_outside_the_vocabulary_is_named(name: str, fields: dict[str, Any]) -> None:
    params = SamplingParams(**fields)
    with pytest.raises(ValueError, match=rf"`{name}` holds token 10, .* 10 tokens"):
        resolve(params, vocab_size=10)
    resolve(params, vocab_size=11)
    with pytest.raises(ValueError, match="`eos_token_ids` holds token 11"):
        resolve(params, vocab_size=11, eos_token_ids=[11])
