"""Languages: set operations, lengths, decisions; and their bytes inside JSON strings and alone."""

from __future__ import annotations

import itertools
import json
import random
import re
import time

import interegular
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logitkit.errors import GrammarError
from logitkit.grammar import strings
from logitkit.grammar.machine import (
    JSON_TEXT,
    PLAIN_TEXT,
    Budget,
    Context,
    Expansion,
    Key,
    Return,
    Step,
)
from logitkit.grammar.spec import Regex
from logitkit.grammar.strings.charset import ALL, CharSet, Partition, chars
from logitkit.grammar.strings.decide import _completions, _small_pair

EVERY_BYTE = (True,) * 256


def _context(horizon: int = 8, alphabet: tuple[bool, ...] = EVERY_BYTE) -> Context:
    return Context(horizon, alphabet, Budget())


def _run(machine: object, data: bytes, token: int) -> tuple[Expansion, Key] | Return | None:
    """Feeds bytes in tokens of this size, landing after each, as the engine does."""
    key, counter = machine.start, 0
    for start in range(0, len(data), token):
        for byte in data[start : start + token]:
            move = next(
                (move for low, high, move in machine.expand(key).moves if low <= byte <= high), None
            )
            if move is None or isinstance(move, Return):
                return move
            assert isinstance(move, Step)
            key = move.key
            counter = counter + move.add if move.put is None else move.put
        limit = machine.expand(key).limit
        if limit is not None and counter >= limit:
            key, counter = machine.land(key, counter)
    return machine.expand(key), key


def _held(body: strings.StringBody, inside: bytes, token: int = 3) -> frozenset[int] | None:
    ended = _run(body, inside + b'"', token)
    return ended.tag if isinstance(ended, Return) else None


def _accepts(machine: strings.RegexMachine, data: bytes, token: int = 3) -> bool:
    ended = _run(machine, data, token)
    return isinstance(ended, tuple) and ended[0].final


def _regex(pattern: str, horizon: int = 8) -> strings.RegexMachine:
    return strings.build_regex(Regex(pattern), _context(horizon))


# -- languages


PATTERNS = ["^a", "b$", "^[ab]{2,3}$", "^(ab)*$", "a.*b", "^a{0,20}b?$", "", "^$", "c"]
LANGUAGES = [strings.pattern(pattern) for pattern in PATTERNS]
LANGUAGES += [strings.length(1, 2), strings.literals(["a", "ab", "abab", "c"]), strings.NONE]
SHORT = ["".join(letters) for n in range(5) for letters in itertools.product("abc", repeat=n)]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(LANGUAGES), st.sampled_from(LANGUAGES), st.sampled_from(LANGUAGES))
def test_operators_are_those_of_sets(
    a: strings.Language, b: strings.Language, c: strings.Language
) -> None:
    joined = ((a | ~b) & c) - (b & ~a)
    for text in SHORT:
        in_a, in_b, in_c = (strings.matches(each, text) for each in (a, b, c))
        assert strings.matches(joined, text) == (
            ((in_a or not in_b) and in_c) and not (in_b and not in_a)
        )


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(LANGUAGES), st.sampled_from(LANGUAGES))
def test_disjoint_languages_share_no_text(a: strings.Language, b: strings.Language) -> None:
    # Every pair of these languages that share a text share one of at most four letters a, b, c.
    shared = any(strings.matches(a, text) and strings.matches(b, text) for text in SHORT)
    assert strings.disjoint(a, b) == (not shared)
    assert strings.is_empty(a & b) == (not shared)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(PATTERNS), st.sampled_from(PATTERNS))
def test_small_automata_are_those_that_interegular_makes_itself(left: str, right: str) -> None:
    pair = _small_pair(strings.pattern(left), strings.pattern(right))
    if pair is None:
        return
    sides = [strings.pattern(text, search=False) for text in ("a*b", "(a|b)c?", "[^a]{1,3}")]
    for language, text in zip(sides, ("a*b", "(a|b)c?", "[^a]{1,3}"), strict=True):
        theirs = interegular.parse_pattern(text).to_fsm()
        for word in SHORT:
            assert strings.matches(language, word) == theirs.accepts(word)
    assert pair[0].isdisjoint(pair[1]) == strings.disjoint(
        strings.pattern(left), strings.pattern(right)
    )


def test_equal_languages_have_equal_hashes() -> None:
    a = strings.pattern("^a") & strings.length(1, 3)
    b = strings.length(1, 3) & strings.pattern("^a")
    assert a == b and hash(a) == hash(b)
    assert strings.literals(["b", "a"]) == strings.literal("a") | strings.literal("b")
    assert ~~a == a
    assert a - a == strings.NONE
    assert a | strings.ANY == strings.ANY
    assert strings.length(0, None) == strings.ANY
    assert strings.length(3, 2) == strings.NONE


def test_words_are_filtered_by_what_they_are_cut_with() -> None:
    words = strings.literals(["apple", "pear", "fig"])
    assert words & strings.length(4, None) == strings.literals(["apple", "pear"])
    assert words - strings.pattern("^p") == strings.literals(["apple", "fig"])


def test_lengths_count_code_points() -> None:
    language = strings.length(1, 2)
    assert [strings.matches(language, text) for text in ("", "é", "😀😀", "abc")] == [
        False,
        True,
        True,
        False,
    ]


def test_a_text_with_a_lone_surrogate_is_in_no_language() -> None:
    assert not strings.matches(strings.ANY, "a\ud800")
    assert strings.literals(["\ud800"]) == strings.NONE


@pytest.mark.parametrize(
    ("left", "right", "empty"),
    [
        ("^(ab)*$", (7, 7), True),
        ("^(ab)*$", (8, 8), False),
        ("^a*$", (10**8, 10**9), False),
        ("^a{5,7}$", (10**8, 10**9), True),
        ("^[a-z]{1,100000}$", (100_001, None), True),
        ("^[a-z]{1,100000}$", (100_000, None), False),
        ("^[a-z]+@[a-z]+$", (0, 2), True),
        ("^a*b{5}$", (41, 41), False),
        ("^a*b{5}$", (0, 4), True),
    ],
)
def test_emptiness_is_decided_through_counters(
    left: str, right: tuple[int, int | None], empty: bool
) -> None:
    start = time.monotonic()
    assert strings.is_empty(strings.pattern(left) & strings.length(*right)) is empty
    assert time.monotonic() - start < 1


def test_a_decision_that_takes_too_long_is_an_error_within_two_seconds() -> None:
    hard = strings.pattern("^(a|b)*a(a|b){18}$") - strings.pattern(
        "^(a|b)*a(a|b){18}$", search=False
    )
    other = strings.pattern("a(a|b){17}$") - strings.pattern("b(a|b){16}$")
    start = time.monotonic()
    try:
        strings.is_empty((hard & other) - strings.pattern("a[ab]{19}$"))
    except GrammarError as error:
        assert "simplify" in str(error)
    assert time.monotonic() - start < 4


def test_a_partition_tells_apart_what_its_sets_tell_apart() -> None:
    sets = [chars("abc"), chars("bcd"), CharSet(((0x62, 0x3FF),)), ALL]
    partition = Partition(sets)
    for low, high, bit in partition.segments:
        for point in (low, high):
            for charset in sets:
                assert bool(partition.masks[charset] & bit) == (point in charset)
    assert sum(high - low + 1 for low, high, _ in partition.segments) == 0x110000 - 0x800


# -- inside a JSON string


TEXTS = ["", "a", 'q"\\/', "\b\f\n\r\t\x00\x1f\x7f", "é\u07ff\u0800\uffff", "😀\U0010ffff", "abc"]


@pytest.mark.parametrize("text", TEXTS)
def test_the_canonical_spelling_is_taken_and_is_the_only_one(text: str) -> None:
    language = strings.literal(text)
    strict = strings.StringBody((language,), _context(), canonical=True)
    free = strings.StringBody((language, strings.ANY), _context(), canonical=False)
    inside = json.dumps(text, ensure_ascii=False)[1:-1].encode()
    assert _held(strict, inside) == frozenset({0})
    escaped = "".join(rf"\u{ord(c):04X}" if ord(c) < 0x10000 else c for c in text).encode()
    for spelling in (inside, json.dumps(text)[1:-1].encode(), escaped):
        assert _held(free, spelling) == frozenset({0, 1})
        if spelling != inside:
            assert _held(strict, spelling) is None


@pytest.mark.parametrize(
    "inside",
    [
        *(b"\n", b"\x00", rb"\x", rb"\u12g4", b"a\\"),
        *(rb"\ud800", rb"\udc00", rb"\ud800\n", rb"\ud800\u0041"),
        *(b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xff", b"\x80", b"\xe0\x80\x80"),
    ],
)
def test_what_is_no_json_string_is_refused(inside: bytes) -> None:
    body = strings.StringBody((strings.ANY,), _context(), canonical=False)
    assert _held(body, inside) is None


def test_an_escaped_solidus_and_surrogate_pairs_are_characters() -> None:
    body = strings.StringBody((strings.pattern("^[/😀]+$"),), _context(), canonical=False)
    assert _held(body, rb"\/\uD83d\uDe00/") == frozenset({0})
    assert _held(body, rb"\uD83D\uDE01") is None


def test_the_closing_quote_tells_which_languages_hold_the_value() -> None:
    languages = (
        strings.pattern("^a"),
        strings.pattern("b$"),
        strings.ANY - strings.literals(["ab", "abb"]),
        strings.length(1, 2),
    )
    body = strings.StringBody(languages, _context(), canonical=True)
    for text in SHORT:
        held = {i for i, language in enumerate(languages) if strings.matches(language, text)}
        assert _held(body, text.encode()) == (frozenset(held) or None)


def _spellings(body: strings.StringBody, most: int) -> set[bytes]:
    """Every complete string of at most this many bytes, checking that no state is a dead end."""
    found: set[bytes] = set()
    level = [(body.start, b"")]
    for _ in range(most + 1):
        following = []
        for key, read in level:
            moves = body.expand(key).moves
            assert moves, f"{read!r} leads nowhere"
            for low, high, move in moves:
                for byte in range(low, high + 1):
                    if isinstance(move, Return):
                        found.add(read)
                    else:
                        following.append((move.key, read + bytes([byte])))
        level = following
    return found


def test_only_what_the_alphabet_can_spell_is_offered() -> None:
    text = 'a\\"u0123c9\u00e9'.encode()
    alphabet = tuple(byte in text for byte in range(256))
    language = strings.pattern("^[aé\x04\x13\x1c#]$")
    body = strings.StringBody((language,), _context(alphabet=alphabet), canonical=False)
    # U+0004 would need the digit 4; U+0013, U+001C and U+0023 (the hash) have their digits.
    expected = {b"a", "é".encode(), rb"\u0013", rb"\u001c", rb"\u0023"}
    assert _spellings(body, 8) == expected
    unspelled = strings.StringBody((strings.literal("b"),), _context(alphabet=alphabet), True)
    assert unspelled.is_empty
    assert list(unspelled.expand(unspelled.start).moves) == []


def test_no_move_leads_to_a_dead_end() -> None:
    # SmolLM2 spells no byte 04, so this string can only go on with b.
    alphabet = tuple(byte != 0x04 for byte in range(256))
    language = strings.pattern("^(ab?c|b[\x04]c|bd)$") & strings.pattern("^.(?!c)")
    body = strings.StringBody((language,), _context(alphabet=alphabet), canonical=True)
    assert _spellings(body, 8) == {b"abc", rb"b\u0004c", b"bd"}
    plain = strings.RegexMachine(strings.pattern("^(ab|b\x04)$"), _context(alphabet=alphabet))
    ((low, high, _),) = plain.expand(plain.start).moves
    assert (low, high) == (ord("a"), ord("a"))
    raw = strings.RegexMachine(language, _context(alphabet=alphabet))
    ((low, high, _),) = _run(raw, b"b", 1)[0].moves
    assert (low, high) == (ord("d"), ord("d"))


# -- counters


@pytest.mark.parametrize("horizon", [1, 3, 8])
@pytest.mark.parametrize(
    ("pattern", "most"),
    [("a{20,60}", 64), ("(?:a{17,40}b){2}", 90), ("[ab]{0,50}c?", 54), ("a{30,}", 70)],
)
def test_a_counted_repeat_takes_what_re_takes(pattern: str, most: int, horizon: int) -> None:
    machine = _regex(pattern, horizon)
    expected = re.compile(pattern)
    for count in range(most):
        for text in ("a" * count, "a" * (count // 2) + "b" + "a" * (count // 2) + "b"):
            got = _accepts(machine, text.encode(), horizon)
            assert got == bool(expected.fullmatch(text)), text


@settings(max_examples=60, deadline=None)
@given(
    st.text("axy", max_size=5), st.text("aax", min_size=18, max_size=50), st.sampled_from([1, 4])
)
def test_a_repeat_that_is_entered_again_keeps_every_count_that_matters(
    before: str, run: str, token: int
) -> None:
    text, pattern = before + run, "[axy]*x[ax]{2,20}y?"
    assert _accepts(_regex(pattern, 4), text.encode(), token) == bool(re.fullmatch(pattern, text))


@pytest.mark.parametrize("horizon", [1, 6])
def test_two_counters_that_part_are_both_kept(horizon: int) -> None:
    language = strings.pattern(r"^([a-z]{0,40}\.)*$") & strings.length(0, 100)
    body = strings.StringBody((language,), _context(horizon), canonical=True)
    for labels in ([30, 30, 30], [40, 40], [41], [5, 41], [33, 33, 32], [20, 20, 20, 20, 20]):
        text = "".join("a" * size + "." for size in labels)
        held = _held(body, text.encode(), horizon) is not None
        assert held == (max(labels) <= 40 and len(text) <= 100)


WALKED = [
    strings.pattern("^[a-z]*@xyzxyz$") & strings.length(0, 60),
    strings.pattern("^a*b{15}$") & strings.length(100, 100),
    strings.pattern("^([a-z]+ )*$") & strings.length(30, 70),
    strings.pattern("^a{0,50}(b{3})*$") & strings.length(20, 64),
    strings.pattern("^a*(bb)*$") & strings.length(41, 41),
    strings.length(0, 80) - strings.pattern("^a{10,}$") - strings.pattern("b.{5}$"),
    strings.pattern("^a{0,90}$") & ~strings.length(30, 60),
]


@pytest.mark.parametrize("horizon", [1, 6])
@pytest.mark.parametrize("language", WALKED)
def test_walks_never_end_in_a_dead_end(language: strings.Language, horizon: int) -> None:
    body = strings.StringBody((language,), _context(horizon), canonical=True)
    draw = random.Random(horizon)
    for favourite in b"abz @":
        key, counter, read, chosen = body.start, 0, b"", b""
        while len(chosen) < 150:
            offered = {
                byte: move
                for low, high, move in body.expand(key).moves
                for byte in range(low, min(high, 0x7F) + 1)
            }
            assert offered, f"{chosen!r} leads nowhere"
            byte = favourite if favourite in offered else draw.choice(list(offered))
            move = offered[byte]
            if isinstance(move, Return):
                break
            key, read, chosen = move.key, read + bytes([byte]), chosen + bytes([byte])
            counter = counter + move.add if move.put is None else move.put
            if len(read) == horizon:
                limit, read = body.expand(key).limit, b""
                if limit is not None and counter >= limit:
                    key, counter = body.land(key, counter)
        if isinstance(move, Return):
            assert strings.matches(language, json.loads(f'"{chosen.decode()}"'))


@pytest.mark.parametrize("horizon", [1, 5])
def test_length_bounds_hold_beside_a_pattern(horizon: int) -> None:
    language = strings.pattern("^([ab]+ )*[ab]+@[ab]{2}$") & strings.length(30, 90)
    body = strings.StringBody((language,), _context(horizon), canonical=True)
    for count in range(100):
        text = ("ab " * 40)[:count].rstrip() + "@ab"
        held = 30 <= len(text) <= 90 and count > 0
        assert (_held(body, text.encode(), horizon) is not None) == held


def test_a_parity_that_a_length_rules_out_leaves_no_dead_end() -> None:
    language = strings.pattern("^a*(bb)*$") & strings.length(41, 41)
    body = strings.StringBody((language,), _context(4), canonical=True)
    key, counter = body.start, 0
    for _ in range(41):
        moves = body.expand(key).moves
        assert moves
        _, _, step = moves[-1]  # b where it is offered
        key = step.key
        counter = counter + step.add if step.put is None else step.put
        limit = body.expand(key).limit
        if limit is not None and counter >= limit:
            key, counter = body.land(key, counter)
    assert any(isinstance(move, Return) for _, _, move in body.expand(key).moves)


def test_a_huge_length_bound_costs_few_states() -> None:
    body = strings.StringBody((strings.length(0, 10**9),), _context(20), canonical=False)
    keys = {body.start}
    queue = [body.start]
    for key in queue:
        for _, _, move in body.expand(key).moves:
            if isinstance(move, Step) and move.key not in keys:
                keys.add(move.key)
                queue.append(move.key)
    assert len(keys) < 40
    assert _held(body, b"a" * 5_000, 20) == frozenset({0})


def test_a_character_split_between_tokens_lands_inside_it() -> None:
    machine = _regex("[^\n]{1,40}", horizon=5)
    for count, token in itertools.product((38, 39, 40, 41), (1, 3, 5)):
        assert _accepts(machine, "é".encode() * count, token) == (count <= 40)
    machine = _regex("[^è]{20,60}è", horizon=5)
    for count, token in itertools.product((19, 20, 54, 55, 56, 57, 60, 61), (1, 3, 5)):
        text = "é" * count + "è"
        assert _accepts(machine, text.encode(), token) == (20 <= count <= 60)


def test_determinising_is_lazy() -> None:
    start = time.monotonic()
    machine = _regex("(a|b)*a(a|b){30}")
    text = "abbab" * 20
    expected = bool(re.fullmatch("(a|b)*a(a|b){30}", text))
    assert _accepts(machine, text.encode()) == expected
    assert time.monotonic() - start < 2


# -- slices


@pytest.mark.parametrize(
    ("pattern", "slices", "room"),
    [
        (".*", JSON_TEXT | PLAIN_TEXT, None),
        ("[^\n]{1,100000}", JSON_TEXT | PLAIN_TEXT, None),
        ('[^"\\\\]*', JSON_TEXT, None),
        ("[ -~]*", 0, None),
        (".{1,5}", JSON_TEXT | PLAIN_TEXT, 5),
        (".{3,7}", JSON_TEXT | PLAIN_TEXT, 7),
        (".{1,8}", JSON_TEXT | PLAIN_TEXT, None),  # no token is longer than the horizon
        (".{3,20}x?", JSON_TEXT | PLAIN_TEXT, None),
        (".{5}x", 0, None),  # after five characters some text is taken and some is not
        (".{0,5}.{0,2}", JSON_TEXT | PLAIN_TEXT, 7),
        ('[^"\\\\]{6}', JSON_TEXT, 6),
        (".{6}\n*", JSON_TEXT | PLAIN_TEXT, 6),
        ("x.*", 0, None),
        ("(?s:.*)foo(?s:.*)", JSON_TEXT | PLAIN_TEXT, None),
    ],
)
def test_slices_are_promised_where_all_text_is_taken(
    pattern: str, slices: int, room: int | None
) -> None:
    machine = _regex(pattern)
    expansion = machine.expand(machine.start)
    assert (expansion.slices, expansion.room) == (slices, room)


def test_a_string_body_promises_json_text_until_its_bound_is_near() -> None:
    body = strings.StringBody((strings.length(0, 30),), _context(8), canonical=False)
    far = body.expand(body.start)
    assert far.slices == JSON_TEXT and far.limit == 22
    key, _ = body.land(body.start, 22)
    near = body.expand(key)
    assert (near.slices, near.limit, near.room) == (JSON_TEXT, None, None)


def test_an_impossible_regex_is_an_error() -> None:
    with pytest.raises(GrammarError, match="no text"):
        _regex("a(?!b)b")


def test_a_budget_bounds_the_nesting() -> None:
    context = Context(8, EVERY_BYTE, Budget(nesting=5))
    with pytest.raises(GrammarError, match="nesting"):
        strings.build_regex(Regex("((((((a))))))"), context)


def test_completions_are_found_through_lookaheads_and_complements() -> None:
    language = strings.pattern("^(?=.*[0-9])(?=.*[A-Z]).{8,}$") - strings.pattern("aaa")
    assert _completions(language).live(language)


@pytest.mark.parametrize("minimum", [0, 3])
def test_what_follows_an_intersection_is_what_derivation_says(minimum: int) -> None:
    for pattern in ["^(?:[^ab]+a){0,4}b?$", "[a-c]x|^é*$", "^(ab|b[^a]{2})*$"]:
        language = strings.pattern(pattern) & strings.length(minimum, 9)
        completions = _completions(language)
        states, seen = [language], {language}
        for state in states:
            rest = completions.spelled
            for mask, after in completions.after(state):
                while mask:
                    bit = mask & -mask
                    mask ^= bit
                    rest ^= bit
                    assert state.derive(completions.masks, bit) == after
                if after not in seen and len(seen) < 300:
                    seen.add(after)
                    states.append(after)
            while rest:  # nothing follows the others
                bit = rest & -rest
                rest ^= bit
                assert state.derive(completions.masks, bit) is strings.NONE


def test_what_a_length_leaves_no_room_for_is_dead() -> None:
    for pattern, shortest in [("^[ab]{5}c?$", 5), ("x.y", 3), ("^(ab|abc){2,3}$", 4)]:
        for most in range(8):
            language = strings.pattern(pattern) & strings.length(0, most)
            alive = language is not strings.NONE and _completions(language).live(language)
            assert alive == (most >= shortest)


def test_a_far_place_is_found_beside_a_pattern_that_searches() -> None:
    # Without it every length up to the bound has states of its own.
    language = strings.pattern("/api/v1/exports/[0-9]+/files") & strings.length(0, 10**6)
    body = strings.StringBody((language,), _context(20), canonical=True)
    assert body.expand(body.start).limit is not None


@pytest.mark.parametrize(
    ("pattern", "least", "most"),
    [
        ("^[ab]{2}c?$", 2, 3),
        ("^(a|bc){1,2}$", 1, 4),
        ("^$", 0, 0),
        ("^(a|b{3})(?!a)$", 1, 3),
        ("^ab*$", 1, None),
        ("a", 1, None),
    ],
)
def test_a_length_that_a_pattern_keeps_anyway_is_dropped(
    pattern: str, least: int, most: int | None
) -> None:
    language = strings.pattern(pattern)
    for low, high in itertools.product(range(5), (*range(1, 6), None)):
        both = language & strings.length(low, high)
        for text in SHORT:
            held = low <= len(text) and (high is None or len(text) <= high)
            assert strings.matches(both, text) == (held and strings.matches(language, text))
        within = high is None or (most is not None and most <= high)
        if low <= least and within and "?!" not in pattern:
            assert both == language
