"""`Vocabulary`: the bytes of every token, and which tokens end a text; what a mask is a mask of.

The lowest part of the grammar engine: `trie` and `walk` read its arrays, front ends learn from it
how long a token can be and which bytes can be spelled. `tokenizer_sources` reads tokenizers for it.

A *control token* (special, or added and shaped like `<...>` or `[...]` without spaces) is never
text, whatever its bytes; a structural tag may ask for it by its content.

Tokens carry the space before a word with them. At the start of an answer sentencepiece models like
to write such a token, whose space their `decode` strips from a text of its own. A grammar sees the
space, so a grammar that does not begin with one makes the model begin without it.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NoReturn, SupportsIndex

import numpy as np

from logitkit.grammar.tokenizer_sources import PROBES, read

Ids = int | Sequence[int]

_LOCK = threading.Lock()
_FROM_TOKENIZER: weakref.WeakValueDictionary[tuple[Any, ...], Vocabulary]
_FROM_TOKENIZER = weakref.WeakValueDictionary()


class Vocabulary:
    """The bytes of every token, in one array; immutable and shared by every grammar and thread.

    `token_bytes[i]` are the bytes of token i: None or empty for a token that is not text.
    `eos_token_id` (one or several) ends a text and is never text itself. `size` is the width of the
    logits: ids beyond `token_bytes` are holes, tokens beyond `size` are dropped. `controls` are the
    control tokens by their content. Raises ValueError.

    `data` uint8 and `offsets` int64 [size + 1]: token i spells `data[offsets[i] : offsets[i + 1]]`,
    nothing for eos, control tokens and holes. Several tokens may spell the same. `horizon`: bytes
    of the longest token. `alphabet`: for each byte, whether some token contains it. `controls`: ids
    by content, eos left out. `identity`: equal for vocabularies that act the same.
    """

    def __init__(
        self,
        token_bytes: Sequence[bytes | None],
        eos_token_id: Ids,
        size: int | None = None,
        controls: Mapping[str, Ids] | None = None,
    ) -> None:
        self.size = _checked_size(len(token_bytes) if size is None else size)
        self.eos_token_ids = _checked_ids("eos_token_id", eos_token_id, self.size)
        self.controls: dict[str, tuple[int, ...]] = {}
        for text, named in (controls or {}).items():
            ids = _checked_ids(f"controls[{text!r}]", named, self.size)
            if others := tuple(i for i in ids if i not in self.eos_token_ids):
                self.controls[text] = others
        self._fill(token_bytes)
        self._tokenizer: Any = None
        self._encode: Callable[[str], list[int]] | None = None
        self.identity = self._digest()

    def _fill(self, token_bytes: Sequence[bytes | None]) -> None:
        kept = list(token_bytes[: self.size])
        if not set(map(type, kept)) <= {bytes, type(None)}:
            i = next(i for i, s in enumerate(kept) if type(s) not in (bytes, type(None)))
            raise ValueError(
                f"token_bytes[{i}]={kept[i]!r} must be bytes, or None for a token that is not "
                "text; a tokenizer's pieces are read by Vocabulary.from_tokenizer(tokenizer)"
            )
        for i in itertools.chain(self.eos_token_ids, *self.controls.values()):
            if i < len(kept):
                kept[i] = None
        spelled_bytes = [spelled or b"" for spelled in kept]
        lengths = np.zeros(self.size + 1, np.int64)
        lengths[1 : len(kept) + 1] = np.fromiter(map(len, spelled_bytes), np.int64, len(kept))
        self.data = np.frombuffer(b"".join(spelled_bytes), np.uint8)
        self.offsets = np.cumsum(lengths)
        self.offsets.flags.writeable = False
        self.horizon = int(lengths.max())
        self.alphabet = tuple((np.bincount(self.data, minlength=256) > 0).tolist())
        if not self.horizon:
            raise ValueError("token_bytes has no token that is text; give the bytes of every token")

    def _digest(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        # They tell tokenizers apart that split the same bytes otherwise.
        probes = None if self._encode is None else [self._encode(probe) for probe in PROBES]
        parts = (self.size, self.eos_token_ids, sorted(self.controls.items()), probes)
        digest.update(repr(parts).encode("utf-8", "surrogatepass"))
        digest.update(self.offsets.tobytes())
        digest.update(self.data.tobytes())
        return digest.hexdigest()

    @classmethod
    def from_tokenizer(
        cls, tokenizer: Any, size: int | None = None, eos_token_id: Ids | None = None
    ) -> Vocabulary:
        """Return the vocabulary of a tokenizer of any of the usual libraries.

        transformers (fast, slow), tokenizers, tiktoken, sentencepiece and mistral-common are known.
        `size` is the width of the model's logits (`model.config.vocab_size`), by default the
        tokenizer's highest id + 1; `eos_token_id` is by default the tokenizer's. While a result is
        alive the same call returns the same object. Raises ValueError.
        """
        eos = None if eos_token_id is None else _as_tuple(eos_token_id)
        # A vocabulary keeps its tokenizer alive, so an id in use is no other tokenizer's.
        key = (id(tokenizer), _entries(tokenizer), size, eos)
        with _LOCK:
            found = _FROM_TOKENIZER.get(key)
            if found is None:
                found = cls._read(tokenizer, size, eos)
                _FROM_TOKENIZER[key] = found
        return found

    @classmethod
    def _read(cls, tokenizer: Any, size: int | None, eos: tuple[int, ...] | None) -> Vocabulary:
        source = read(tokenizer)
        eos = source.eos_token_ids if eos is None else eos
        if not eos:
            raise ValueError(
                f"tokenizer={type(tokenizer).__name__} has no eos token: pass eos_token_id=..., "
                "the id (or ids) at which the model ends a text"
            )
        if size is None:
            size = max(itertools.chain(source.text, source.controls, eos)) + 1
        size = _checked_size(size)
        token_bytes = [source.text.get(token) for token in range(size)]
        controls: dict[str, list[int]] = {}
        for token, text in sorted(source.controls.items()):
            if token < size:
                controls.setdefault(text, []).append(token)
        made = cls(token_bytes, eos, size, controls)
        made._tokenizer, made._encode = tokenizer, source.encode
        made.identity = made._digest()
        return made

    def spell(self, tokens: Iterable[int]) -> bytes:
        """Return the bytes of a sequence of tokens; eos, control tokens and holes add nothing."""
        ends = self.offsets
        return b"".join(self.data[ends[i] : ends[i + 1]].tobytes() for i in tokens)

    def tokenize(self, data: bytes) -> list[int]:
        """Return tokens that spell `data`: the tokenizer's own where they do, else the longest.

        The tokenizer is asked for the text alone, and for the text after a newline, as some put a
        space before the first word. Without a tokenizer, and where `data` is no whole UTF-8 or
        holds the content of a special token, each token is the longest that leaves a rest that
        can be spelled. Raises ValueError where no tokens spell `data`.
        """
        if self._encode is not None:
            try:
                text = data.decode()
            except UnicodeDecodeError:
                pass
            else:
                for before in ("", "\n"):
                    tokens = self._encode(before + text)
                    skip = self._encode(before) if before else []
                    rest = tokens[len(skip) :]
                    if tokens[: len(skip)] == skip and self._spells(rest, data):
                        return rest
        return self._longest(data)

    def _spells(self, tokens: list[int], data: bytes) -> bool:
        """Whether these are tokens that are text, and spell `data`."""
        ends = self.offsets
        text = all(0 <= i < self.size and ends[i] < ends[i + 1] for i in tokens)
        return text and self.spell(tokens) == data

    def _longest(self, data: bytes) -> list[int]:
        ids, lengths = self._by_bytes
        best: list[tuple[int, int]] = [(-1, 0)] * len(data) + [(-1, 1)]  # token, bytes; 0: none
        for start in range(len(data) - 1, -1, -1):
            for length in lengths:
                end = start + length
                if end <= len(data) and best[end][1] and data[start:end] in ids:
                    best[start] = ids[data[start:end]], length
                    break
        tokens, start = [], 0
        while start < len(data):
            token, length = best[start]
            if not length:
                missing = sorted({byte for byte in data if not self.alphabet[byte]})
                why = f"no token contains the byte {missing[0]:#04x}" if missing else "none fit"
                raise ValueError(f"no tokens of the vocabulary spell {data[:60]!r}: {why}")
            tokens.append(token)
            start += length
        return tokens

    @cached_property
    def _by_bytes(self) -> tuple[dict[bytes, int], list[int]]:
        """The lowest token for each byte string, and the lengths there are, longest first."""
        data, ends = self.data.tobytes(), self.offsets.tolist()
        ids = {data[ends[i] : ends[i + 1]]: i for i in range(self.size - 1, -1, -1)}
        ids.pop(b"", None)
        return ids, sorted(set(map(len, ids)), reverse=True)

    def __repr__(self) -> str:
        text = int(np.count_nonzero(np.diff(self.offsets)))
        return (
            f"Vocabulary(size={self.size}, {text} text tokens, {len(self.controls)} controls, "
            f"eos_token_ids={self.eos_token_ids})"
        )

    def __copy__(self) -> Vocabulary:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Vocabulary:
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            "a Vocabulary cannot be pickled: make it again in the other process with "
            "lk.Vocabulary.from_tokenizer(tokenizer), or Vocabulary(token_bytes, eos_token_id)"
        )


def _entries(tokenizer: Any) -> int | None:
    """How many tokens a tokenizer has, which tells that some were added."""
    if hasattr(tokenizer, "get_vocab_size"):
        return int(tokenizer.get_vocab_size())
    return len(tokenizer) if hasattr(tokenizer, "__len__") else None


def _as_tuple(ids: Ids) -> tuple[int, ...]:
    return tuple(ids) if isinstance(ids, Sequence) else (ids,)


def _checked_size(size: int) -> int:
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
        raise ValueError(f"size={size!r} must be a positive int: the width of the model's logits")
    return int(size)


def _checked_ids(name: str, ids: Ids, size: int) -> tuple[int, ...]:
    """Return ids as a tuple without repetitions, checked to be token ids below `size`."""
    found = tuple(dict.fromkeys(_as_tuple(ids)))
    for i in found:
        if isinstance(i, bool) or not isinstance(i, int | np.integer) or not 0 <= i < size:
            raise ValueError(
                f"{name}={ids!r}: {i!r} must be a token id from 0 to size - 1 = {size - 1}; size "
                "is the width of the model's logits (model.config.vocab_size)"
            )
    if not found:
        raise ValueError(f"{name}={ids!r} must name at least one token id")
    return tuple(map(int, found))
