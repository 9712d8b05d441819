"""The dialect ecma: what ECMA-262 with the `u` flag means, and where real schemas get leniency."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from logitkit.errors import GrammarError
from logitkit.grammar import strings

SUITE = Path("/work/shared/data/json_schema_test_suite.tar.xz")


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("^abc$", ["abc"], ["abc\n", "xabc"]),
        ("^a|b$", ["axx", "xxb"], ["xax", "bx"]),
        ("^(a|b$)", ["ax", "b"], ["bx", "xb"]),
        ("(a$)|(^b)", ["xa", "bx"], ["ax", "xb"]),
        (r"^\d$", ["7"], ["\u0667"]),
        (r"^\w$", ["a", "_"], ["é"]),
        (r"^\W$", ["é", " "], ["a"]),
        (r"^\s$", [" ", "\ufeff", "\u2029", "\xa0", "\v"], ["\u180e", "\x85", "a"]),
        ("^.$", ["a", "\u0085", "😀"], ["\n", "\r", "\u2028", "\u2029"]),
        ("^[^]$", ["\n", "a"], [""]),
        ("a[]", [], ["a", ""]),
        (r"^\cC$", ["\x03"], ["C"]),
        (r"^\u{1F600}\u0041$", ["😀A"], ["u{1F600}A"]),
        (r"^\ud83d\ude00$", ["😀"], ["\ude00"]),
        (r"^[\u{1F600}-\u{1F64F}]+$", ["😀🙏"], ["🚀"]),
        (r"^\p{Letter}+$", ["éa"], ["1"]),
        (r"^\p{Lu}\P{Lu}$", ["Aa"], ["AA"]),
        (r"^\p{Script=Greek}+$", ["αβ"], ["ab"]),
        (r"^\p{Alphabetic}[\p{Nd}_]$", ["x\u0667"], ["x-"]),
        (r"^(?<year>\d{4})$", ["2024"], ["24"]),
        (r"^\0$", ["\0"], ["0"]),
        (r"\bfoo\b", ["a foo", "foo!"], ["foobar", "éfoox"]),
        # Accepted as every validator does, though the u flag forbids them.
        (r"^[\w-.]+\@\-\_$", ["a-.@-_"], ["a b@-_"]),
        ("^{a}$", ["{a}"], ["a"]),
        ("^a{,3}$", ["a{,3}"], ["aa"]),
        (r"^\/$", ["/"], [r"\/"]),
        ("^(?=.*[A-Z])(?=.*[0-9]).{4,}$", ["abC1", "1A__"], ["abc1", "A1"]),
        (r"^(?!@@)[@a-z]+$", ["@a", "a@@"], ["@@a"]),
    ],
)
def test_a_pattern_means_what_ecma_says(
    pattern: str, inside: list[str], outside: list[str]
) -> None:
    language = strings.pattern(pattern)
    assert [text for text in inside if not strings.matches(language, text)] == []
    assert [text for text in outside if strings.matches(language, text)] == []


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (r"a\Z", r"\\Z"),
        (r"\a", r"\\a"),
        (r"(a)\1", "backreference"),
        (r"(?<n>a)\k<n>", "backreference"),
        ("(?i)a", "flags for a whole pattern"),
        ("(?P<n>a)", "no kind of group"),
        (r"\p{Latin}", "no Unicode property"),
        (r"\u{110000}", "10FFFF"),
        (r"\xg0", "hexadecimal"),
        (r"\c1", "A to Z"),
        ("a{2}{3}", "nothing to repeat"),
        ("(?=a)*", "nothing to repeat"),
        (r"[\B]", "in a class"),
        ("a*+", "nothing to repeat"),
        ("(?>a)", "atomic"),
    ],
)
def test_what_is_not_ecma_is_an_error(pattern: str, words: str) -> None:
    with pytest.raises(GrammarError, match=words):
        strings.pattern(pattern)


@pytest.mark.skipif(not SUITE.exists(), reason="the official test suite is not here")
def test_the_official_suite_agrees_about_patterns() -> None:
    groups = []
    with tarfile.open(SUITE) as suite:
        for member in suite:
            names = ("/pattern.json", "/ecmascript-regex.json", "/non-bmp-regex.json")
            if member.name.endswith(names) and "format" not in member.name:
                file = suite.extractfile(member)
                assert file
                groups += json.load(file)
    seen = 0
    for group in groups:
        if not isinstance(group["schema"], dict) or "pattern" not in group["schema"]:
            continue
        language = strings.pattern(group["schema"]["pattern"])
        for case in group["tests"]:
            if isinstance(case["data"], str):
                seen += 1
                assert strings.matches(language, case["data"]) == case["valid"], case
    assert seen > 50


@pytest.mark.skipif(not SUITE.exists(), reason="the official test suite is not here")
def test_the_official_suite_agrees_about_what_is_no_regex() -> None:
    with tarfile.open(SUITE) as suite:
        name = next(n for n in suite.getnames() if n.endswith("2020-12/optional/format/regex.json"))
        file = suite.extractfile(name)
        assert file
        cases = [case for group in json.load(file) for case in group["tests"]]
    for case in cases:
        if isinstance(case["data"], str) and not case["valid"]:
            with pytest.raises(GrammarError):
                strings.pattern(case["data"])
