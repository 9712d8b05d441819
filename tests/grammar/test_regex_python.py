"""The dialect python against `re` itself, on generated patterns and by hand."""

from __future__ import annotations

import re
import time
import warnings

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from logitkit.errors import GrammarError
from logitkit.grammar import strings
from logitkit.grammar.strings import unicode_sets
from logitkit.grammar.strings.charset import chars

ATOMS = ["a", "b", "A", "_", "1", " ", r"\.", "é", "k", ".", r"\d", r"\w", r"\s", r"\D", r"\W"]
ATOMS += [r"\S", "[ab]", "[^a]", "[a-b_]", r"[^\w]", r"[\s1]", "[K-k]", r"[^\n]", "^", "$", r"\b"]
ATOMS += [r"\B", r"\A", r"\Z", "(?<=a)", "(?<!a)", r"(?<!\w)"]
QUANTIFIERS = ["", "", "", "*", "+", "?", "{2}", "{1,3}", "{,2}", "{2,}", "{0}", "*?", "+?", "??"]
QUANTIFIERS += ["{1,2}?", "*+", "++", "?+", "{3,18}"]
GROUPS = ["(", "(?:", "(?=", "(?!", "(?i:", "(?s:", "(?m:", "(?-i:", "(?a:", "(?P<name>"]


def _join(parts: list[str], mark: str) -> str:
    return mark.join(parts)


def _pattern() -> st.SearchStrategy[str]:
    def extend(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        grouped = st.builds(
            lambda opening, body: f"{opening}{body})", st.sampled_from(GROUPS), inner
        )
        piece = st.builds(
            lambda atom, quantifier: atom + quantifier,
            st.sampled_from(ATOMS) | grouped,
            st.sampled_from(QUANTIFIERS),
        )
        sequence = st.lists(piece, max_size=3).map(lambda parts: _join(parts, ""))
        return st.lists(sequence, min_size=1, max_size=2).map(lambda parts: _join(parts, "|"))

    flags = st.sampled_from(["", "", "", "(?i)", "(?s)", "(?m)"])
    return st.builds(lambda f, p: f + p, flags, st.recursive(st.just("a"), extend, max_leaves=5))


TEXTS = st.lists(st.text("aAbB_1 \n.é\u0661kK\u212a\u017f", max_size=6), min_size=8, max_size=8)


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(_pattern(), TEXTS)
@example("a$\n", ["a\n", "a"])
@example("(?:a|ab)(?:c|bcd)(?:d*)", ["abcd", "acd", "abcdd", "abbcd"])
@example(r"(?:(?!aa).)*", ["abab", "baab", ""])
def test_a_pattern_matches_what_re_matches(pattern: str, texts: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        try:
            expected = re.compile(pattern)
        except re.error:
            with pytest.raises(GrammarError):
                strings.pattern(pattern, dialect="python", search=False)
            return
    try:
        whole = strings.pattern(pattern, dialect="python", search=False)
    except GrammarError as error:
        assert "possessive" in str(error)
        return
    found = strings.pattern(pattern, dialect="python", search=True)
    for text in texts:
        assert strings.matches(whole, text) == bool(expected.fullmatch(text)), text
        assert strings.matches(found, text) == bool(expected.search(text)), text


@pytest.mark.parametrize("letter", "dws")
def test_classes_hold_the_characters_that_re_gives_them(letter: str) -> None:
    charset = unicode_sets.python_class(letter)
    expected = re.compile(rf"\{letter}")
    every = "".join(chr(point) for point in range(0x110000) if not 0xD800 <= point <= 0xDFFF)
    found = set(expected.findall(every))
    assert sum(high - low + 1 for low, high in charset.ranges) == len(found)
    assert all(ord(char) in charset for char in found)


def test_ignoring_case_takes_the_characters_that_re_takes() -> None:
    cased = [chr(p) for p in range(0x1F000) if chr(p).lower() != chr(p) or chr(p).upper() != chr(p)]
    together = "".join(cased)
    for char in cased[::7]:
        expected = set(re.findall(f"(?i){re.escape(char)}", together))
        charset = unicode_sets.fold(chars(char))
        assert {other for other in cased if ord(other) in charset} == expected | {char}


@pytest.mark.parametrize(
    ("pattern", "words", "place"),
    [
        (r"(a)\1", "backreference", 4),
        ("(?P<n>a)(?P=n)", "backreference", 9),
        ("(a)?(?(1)b|c)", "conditional", 5),
        ("(?<=ab)c", "lookbehind", 1),
        ("a++ab", "possessive", 2),
        ("(?>a|ab)c", "atomic group", 1),
        ("a(b", "never closed", 2),
        ("ab)", "closes no group", 3),
        ("[a-", "never closed", 1),
        ("[z-a]", "upside down", 2),
        ("a**", "nothing to repeat", 3),
        ("a{3,2}", "above", 2),
        (r"ab\q", r"`\\q` has no meaning", 3),
        (r"\pL", 'dialect="ecma"', 1),
        ("x\\", "backslash ends", 2),
        ("(?L)a", "flag `L`", 1),
    ],
)
def test_an_error_names_what_is_refused_and_where(pattern: str, words: str, place: int) -> None:
    with pytest.raises(GrammarError, match=words) as caught:
        strings.pattern(pattern, dialect="python", search=False, where="/properties/a/pattern")
    assert f"character {place}:" in str(caught.value)
    assert caught.value.where == "/properties/a/pattern"


@pytest.mark.parametrize("pattern", ["a*+b", "a{1,3}+b", r"(?>\d+)\.", "(?:ab)++c", "(?>[ab]c)d"])
def test_a_possessive_quantifier_that_changes_nothing_is_taken(pattern: str) -> None:
    language = strings.pattern(pattern, dialect="python", search=False)
    expected = re.compile(pattern)
    for text in ("aab", "b", "aaaab", "12.", ".", "ababc", "c", "acd", "bcd"):
        assert strings.matches(language, text) == bool(expected.fullmatch(text))


def test_one_pattern_in_two_places_is_one_language() -> None:
    places = ["/a", "/b"]
    first, second = (strings.pattern("^x+$", where=place) for place in places)
    assert first == second


def test_verbose_patterns_lose_their_spaces_and_comments() -> None:
    language = strings.pattern("(?x) a b [ ] # c\n d", dialect="python", search=False)
    assert strings.matches(language, "ab d")
    assert not strings.matches(language, "abd")


@pytest.mark.parametrize(
    "pattern",
    [
        "(" * 40_000 + ")" * 40_000,
        "(?:" * 60_000,
        "(?=" * 5_000,
        "[" * 90_000,
        "a" * 1_000_000,
        "(?:a++" * 5_000 + "b" + ")" * 5_000,
    ],
)
def test_absurd_patterns_are_refused_quickly(pattern: str) -> None:
    start = time.monotonic()
    with pytest.raises(GrammarError):
        strings.pattern(pattern, dialect="python", search=False)
    assert time.monotonic() - start < 2


def test_nested_repeats_stay_small() -> None:
    for pattern, inside, outside in [
        ("((a{0,1000}){0,1000}){0,1000}", "a" * 5_000, "b"),
        ("((ab){0,1000}c){0,1000}", "ababc" * 50, "abab"),
        ("(?:a?){1000000000}b", "aab", "aa"),
    ]:
        language = strings.pattern(pattern, dialect="python", search=False)
        assert strings.matches(language, inside)
        assert not strings.matches(language, outside)
