r"""The formats of JSON Schema that are enforced, as languages; the others by name.

Exact after the RFCs, with three narrowings, each on the safe side: no year 0000 (Python's calendar
has none), no hostname label with `--` in its third and fourth place (`xn--` labels encode Unicode
under rules that are not regular), and no zone in an IPv6 address. Patterns here are whole matches
in the dialect ecma.
"""

from __future__ import annotations

from functools import lru_cache

from logitkit.grammar.strings.language import Language
from logitkit.grammar.strings.make import length, pattern

# Formats that some draft of JSON Schema defines and that are not enforced.
STANDARD_FORMATS = frozenset(
    {
        "idn-email",
        "idn-hostname",
        "iri",
        "iri-reference",
        "json-pointer",
        "regex",
        "relative-json-pointer",
        "uri-template",
    }
)

_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"


def _ipv6() -> str:
    """RFC 3986, section 3.2.2: at most one `::`, the last 32 bits may be an IPv4 address."""
    group = "[0-9A-Fa-f]{1,4}"
    last = f"(?:{group}:{group}|{IPV4})"
    forms = [rf"(?:{group}:){{6}}{last}"]
    for before in range(8):
        # `before` groups at most stand left of `::`, `after` groups right of it.
        after = 7 - before
        left = rf"(?:(?:{group}:){{0,{before - 1}}}{group})?" if before else ""
        right = rf"(?:{group}:){{{after - 2}}}{last}" if after >= 2 else group * after
        forms.append(f"{left}::{right}")
    return f"(?:{'|'.join(forms)})"


IPV6 = _ipv6()

_YEAR = r"(?:[1-9]\d{3}|0[1-9]\d\d|00[1-9]\d|000[1-9])"
_LEAP = r"(?:0[48]|[2468][048]|[13579][26])"
_LEAP_YEAR = rf"(?:\d\d{_LEAP}|{_LEAP}00)"
_DAY = r"(?:0[1-9]|1\d|2[0-8])"
DATE = (
    rf"(?:{_YEAR}-(?:(?:0[1-9]|1[0-2])-{_DAY}|(?:0[13-9]|1[0-2])-(?:29|30)"
    rf"|(?:0[13578]|1[02])-31)|{_LEAP_YEAR}-02-29)"
)
_HOUR = r"(?:[01]\d|2[0-3])"
_MINUTE = r"[0-5]\d"
_FRACTION = r"(?:\.\d+)?"
TIME = rf"{_HOUR}:{_MINUTE}:{_MINUTE}{_FRACTION}(?:[Zz]|[+-]{_HOUR}:{_MINUTE})"


def _leap_minutes() -> str:
    """Times of second 60 whose minutes and offset's minutes make it xx:59:60 in UTC."""
    forms = [rf"59:60{_FRACTION}[Zz]"]
    for minute in range(60):
        # Local = UTC + offset, so 59 + offset = minute (mod 60), and 59 - offset for "-".
        plus, minus = (minute + 1) % 60, 59 - minute
        offset = rf"(?:\+{_HOUR}:{plus:02}|-{_HOUR}:{minus:02})"
        forms.append(rf"{minute:02}:60{_FRACTION}{offset}")
    return rf"{_HOUR}:(?:{'|'.join(forms)})"


def _leap_hours() -> str:
    """Times of second 60 whose hours and offset's hours make it 23:xx:60 in UTC."""
    forms = [rf"23:{_MINUTE}:60{_FRACTION}[Zz]"]
    for hour in range(24):
        carried = (hour + 1) % 24
        forms.append(
            rf"{hour:02}:(?:59:60{_FRACTION}\+{carried:02}:00"
            rf"|{_MINUTE}:60{_FRACTION}"
            rf"(?:\+{hour:02}:(?:0[1-9]|[1-5]\d)|-{23 - hour:02}:{_MINUTE}))"
        )
    return rf"(?:{'|'.join(forms)})"


def _date_time(before: str) -> Language:
    minutes, hours = _whole(before + _leap_minutes()), _whole(before + _leap_hours())
    return _whole(before + TIME) | (minutes & hours)


def _duration() -> str:
    """RFC 3339, appendix A: units in order, none left out between two."""
    time = r"T(?:\d+H(?:\d+M(?:\d+S)?)?|\d+M(?:\d+S)?|\d+S)"
    date = r"(?:\d+Y(?:\d+M(?:\d+D)?)?|\d+M(?:\d+D)?|\d+D)"
    return rf"P(?:{date}(?:{time})?|{time}|\d+W)"


_LETTER, _INNER = "[A-Za-z0-9]", "[A-Za-z0-9-]"
# At most 63 characters, hyphens inside only, not in both the third and the fourth place.
_LABEL = (
    rf"{_LETTER}(?:{_LETTER}|{_INNER}(?:{_LETTER}(?:{_INNER}{{0,59}}{_LETTER})?"
    rf"|-{_LETTER}(?:{_INNER}{{0,58}}{_LETTER})?))?"
)
HOSTNAME = rf"{_LABEL}(?:\.{_LABEL})*"
LONGEST_HOSTNAME = 253


def _email() -> Language:
    """RFC 5321, section 4.1.2, with the lengths of 4.5.3.1."""
    word = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\-]+"
    local = rf"(?:{word}(?:\.{word})*|\"(?:[ !#-\[\]-~]|\\[ -~])*\")"
    domain = rf"(?:{HOSTNAME}|\[(?:{IPV4}|[Ii][Pp][Vv]6:{IPV6})\])"
    lengths = rf".{{1,64}}@[^@]{{1,{LONGEST_HOSTNAME}}}"
    return _whole(f"{local}@{domain}") & _whole(lengths)


def _uri() -> tuple[str, str]:
    """RFC 3986, appendix A: (URI, URI-reference)."""
    escaped = "%[0-9A-Fa-f]{2}"
    plain = r"A-Za-z0-9\-._~!$&'()*+,;="
    char = rf"(?:[{plain}:@]|{escaped})"
    unescaped_at = rf"(?:[{plain}@]|{escaped})"
    literal = rf"\[(?:{IPV6}|[Vv][0-9A-Fa-f]+\.[{plain}:]+)\]"
    host = rf"(?:{literal}|(?:[{plain}]|{escaped})*)"
    authority = rf"(?:(?:[{plain}:]|{escaped})*@)?{host}(?::\d*)?"
    segments = rf"(?:/{char}*)*"
    absolute = rf"/(?:{char}+{segments})?"
    tail = rf"(?:\?(?:{char}|[/?])*)?(?:#(?:{char}|[/?])*)?"
    full = rf"[A-Za-z][A-Za-z0-9+.\-]*:(?://{authority}{segments}|{absolute}|{char}+{segments}|)"
    relative = rf"(?://{authority}{segments}|{absolute}|{unescaped_at}+{segments}|)"
    return f"{full}{tail}", f"(?:{full}|{relative}){tail}"


def _whole(text: str) -> Language:
    return pattern(text, dialect="ecma", search=False)


@lru_cache(32)
def formatted(name: str) -> Language | None:
    """The strings of a format; None if it is not one that is enforced."""
    match name:
        case "date":
            return _whole(DATE)
        case "time":
            return _date_time("")
        case "date-time":
            return _date_time(f"{DATE}[Tt]")
        case "duration":
            return _whole(_duration())
        case "email":
            return _email()
        case "hostname":
            return _whole(HOSTNAME) & length(1, LONGEST_HOSTNAME)
        case "ipv4":
            return _whole(IPV4)
        case "ipv6":
            return _whole(IPV6)
        case "uri":
            return _whole(_uri()[0])
        case "uri-reference":
            return _whole(_uri()[1])
        case "uuid":
            return _whole("[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
    return None
