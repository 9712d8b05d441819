"""Regular string languages: patterns, formats, lengths, sets of words, and their lowering to bytes.

Below every front end of `grammar`. A `Language` is a set of strings of Unicode scalar values;
`StringBody` runs languages inside a JSON string, `build_regex` runs one as a whole grammar.
"""

from logitkit.grammar.strings.body import RegexMachine, StringBody, build_regex
from logitkit.grammar.strings.decide import disjoint, is_empty
from logitkit.grammar.strings.formats import STANDARD_FORMATS, formatted
from logitkit.grammar.strings.language import (
    ANY,
    NONE,
    Language,
    disjunction,
    literal,
    literals,
    matches,
)
from logitkit.grammar.strings.make import length, pattern

__all__ = [
    "ANY",
    "NONE",
    "STANDARD_FORMATS",
    "Language",
    "RegexMachine",
    "StringBody",
    "build_regex",
    "disjoint",
    "disjunction",
    "formatted",
    "is_empty",
    "length",
    "literal",
    "literals",
    "matches",
    "pattern",
]
