"""What the tokens of a vocabulary spell: pieces, as tokenizers list them, to bytes.

Used by `tokenizer_sources`, which gets the pieces out of a tokenizer. The kind of a vocabulary is
read off its own pieces, because the classes of tokenizers say little: one class serves byte-level
and sentencepiece vocabularies alike.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Literal

import numpy as np

Array = np.ndarray[Any, Any]

Kind = Literal["byte level", "byte fallback", "text"]

METASPACE = "\u2581"  # how sentencepiece writes a space
_FALLBACK = {f"<0x{byte:02{case}}>": bytes([byte]) for byte in range(256) for case in "xX"}
_CONTROL_SHAPE = re.compile(r"<\S+>|\[\S+\]")


def looks_like_control(text: str) -> bool:
    """Whether an added token is a control token by its shape: `<...>` or `[...]` without spaces."""
    return _CONTROL_SHAPE.fullmatch(text) is not None


def _byte_of_character() -> Array:
    """GPT-2's alphabet, int16 [0x145]: the byte that a code point stands for, -1 for none.

    Printable Latin-1 characters stand for themselves, and the characters from U+0100 on for the 68
    other bytes in order; the last entry is for all code points beyond.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    table = np.full(0x145, -1, np.int16)
    table[printable] = printable
    table[0x100:0x144] = others
    return table


_BYTE_OF = _byte_of_character()
_SHIFTED = _BYTE_OF[0x100:0x144]  # the bytes that are written as another character


def _alphabet_bytes(pieces: Collection[str]) -> tuple[Array, Array, Array]:
    """Read pieces as a byte-level vocabulary's.

    Returns the byte of every character of all pieces, int16, -1 outside the alphabet; where each
    piece begins and ends, int64 [N + 1]; and whether it has a character outside, bool [N].
    """
    joined = "".join(pieces).encode("utf-32-le", "surrogatepass")
    found = _BYTE_OF[np.minimum(np.frombuffer(joined, "<u4"), len(_BYTE_OF) - 1)]
    offsets = np.zeros(len(pieces) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, pieces), np.int64, len(pieces)), out=offsets[1:])
    strange = np.zeros(len(found) + 1, np.int64)
    np.cumsum(found < 0, out=strange[1:])
    return found, offsets, strange[offsets[1:]] > strange[offsets[:-1]]


def kind_of(pieces: Collection[str]) -> Kind:
    """Return how a vocabulary spells bytes, judged by its pieces (added tokens left out).

    "byte fallback": at least 128 pieces are `<0xXX>`. "byte level": at least 99 % of the pieces
    are in GPT-2's alphabet, and some have a character that only this alphabet gives a byte to
    (a plain ASCII vocabulary has none). "text": all others; a metaspace is a space.
    """
    if len(set(_FALLBACK).intersection(pieces)) >= 128:
        return "byte fallback"
    found, _, outside = _alphabet_bytes(pieces)
    if outside.sum() * 100 <= len(pieces) and np.isin(found, _SHIFTED).any():
        return "byte level"
    return "text"


def spell(pieces: Mapping[int, str]) -> dict[int, bytes]:
    """Return the bytes of each piece, by token id, as `kind_of` the pieces says.

    A piece of a byte-level vocabulary that has a character outside the alphabet is literal text.
    Lone surrogates, which UTF-8 cannot say, spell nothing.
    """
    kind = kind_of(pieces.values())
    if kind == "byte level":
        return _byte_level(pieces)
    fallback = _FALLBACK if kind == "byte fallback" else {}
    return {
        token: fallback.get(piece) or piece.replace(METASPACE, " ").encode("utf-8", "ignore")
        for token, piece in pieces.items()
    }


def _byte_level(pieces: Mapping[int, str]) -> dict[int, bytes]:
    found, offsets, outside = _alphabet_bytes(pieces.values())
    data = found.astype(np.uint8).tobytes()  # one byte for each character, so the offsets hold
    ends = offsets.tolist()
    spelled = {token: data[ends[row] : ends[row + 1]] for row, token in enumerate(pieces)}
    tokens = list(pieces)
    for row in np.flatnonzero(outside).tolist():
        spelled[tokens[row]] = pieces[tokens[row]].encode("utf-8", "ignore")
    return spelled
