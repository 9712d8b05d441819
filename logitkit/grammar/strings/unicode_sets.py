r"""Character classes that come from Unicode: `\d \w \s`, `\p{...}`, and case folding.

Used by `parse`. Python's classes are asked of `re` itself, so they are exactly those of the
interpreter; properties are asked of the `regex` module.
"""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np
import regex

from logitkit.grammar.strings.charset import LAST, SURROGATES, CharSet, chars, interval

DIGIT = CharSet(((0x30, 0x39),))
WORD = CharSet(((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)))
SPACE = CharSet(((0x09, 0x0D), (0x20, 0x20)))
# WhiteSpace and LineTerminator of ECMA-262.
ECMA_SPACE = (
    SPACE | chars("\xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff") | interval(0x2000, 0x200A)
)
ECMA_LINE_ENDS = chars("\n\r\u2028\u2029")
NEWLINE = chars("\n")

LAST_LETTER = 0x3FFFF  # beyond it are only tags, private use and what is not assigned

# General categories by the long names that ECMA-262 allows beside the short ones.
CATEGORIES = frozenset(
    re.split(
        r"\s+",
        """C Cc Cf Cn Co Cs L LC Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk
        Sm So Z Zl Zp Zs Other Control cntrl Format Unassigned Private_Use Surrogate Letter
        Cased_Letter Lowercase_Letter Modifier_Letter Other_Letter Titlecase_Letter Uppercase_Letter
        Mark Combining_Mark Spacing_Mark Enclosing_Mark Nonspacing_Mark Number Decimal_Number digit
        Letter_Number Other_Number Punctuation punct Connector_Punctuation Dash_Punctuation
        Close_Punctuation Final_Punctuation Initial_Punctuation Other_Punctuation Open_Punctuation
        Symbol Currency_Symbol Modifier_Symbol Math_Symbol Other_Symbol Separator Line_Separator
        Paragraph_Separator Space_Separator""",
    )
)
BINARY = frozenset(
    re.split(
        r"\s+",
        """ASCII_Hex_Digit AHex Alphabetic Alpha Case_Ignorable CI Cased Dash DI
        Default_Ignorable_Code_Point Diacritic Dia Emoji Emoji_Modifier EMod Emoji_Modifier_Base
        EBase Emoji_Presentation EPres Extended_Pictographic ExtPict Extender Ext Hex_Digit Hex
        ID_Continue IDC ID_Start IDS Ideographic Ideo Lowercase Lower Math
        Noncharacter_Code_Point NChar Pattern_Syntax Pat_Syn Pattern_White_Space Pat_WS
        Quotation_Mark QMark Radical Regional_Indicator RI Sentence_Terminal STerm Soft_Dotted SD
        Terminal_Punctuation Term Unified_Ideograph UIdeo Uppercase Upper Variation_Selector VS
        White_Space space XID_Continue XIDC XID_Start XIDS""",
    )
)


@lru_cache(2)
def _characters(last: int) -> str:
    points = np.arange(last + 1, dtype="<u4")
    points[SURROGATES[0] : SURROGATES[1] + 1] = 0
    return points.tobytes().decode("utf-32-le")


@lru_cache(16)
def python_class(letter: str) -> CharSet:
    r"""The characters that `re` matches with `\d`, `\w` or `\s` in a str pattern."""
    found = re.finditer(rf"\{letter}+", _characters(LAST_LETTER))
    return CharSet((span.start(), span.end() - 1) for span in found)


@lru_cache(64)
def unicode_property(name: str) -> CharSet | None:
    r"""The characters of `\p{name}` as ECMA-262 spells names; None if there is no such property."""
    kind, _, value = name.rpartition("=")
    if kind in ("", "General_Category", "gc") and value in CATEGORIES:
        # `regex` takes the surrogates and every other category by their names.
        expression = rf"\p{{gc={'Cased_Letter' if value == 'LC' else value}}}+"
    elif kind == "" and value in ("Any", "Assigned", "ASCII"):
        expression = {"Any": r"[\s\S]+", "Assigned": r"\P{Cn}+", "ASCII": r"[\x00-\x7f]+"}[value]
    elif kind == "" and value in BINARY:
        expression = rf"\p{{{value}}}+"
    elif kind in ("Script", "sc", "Script_Extensions", "scx") and re.fullmatch(
        "[A-Z][A-Za-z_]+", value
    ):
        long = "Script" if kind in ("Script", "sc") else "Script_Extensions"
        expression = rf"\p{{{long}={value}}}+"
    else:
        return None
    try:
        compiled = regex.compile(expression)
    except regex.error:
        return None
    found = compiled.finditer(_characters(LAST))
    spans = [(span.start(), span.end() - 1) for span in found]
    return CharSet(spans)


@lru_cache(1)
def _case_groups() -> dict[int, frozenset[int]]:
    """Every character that has a case, with all that `re` takes for equal to it under (?i)."""
    roots: dict[object, set[int]] = {}
    groups: dict[int, set[int]] = {}
    for char in regex.findall(r"\p{Changes_When_Casemapped}", _characters(LAST_LETTER)):
        point, lower = ord(char), char.lower()
        # U+0130 alone has a lower case of two characters; its simple lower case is "i".
        lower = lower[0]
        joined = {point, ord(lower)}
        for key in (lower, lower.upper()):
            joined |= roots.get(key, set())
        for member in joined:
            groups[member] = joined
            small = chr(member).lower()[0]
            roots[small] = roots[small.upper()] = joined
    return {point: frozenset(group) for point, group in groups.items()}


@lru_cache(512)
def fold(charset: CharSet, ascii_only: bool = False) -> CharSet:
    """The set with all the characters that `re` takes for equal under (?i)."""
    extra: list[tuple[int, int]] = []
    if ascii_only:
        for low, high in charset.ranges:
            extra += [(p ^ 0x20, p ^ 0x20) for p in range(low, min(high, 0x7A) + 1) if _letter(p)]
        return charset | CharSet(extra)
    for point, group in _case_groups().items():
        if point in charset:
            extra += [(member, member) for member in group]
    return charset | CharSet(extra)


def _letter(point: int) -> bool:
    return 0x41 <= point <= 0x5A or 0x61 <= point <= 0x7A
