"""What `likely` writes into strings and numbers of a kind."""

from __future__ import annotations

from typing import Any

WORDS = (
    "example text",
    "A1",
    "",
    'Some longer text, with 2 sentences. Caf\u00e9 \\ "it\'s"\n',
    "en",
)
FORMATS = {
    "date-time": (
        "2023-05-17T12:30:45Z", "2024-10-31T09:05:00.123+01:00", "2022-01-01T00:00:00Z",
        "2021-12-25T23:59:59.999Z", "2020-02-29T18:00:00-05:00", "2022-06-09T14:40:20",
    ),
    "date": ("2023-05-17", "2024-10-31", "2022-01-01", "2021-12-25", "1990-06-09", "2020-02-29"),
    "time": ("12:30:45Z", "09:05:00", "23:59:59.999+01:00", "00:00:00Z"),
    "email": ("john.doe@example.com",),
    "hostname": ("www.example.com",),
    "ipv4": ("192.168.1.10",),
    "ipv6": ("2001:db8::1",),
    "uri": ("https://www.example.com/path?query=1", "http://example.com"),
    "uri-reference": ("https://www.example.com/path", "/path"),
    "uuid": ("123e4567-e89b-12d3-a456-426614174000",),
    "duration": ("P1DT2H",),
}  # fmt: skip
NUMBERS = ("42", "7.5", "-3", "0", "100", "1500", "2024", "0.25")
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
ANYTHING: tuple[Any, ...] = (
    "example", 42, True, {"name": "example", "value": 1}, ["a", 2], None, 7.5, False,
)  # fmt: skip
OF_TYPE = {
    "object": ("properties", "required", "additionalProperties", "patternProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems", "contains"),
    "string": ("pattern", "format", "minLength", "maxLength"),
    "number": BOUNDS,
}
BESIDE = {
    "integer": ("0,", "-1,", "12}", "7]"),
    "number": ("0.5,", "10.25,", "-1.5,", "7,", "0,", "-0.5}", "12]"),
    "string": ('"example text",', '"A1"}'),
    "boolean": ("true,", "false,", "false}"),
    "null": ("null,", "null}"),
}
