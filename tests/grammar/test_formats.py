"""Formats against the official suite, and against Python's own calendars and parsers."""

from __future__ import annotations

import datetime
import ipaddress
import json
import tarfile
import uuid
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logitkit.grammar import strings

SUITE = Path("/work/shared/data/json_schema_test_suite.tar.xz")
ENFORCED = ["date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uri"]
ENFORCED += ["uri-reference", "uuid"]


def _in(name: str, text: str) -> bool:
    language = strings.formatted(name)
    assert language is not None
    return strings.matches(language, text)


def _cases(name: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    with tarfile.open(SUITE) as suite:
        for member in suite:
            if member.name.endswith(f"/optional/format/{name}.json"):
                file = suite.extractfile(member)
                assert file
                found += [case for group in json.load(file) for case in group["tests"]]
    return [case for case in found if isinstance(case["data"], str)]


@pytest.mark.skipif(not SUITE.exists(), reason="the official test suite is not here")
@pytest.mark.parametrize("name", ENFORCED)
def test_the_official_suite_agrees(name: str) -> None:
    cases = _cases(name)
    assert len(cases) > 15
    for case in cases:
        text = str(case["data"])
        # Documented: labels with `--` in their third and fourth place are left out.
        narrowed = name == "hostname" and any(label[2:4] == "--" for label in text.split("."))
        assert _in(name, text) == (case["valid"] and not narrowed), case


def test_other_formats_are_not_enforced_and_the_standard_ones_have_names() -> None:
    assert {"iri", "regex", "idn-email", "uri-template"} <= strings.STANDARD_FORMATS
    for name in (*strings.STANDARD_FORMATS, "int32", "no-such-format"):
        assert strings.formatted(name) is None
    assert not strings.STANDARD_FORMATS & set(ENFORCED)


def test_every_day_of_the_calendar_is_a_date_and_no_other() -> None:
    for year in (1, 4, 99, 100, 400, 1900, 2000, 2023, 2024, 9999):
        for month in range(14):
            for day in range(33):
                try:
                    datetime.date(year, month, day)
                    valid = True
                except ValueError:
                    valid = False
                assert _in("date", f"{year:04}-{month:02}-{day:02}") == valid
    assert not _in("date", "0000-01-01")


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 1439), st.integers(0, 1439), st.sampled_from("+-"), st.booleans())
def test_a_leap_second_ends_a_day_of_utc(local: int, offset: int, sign: str, true: bool) -> None:
    if true:
        local = (1439 + offset if sign == "+" else 1439 - offset) % 1440
    utc = (local - offset if sign == "+" else local + offset) % 1440
    zone = f"{sign}{offset // 60:02}:{offset % 60:02}"
    clock = f"{local // 60:02}:{local % 60:02}:60"
    assert _in("time", f"{clock}.5{zone}") == (utc == 1439)
    assert _in("date-time", f"2016-12-31T{clock}{zone}") == (utc == 1439)
    assert _in("time", f"{clock}Z") == (local == 1439)


@settings(max_examples=100, deadline=None)
@given(st.datetimes(), st.sampled_from(["Z", "z", "+00:00", "-23:59", "+14:00"]))
def test_times_that_python_writes_are_taken(moment: datetime.datetime, zone: str) -> None:
    text = moment.isoformat()
    assert _in("date-time", text + zone)
    assert not _in("date-time", text)
    assert _in("date", text[:10])
    assert _in("time", text[11:] + zone)


@settings(max_examples=200, deadline=None)
@given(st.text("0123456789abF:.", max_size=20) | st.ip_addresses(v=6).map(str))
def test_ip_addresses_are_those_that_python_parses(text: str) -> None:
    for name, parse in (("ipv4", ipaddress.IPv4Address), ("ipv6", ipaddress.IPv6Address)):
        try:
            parse(text)
            valid = True
        except ValueError:
            valid = False
        assert _in(name, text) == valid


@pytest.mark.parametrize("zeros", range(9))
@pytest.mark.parametrize("at", range(9))
def test_double_colons_stand_for_one_group_or_more(zeros: int, at: int) -> None:
    groups = ["1"] * (8 - zeros)
    text = ":".join(groups[:at]) + "::" + ":".join(groups[at:])
    assert _in("ipv6", text) == (zeros >= 1)
    mixed = "::" + ":".join(["a"] * (6 - zeros) + ["1.2.3.4"]) if zeros <= 6 else "::"
    assert _in("ipv6", mixed) == (zeros >= 1 or mixed == "::")


@settings(max_examples=50, deadline=None)
@given(st.uuids())
def test_uuids_are_taken_in_either_case(value: uuid.UUID) -> None:
    assert _in("uuid", str(value)) and _in("uuid", str(value).upper())
    assert not _in("uuid", value.hex) and not _in("uuid", f"{{{value}}}")


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        (
            "hostname",
            ["a", "a-b.c", "x" * 63 + ".com", ".".join(["ab"] * 84) + "a", "a-" + "b" * 61],
            ["x" * 64, ".".join(["a"] * 128), "a_b", "a.", "-a", "a-", "xn--a", "ab--c", "a..b"],
        ),
        (
            "email",
            ["a@b", f"{'a' * 64}@b", '"a b"@c.d', '"a\\"b"@c', "a@[1.2.3.4]", "a@[IPv6:::1]"],
            [f"{'a' * 65}@b", "a@", "@b", "a@b@c", '"a"b"@c', "a@[1.2.3]", f"a@{'b' * 64}", "ä@b"],
        ),
        (
            "uri",
            ["a:", "a:b", "http://u:p@h:80/p?q#f", "http://[::1]:1", "urn:a:b", "http:///p", "a:/"],
            ["//a", "a", "1a:b", "http://a b", "a:%zz", "a:#f#g", "http://[::1", "http://h:p/"],
        ),
        (
            "uri-reference",
            ["", "a", "/a", "//a", "?q", "#f", "./a:b", "a/b:c", "http://a", "//u@h:1/p"],
            ["a b", "%", "1a:b", "\\", "//[a]", "{}"],
        ),
        (
            "duration",
            ["P1Y", "P1Y2M3DT4H5M6S", "PT1S", "P2W", "P1M2D"],
            ["P", "PT", "P1Y2D", "PT1H2S", "P1W1D", "1Y", "P1.5D"],
        ),
    ],
)
def test_a_format_holds_these_and_not_those(
    name: str, inside: list[str], outside: list[str]
) -> None:
    assert [text for text in inside if not _in(name, text)] == []
    assert [text for text in outside if _in(name, text)] == []


def test_a_format_and_a_length_hold_together() -> None:
    language = strings.formatted("email")
    assert language
    short = language & strings.length(0, 5)
    assert strings.matches(short, "a@b.c")
    assert not strings.matches(short, "ab@b.c")
    assert strings.is_empty(language & strings.length(0, 2))
