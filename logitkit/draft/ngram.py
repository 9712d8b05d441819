"""`NgramDraft`: what followed the last few tokens when they stood in the text before.

A draft source, above `batch`. It costs nothing to speak of and pays where a text repeats itself or
its prompt: copying, editing, summaries, code. Known as prompt lookup (Saxena, 2023).
"""

from __future__ import annotations

import numpy as np
import torch

from logitkit.batch import Batch
from logitkit.draft.ngram_index import SEPARATOR, Ids, NgramIndex
from logitkit.draft.source import Draft, DraftSource


class NgramMemory:
    """Texts of earlier generations, for an `NgramDraft` to look in; at most `max_tokens` tokens.

    It is filled when a generation begins, with the prompts and outputs of the one before. When it
    is full, the older half is forgotten.
    """

    def __init__(self, max_tokens: int = 100_000, max_order: int = 8) -> None:
        if max_tokens < 1:
            raise ValueError(f"`max_tokens`={max_tokens}: a memory holds at least one token")
        check_order(max_order)
        self.max_tokens = max_tokens
        self.index = NgramIndex(max_order)
        self._unread: list[NgramIndex] = []

    def __len__(self) -> int:
        return self.index.length

    def follow(self, texts: list[NgramIndex]) -> None:
        """Take in the texts followed so far; `texts` are to be taken in when they are complete."""
        for text in self._unread:
            self._append(text.tokens[: text.length])
        self._unread = texts

    def _append(self, text: Ids) -> None:
        index, size = self.index, self.max_tokens
        text = np.append(text[-(size - 1) :] if size > 1 else text[:0], SEPARATOR)
        if index.length + len(text) > size:
            kept = index.tokens[index.length - min(size // 2, size - len(text)) : index.length]
            self.index = NgramIndex(index.max_order)
            self.index.extend(kept)
        self.index.extend(text)


class NgramDraft(DraftSource):
    """Proposes what followed the longest match of the last tokens, latest match first.

    Matches have 1 to `max_order` tokens, in the request's own prompt and output, or, where they are
    longer there, in `memory`. The proposal is twice as long as its match, at most `max_tokens`. Its
    `strength` is the length of the match.
    """

    label = "ngram"

    def __init__(
        self, max_order: int = 8, max_tokens: int = 16, memory: NgramMemory | None = None
    ) -> None:
        check_order(max_order)
        if max_tokens < 1:
            raise ValueError(f"`max_tokens`={max_tokens}: propose at least one token")
        if memory is not None and not isinstance(memory, NgramMemory):
            raise ValueError(f"`memory` is {memory!r}: give an lk.NgramMemory or None")
        self.max_order = max_order
        self.max_tokens = max_tokens
        self.memory = memory
        self._batch: Batch | None = None
        self._texts: list[NgramIndex] = []

    def start(self, batch: Batch) -> None:
        """Forget the texts of an earlier generation; `memory` takes them in."""
        self._batch = batch
        self._texts = [NgramIndex(self.max_order) for _ in range(len(batch))]
        if self.memory is not None:
            self.memory.follow(self._texts)

    def propose(self, batch: Batch, k: int) -> Draft:
        """Up to `k` tokens per request, [B, k'] where k' is the longest proposal."""
        self._read(batch)
        most = min(k, self.max_tokens)
        found = [self._lookup(text, most, batch.vocab_size) for text in self._texts]
        width = max((len(tokens) for tokens, _ in found), default=0)
        padded = np.zeros((len(found), width), np.int64)
        for row, (tokens, _) in zip(padded, found, strict=True):
            row[: len(tokens)] = tokens
        lengths = [len(tokens) for tokens, _ in found]
        return Draft(
            torch.from_numpy(padded).to(batch.device),
            torch.tensor(lengths, dtype=torch.int64, device=batch.device),
            label=self.label,
            strength=torch.tensor([order for _, order in found], dtype=torch.int64),
        )

    def _lookup(self, text: NgramIndex, most: int, vocab_size: int) -> tuple[Ids, int]:
        source, (position, order) = text, text.find(text.tokens, text.length)
        if self.memory is not None and order < self.memory.index.max_order:
            place, longer = self.memory.index.find(text.tokens, text.length)
            if longer > order:
                source, position, order = self.memory.index, place, longer
        if not order:
            return text.tokens[:0], 0
        tokens = source.copy(position, min(2 * order, most))
        foreign = np.flatnonzero(tokens >= vocab_size)  # placeholders of images, say
        return tokens[: foreign[0]] if len(foreign) else tokens, order

    def _read(self, batch: Batch) -> None:
        """Take in what was committed since the last call, in one small transfer."""
        heads = batch.history.head.tolist()
        known = [text.length for text in self._texts]
        if batch is not self._batch or any(h < n for h, n in zip(heads, known, strict=True)):
            self.start(batch)
            known = [0] * len(heads)
        first, last = min(known, default=0), max(heads, default=0)
        if first == last:
            return
        tokens: Ids = batch.history.tokens[:, first:last].cpu().numpy()
        for row, text, n, head in zip(tokens, self._texts, known, heads, strict=True):
            text.extend(row[n - first : head - first])


def check_order(max_order: int) -> None:
    """Refuse orders that the index cannot hold."""
    if not 1 <= max_order <= 32:
        raise ValueError(f"`max_order`={max_order}: the longest match is 1 to 32 tokens")
