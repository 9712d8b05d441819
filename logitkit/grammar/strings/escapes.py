r"""Backslash escapes and `[...]` classes of both regex dialects.

Used by `parse`. "python" is `re` with str patterns; "ecma" is ECMA-262 with the `u` flag, lenient
where every validator is: a needless backslash before punctuation means the character itself.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, replace
from typing import NoReturn

from logitkit.errors import GrammarError
from logitkit.grammar.strings import unicode_sets
from logitkit.grammar.strings.charset import ALL, EMPTY, LAST, CharSet

CONTROLS = {"f": 0x0C, "n": 0x0A, "r": 0x0D, "t": 0x09, "v": 0x0B}
HEX = frozenset("0123456789abcdefABCDEF")
OCTAL = frozenset("01234567")


@dataclass(frozen=True)
class Flags:
    """The dialect and what `(?...)` has switched on."""

    ecma: bool
    ignore_case: bool = False
    dot_all: bool = False
    multiline: bool = False
    ascii: bool = False
    verbose: bool = False

    def using(self, letters: str, value: bool) -> Flags:
        names = {"i": "ignore_case", "s": "dot_all", "m": "multiline", "a": "ascii", "x": "verbose"}
        changed = {names[letter]: value for letter in letters if letter in names}
        if "u" in letters:
            changed["ascii"] = False
        return replace(self, **changed)


class Reader:
    """A pattern and a position in it."""

    def __init__(self, text: str, where: str | None):
        self.text, self.where, self.at = text, where, 0

    def peek(self, size: int = 1) -> str:
        return self.text[self.at : self.at + size]

    def take(self) -> str:
        char = self.peek()
        self.at += 1
        return char

    def eat(self, text: str) -> bool:
        """Whether `text` comes next; if so it is passed."""
        if self.text.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def until(self, stop: str, start: int) -> str:
        """The text up to `stop`, which is passed; an error if it never comes."""
        end = self.text.find(stop, self.at)
        if end < 0:
            self.fail(f"`{stop}` is missing", start)
        found = self.text[self.at : end]
        self.at = end + len(stop)
        return found

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        at = self.at if at is None else at
        shown = self.text if len(self.text) <= 80 else self.text[:77] + "..."
        raise GrammarError(f"regex {shown!r}, character {at + 1}: {message}", self.where)


def char_class(letter: str, flags: Flags) -> CharSet:
    r"""The set of `\d`, `\w`, `\s` or their upper-case complements."""
    small = letter.lower()
    if flags.ecma:
        found = {
            "d": unicode_sets.DIGIT,
            "w": unicode_sets.WORD,
            "s": unicode_sets.ECMA_SPACE,
        }[small]
    elif flags.ascii:
        found = {"d": unicode_sets.DIGIT, "w": unicode_sets.WORD, "s": unicode_sets.SPACE}[small]
    else:
        found = unicode_sets.python_class(small)
    return ~found if letter.isupper() else found


def folded(charset: CharSet, flags: Flags) -> CharSet:
    return unicode_sets.fold(charset, flags.ascii) if flags.ignore_case else charset


def any_char(flags: Flags) -> CharSet:
    """What `.` matches."""
    if flags.dot_all:
        return ALL
    return ~(unicode_sets.ECMA_LINE_ENDS if flags.ecma else unicode_sets.NEWLINE)


def escape(reader: Reader, flags: Flags, in_class: bool) -> CharSet | int:
    """What the escape after a backslash stands for: a code point, or a set of them.

    The reader stands behind the backslash. Assertions and references are the caller's.
    """
    start = reader.at - 1
    letter = reader.take()
    if letter == "":
        reader.fail("a backslash ends the pattern; write `\\\\` for a backslash", start)
    if letter in "dDwWsS":
        return char_class(letter, flags)
    if letter in CONTROLS:
        return CONTROLS[letter]
    if letter == "b" and in_class:
        return 0x08
    if letter == "x":
        return _digits(reader, 2, start)
    found = (_ecma if flags.ecma else _python)(reader, letter, in_class, start)
    if found is not None:
        return found
    if letter.isascii() and letter.isalnum():
        hint = ""
        if letter in "pP" and not flags.ecma:
            hint = '; Python\'s `re` has no properties, Regex(..., dialect="ecma") does'
        reader.fail(f"the escape `\\{letter}` has no meaning here{hint}", start)
    return ord(letter)


def _ecma(reader: Reader, letter: str, in_class: bool, start: int) -> CharSet | int | None:
    if letter == "u":
        if reader.eat("{"):
            return _number(reader, reader.until("}", start), start)
        point = _digits(reader, 4, start)
        if 0xD800 <= point <= 0xDBFF and reader.peek(2) == "\\u" and reader.peek(3) != "\\u{":
            back = reader.at
            reader.at += 2
            low = _digits(reader, 4, start)
            if 0xDC00 <= low <= 0xDFFF:
                return 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00)
            reader.at = back
        return point
    if letter == "c":
        control = reader.take()
        if not (control.isascii() and control.isalpha()):
            reader.fail("`\\c` takes one letter of A to Z", start)
        return ord(control) & 0x1F
    if letter in "pP":
        if not reader.eat("{"):
            reader.fail(f"`\\{letter}` takes a property in braces, as in `\\p{{Letter}}`", start)
        name = reader.until("}", start)
        found = unicode_sets.unicode_property(name)
        if found is None:
            reader.fail(f"there is no Unicode property `{name}`", start)
        return ~found if letter == "P" else found
    if letter == "0" and not reader.peek().isdecimal():
        return 0
    return None


def _python(reader: Reader, letter: str, in_class: bool, start: int) -> int | None:
    if letter == "a":
        return 0x07
    if letter == "u":
        return _digits(reader, 4, start)
    if letter == "U":
        return _number(reader, f"{_digits(reader, 8, start):x}", start)
    if letter == "N":
        if not reader.eat("{"):
            reader.fail("`\\N` takes a character's name in braces", start)
        name = reader.until("}", start)
        try:
            return ord(unicodedata.lookup(name))
        except (KeyError, TypeError):
            reader.fail(f"there is no character named `{name}`", start)
    if letter in OCTAL:
        digits = letter
        while reader.peek() in OCTAL and reader.peek() and len(digits) < 3:
            digits += reader.take()
        value = int(digits, 8)
        if value > 0o377:
            reader.fail(f"the octal escape `\\{digits}` is above `\\377`", start)
        if letter == "0" or len(digits) == 3 or in_class:
            return value
        reader.at = start + 2
    return None


def _digits(reader: Reader, size: int, start: int) -> int:
    digits = reader.peek(size)
    if len(digits) < size or not HEX.issuperset(digits):
        reader.fail(f"the escape takes {size} hexadecimal digits", start)
    reader.at += size
    return int(digits, 16)


def _number(reader: Reader, digits: str, start: int) -> int:
    if not digits or not HEX.issuperset(digits) or int(digits, 16) > LAST:
        reader.fail("the escape takes a hexadecimal number up to 10FFFF", start)
    return int(digits, 16)


def bracket(reader: Reader, flags: Flags) -> CharSet:
    """The set of a class. The reader stands behind the opening bracket."""
    start = reader.at - 1
    negate = reader.eat("^")
    ranges: list[tuple[int, int]] = []
    sets = EMPTY
    first = True
    while True:
        if reader.at >= len(reader.text):
            reader.fail("the class is never closed; `]` is missing", start)
        if reader.peek() == "]" and (flags.ecma or not first):
            reader.at += 1
            break
        first = False
        low_at = reader.at
        low = _member(reader, flags)
        if reader.peek() == "-" and reader.peek(2) not in ("-]", "-"):
            reader.at += 1
            high = _member(reader, flags)
            if isinstance(low, int) and isinstance(high, int):
                if low > high:
                    reader.fail("the range is upside down", low_at)
                ranges.append((low, high))
                continue
            if not flags.ecma:
                reader.fail("a class such as `\\w` is no end of a range", low_at)
            # As every ECMA engine without the u flag: the hyphen is itself.
            ranges.append((0x2D, 0x2D))
            for member in (low, high):
                if isinstance(member, int):
                    ranges.append((member, member))
                else:
                    sets |= member
        elif isinstance(low, int):
            ranges.append((low, low))
        else:
            sets |= low
    found = folded(CharSet(ranges), flags) | sets
    return ~found if negate else found


def _member(reader: Reader, flags: Flags) -> CharSet | int:
    char = reader.take()
    if char != "\\":
        return ord(char)
    start = reader.at - 1
    if flags.ecma and reader.peek() == "B":
        reader.fail("`\\B` has no meaning in a class", start)
    return escape(reader, flags, in_class=True)
