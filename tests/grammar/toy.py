"""A slow oracle for machines and an adversarial vocabulary, both for the tests of this folder.

`SlowMachine` runs a `Machine` byte by byte and shares no code with the engine; `ToyVocabulary` has
what real ones have and tests forget: duplicates, tokens without bytes, partial UTF-8, a token of
300 bytes, tokens that contain their neighbour in sorted order without starting with it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from logitkit.grammar.machine import Budget, Call, Context, Expansion, Machine, Move, Step


class Slow(NamedTuple):
    """A configuration of the oracle; `stack` holds (site, counter), innermost last."""

    key: Hashable
    stack: tuple[tuple[Hashable, int], ...] = ()
    counter: int = 0


class SlowMachine:
    """A machine run byte by byte on plain tuples; far states are left as soon as they may be."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.expansions: dict[Hashable, Expansion] = {}

    @property
    def start(self) -> Slow:
        return self.land(Slow(self.machine.start))

    def expand(self, key: Hashable) -> Expansion:
        if key not in self.expansions:
            expansion = self.machine.expand(key)
            last = -1
            for low, high, _ in expansion.moves:
                assert last < low <= high < 256, f"ranges of {key!r} overlap or are not sorted"
                last = high
            self.expansions[key] = expansion
        return self.expansions[key]

    def land(self, at: Slow) -> Slow:
        limit = self.expand(at.key).limit
        if limit is None or at.counter < limit:
            return at
        key, counter = self.machine.land(at.key, at.counter)
        return Slow(key, at.stack, counter)

    def move(self, at: Slow, move: Move) -> Slow | None:
        if isinstance(move, Step):
            counter = at.counter + move.add if move.put is None else move.put
            return self.land(Slow(move.key, at.stack, counter))
        if isinstance(move, Call):
            return self.land(Slow(move.key, (*at.stack, (move.site, at.counter)), 0))
        if not at.stack:
            return None
        site, counter = at.stack[-1]
        key = self.machine.resume(site, move.tag)
        return None if key is None else self.land(Slow(key, at.stack[:-1], counter))

    def step(self, at: Slow | None, byte: int) -> Slow | None:
        """The configuration after one byte; None: refused."""
        if at is None:
            return None
        for low, high, move in self.expand(at.key).moves:
            if low <= byte <= high:
                return self.move(at, move)
        return None

    def run(self, data: bytes, at: Slow | None = None) -> Slow | None:
        """The configuration after all bytes, from `at` or the start; None: refused on the way."""
        at = self.start if at is None else at
        for byte in data:
            at = self.step(at, byte)
            if at is None:
                return None
        return at

    def is_final(self, at: Slow | None) -> bool:
        return at is not None and not at.stack and self.expand(at.key).final

    def accepts(self, data: bytes) -> bool:
        """Whether the whole text is in the language."""
        return self.is_final(self.run(data))

    def prefix_alive(self, data: bytes) -> bool:
        """Whether the text may go on from `data`, or end there."""
        return self.run(data) is not None

    def alive_bytes(self, at: Slow) -> list[int]:
        return [byte for byte in range(256) if self.step(at, byte) is not None]

    def take(self, at: Slow | None, token: int, vocabulary: ToyVocabulary) -> Slow | None:
        """The configuration after a token that is not eos; None: refused."""
        if at is None:
            return None
        for text, move in self.expand(at.key).controls:
            if token in vocabulary.controls.get(text, ()):
                return self.move(at, move)
        data = vocabulary.bytes_of(token)
        return self.run(data, at) if data else None

    def allowed(self, at: Slow, vocabulary: ToyVocabulary) -> set[int]:
        """The ids that a mask must allow here, every token byte by byte."""
        ids = {t for t in range(vocabulary.size) if self.take(at, t, vocabulary) is not None}
        return ids | set(vocabulary.eos_token_ids) if self.is_final(at) else ids


class ToyVocabulary:
    """The attributes of `logitkit.grammar.vocabulary.Vocabulary`, made from a plain list."""

    def __init__(
        self,
        tokens: Sequence[bytes],
        eos_token_ids: Iterable[int] = (0,),
        controls: dict[str, tuple[int, ...]] | None = None,
        size: int | None = None,
    ) -> None:
        self.size = len(tokens) if size is None else size
        self.eos_token_ids = tuple(eos_token_ids)
        self.controls = controls or {}
        silent = {*self.eos_token_ids, *(i for ids in self.controls.values() for i in ids)}
        pieces = [b"" if i in silent else token for i, token in enumerate(tokens)]
        pieces += [b""] * (self.size - len(pieces))
        self.data = np.frombuffer(b"".join(pieces), np.uint8)
        self.offsets = np.cumsum([0, *map(len, pieces)], dtype=np.int64)
        self.horizon = max(map(len, pieces))
        spelled = set(self.data.tolist())
        self.alphabet = tuple(byte in spelled for byte in range(256))
        whole = repr((pieces, self.eos_token_ids, sorted(self.controls.items())))
        self.identity = "toy:" + hashlib.sha256(whole.encode()).hexdigest()
        self._ids = {piece: i for i, piece in reversed(list(enumerate(pieces))) if piece}

    def bytes_of(self, token: int) -> bytes:
        if not 0 <= token < self.size:
            return b""
        return self.data[self.offsets[token] : self.offsets[token + 1]].tobytes()

    def tokenize(self, data: bytes) -> list[int]:
        """Greedy longest match."""
        ids, at = [], 0
        while at < len(data):
            stops = range(min(len(data), at + self.horizon), at, -1)
            stop = next(stop for stop in stops if data[at:stop] in self._ids)
            ids.append(self._ids[data[at:stop]])
            at = stop
        return ids

    def context(self, budget: Budget | None = None) -> Context:
        return Context(self.horizon, self.alphabet, budget or Budget())


WORDS = (
    'a ab aba abab b ba bb xab c ca " "a a" b"a "ab", {" {"a": ": ":" ":"a ", "," ","b": "} "}} '
    "{ } {} }} }, },{ [ ] [[ ]] [] ], ],[ , ,, : 0 1 12 123 -1 0. .5 1e e+ 5} 5, 5] true false "
    'tru e} nul null null, \\ \\\\ \\" \\u \\u00 \\n 0041 ( ) (( )) () )( ((( @ . .com a@b @b. '
    "- _ <think> </ > <tool_call> é éé ü日 日本 日 😀 a😀 €"
)
PARTS = (
    b" ", b"  ", b" a", b"a ", b"\n", b"\n ", b"\n  ", b"\t", b"\r\n", b"a\n", b"\n\n", b"\x00",
    b"\xc3", b"\xa9", b"a\xc3", b"\xa9b", b"\xe6\x97", b"\x97\xa5", b"\xe6", b"\xa5\"", b"\xf0\x9f",
    b"\x98\x80", b"\xf0", b"\x80a", b"\xed\xa0\x80", b"\xff", b"\xc0\x80", b"\x7f", b"\x1f",
    b"a" * 300, b"b" * 40, b"ab" * 20, b"(" * 20, b")" * 20, b"12" * 10, "日本".encode() * 10,
)  # fmt: skip
EOS = (1, 3)
CONTROLS = {"<tool_call>": (5,), "</tool_call>": (6, 7), "[INST]": (8,)}


def toy_vocabulary(missing: bytes = b"", size_over: int = 5) -> ToyVocabulary:
    """About 400 tokens: bytes (but those in `missing`), the words and parts above, two eos ids,
    controls, holes, duplicates, and `size_over` ids beyond the last token."""
    head = [b""] * 10  # eos, controls, and holes between them
    single = [bytes([byte]) for byte in range(256)]
    words = [word.encode() for word in WORDS.split()]
    tokens = [*head, *words, *single, *PARTS, *words[:9], b"", b'"', b"{"]
    tokens = [b"" if any(byte in missing for byte in token) else token for token in tokens]
    return ToyVocabulary(tokens, EOS, CONTROLS, size=len(tokens) + size_over)
