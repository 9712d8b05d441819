"""Words as token ids: how `params.resolve` turns the text in a request into sequences of ids.

It knows tokenizers (anything with transformers' `encode`, `decode`, `get_vocab` and `len`) and, of
the rest of the package, `checks`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from logitkit.params.checks import kind

Sequences = tuple[tuple[int, ...], ...]

TAIL_MAX = 20  # llama.cpp's limit on the tokens of a breaker behind its head


@dataclass
class _Vocabulary:
    """The text of every token, and the breakers already looked up in it."""

    size: int
    texts: list[tuple[int, str]]
    breakers: dict[str, Sequences] = field(default_factory=dict)


_vocabularies: WeakKeyDictionary[Any, _Vocabulary] = WeakKeyDictionary()


def check_tokenizer(tokenizer: Any, *methods: str) -> None:
    """Raises ValueError unless `tokenizer` has these methods."""
    missing = [name for name in methods if not callable(getattr(tokenizer, name, None))]
    if missing:
        raise ValueError(
            f"`tokenizer` is {kind(tokenizer)} without {' and '.join(missing)}: give a "
            "transformers tokenizer."
        )


def _vocabulary(tokenizer: Any) -> _Vocabulary:
    """The token texts of a tokenizer, decoded once for as long as it lives and keeps its size."""
    known = _vocabularies.get(tokenizer)
    if known is not None and known.size == len(tokenizer):
        return known
    texts = []
    for spelling, token in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1]):
        decoded = tokenizer.decode([token], clean_up_tokenization_spaces=False)
        # sentencepiece drops a text's leading space: the token's own spelling has it
        spaced = spelling.startswith("\u2581") and not decoded.startswith(" ")
        texts.append((token, " " + decoded if spaced else decoded))
    known = _vocabularies[tokenizer] = _Vocabulary(len(tokenizer), texts)
    return known


def _encode(tokenizer: Any, text: str) -> tuple[int, ...]:
    return tuple(int(token) for token in tokenizer.encode(text, add_special_tokens=False))


def bad_word_sequences(
    words: Iterable[str], tokenizer: Any, eos_token_ids: Collection[int]
) -> Sequences:
    """Each word's ids with and without a leading space (vLLM's rule), duplicates removed.

    Raises ValueError for a word that has no tokens or is an end-of-text token: a ban on the end
    must be asked for by id.
    """
    sequences: dict[tuple[int, ...], None] = {}
    for word in words:
        bare = word.lstrip(" ")
        for form in (bare, " " + bare) if bare else (word,):
            ids = _encode(tokenizer, form)
            if not ids:
                raise ValueError(
                    f"`bad_words`: {form!r} has no tokens in this tokenizer, so it cannot be "
                    "banned. Leave it out, or give the ids in `bad_words_ids`."
                )
            if len(ids) == 1 and ids[0] in eos_token_ids:
                raise ValueError(
                    f"`bad_words`: {form!r} is the end-of-text token {ids[0]}. To keep a request "
                    f"from ending, give `bad_words_ids=(({ids[0]},),)` or `ignore_eos=True`."
                )
            sequences[ids] = None
    return tuple(sequences)


def breaker_sequences(breakers: Iterable[str | tuple[int, ...]], tokenizer: Any) -> Sequences:
    """Every way in which tokens can spell a breaker (llama.cpp's rule), duplicates removed.

    A token whose text contains the breaker breaks by itself. A token whose text ends with a proper
    prefix of it is a head, followed by the tokens of the rest (20 of them at most). Entries that
    are ids already are kept. Texts are compared by characters: a breaker whose tokens cut through
    a character (byte tokens) is not seen, give its ids.
    """
    sequences: dict[tuple[int, ...], None] = {}
    for breaker in breakers:
        found = _spellings(breaker, tokenizer) if isinstance(breaker, str) else (breaker,)
        sequences.update(dict.fromkeys(found))
    return tuple(sequences)


def _spellings(breaker: str, tokenizer: Any) -> Sequences:
    vocabulary = _vocabulary(tokenizer)
    if breaker not in vocabulary.breakers:
        tails = [
            (breaker[:cut], _encode(tokenizer, breaker[cut:])[:TAIL_MAX])
            for cut in range(1, len(breaker))
        ]
        found: list[tuple[int, ...]] = []
        for token, text in vocabulary.texts:
            if breaker in text:
                found.append((token,))
            else:
                found += [(token, *tail) for head, tail in tails if text.endswith(head)]
        vocabulary.breakers[breaker] = tuple(found)
    return vocabulary.breakers[breaker]
