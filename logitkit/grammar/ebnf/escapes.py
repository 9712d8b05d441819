"""The escapes of EBNF literals and classes."""

from __future__ import annotations

import re
from typing import NoReturn, Protocol

from logitkit.grammar.strings.charset import LAST, SURROGATES

_NAMED = {
    "n": 0x0A, "t": 0x09, "r": 0x0D, "b": 0x08, "f": 0x0C, "v": 0x0B, "a": 0x07, "e": 0x1B,
    "0": 0x00, "\\": 0x5C, '"': 0x22, "'": 0x27, "?": 0x3F, "/": 0x2F,
    "[": 0x5B, "]": 0x5D, "-": 0x2D, "^": 0x5E,
}  # fmt: skip
_DIGITS = {"x": 2, "u": 4, "U": 8}
_HEX = re.compile(r"[0-9A-Fa-f]*")


class Source(Protocol):
    text: str

    def fail(self, message: str, at: int) -> NoReturn: ...


def read_code_point(source: Source, at: int) -> tuple[int, int]:
    """The code point of the escape whose backslash is at `at`, and the index after it.

    `\\xHH`, `\\uXXXX` and `\\UXXXXXXXX` name a code point; surrogates are refused.
    """
    kind = source.text[at + 1 : at + 2]
    if kind in _NAMED:
        return _NAMED[kind], at + 2
    if kind not in _DIGITS:
        source.fail(f"unknown escape {source.text[at : at + 2]!r}", at)
    stop = at + 2 + _DIGITS[kind]
    digits = source.text[at + 2 : stop]
    if len(digits) < _DIGITS[kind] or not _HEX.fullmatch(digits):
        source.fail(f"\\{kind} needs {_DIGITS[kind]} hexadecimal digits", at)
    point = int(digits, 16)
    if point > LAST:
        source.fail(f"{source.text[at:stop]} is beyond the last code point, U+10FFFF", at)
    if SURROGATES[0] <= point <= SURROGATES[1]:
        source.fail(
            f"{source.text[at:stop]} is a surrogate, not a character; write \\UXXXXXXXX", at
        )
    return point, stop
