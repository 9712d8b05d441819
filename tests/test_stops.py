"""Stop rules: at which token a request ends, why, and which text it leaves."""

from __future__ import annotations

import time

import pytest
from stop_tokenizers import BYTES, END, TOKENIZERS, ended, ids_of, params, walk

from logitkit.stops import Finish, StopRegexTimeout, StopRules

# -- tokens and length


def test_an_eos_id_ends_the_request_and_is_no_text() -> None:
    rules = StopRules(params(eos_token_ids=(5, 7)), BYTES)
    assert rules.push(BYTES.convert_tokens_to_ids("a")) is None
    assert rules.push(7) == Finish("eos", 7) == rules.finish
    assert rules.text == "a"


def test_a_stop_id_ends_the_request_and_is_no_text() -> None:
    word = BYTES.convert_tokens_to_ids("STOP")
    rules = StopRules(params(stop_token_ids=(word,)), BYTES)
    assert ended(rules, [*ids_of("ab"), word]) == (3, Finish("stop", word), "ab")


def test_ignore_eos_concerns_eos_only() -> None:
    rules = StopRules(params(eos_token_ids=(5,), stop_token_ids=(6,), ignore_eos=True))
    assert [rules.push(5), rules.push(5), rules.push(6)] == [None, None, Finish("stop", 6)]


def test_an_id_that_is_both_eos_and_stop_counts_as_eos() -> None:
    assert StopRules(params(eos_token_ids=(5,), stop_token_ids=(5,))).push(5) == Finish("eos", 5)


def test_length_is_the_weakest_reason() -> None:
    assert StopRules(params(max_new_tokens=2)).push(5) is None
    for fields, reason in (({"eos_token_ids": (5,)}, "eos"), ({"stop_token_ids": (5,)}, "stop")):
        assert StopRules(params(max_new_tokens=1, **fields)).push(5) == Finish(reason, 5)
    rules = StopRules(params(stop=("ab",), max_new_tokens=2), BYTES)
    assert ended(rules, ids_of("ab")) == (2, Finish("stop", "ab"), "")
    rules = StopRules(params(stop=("ac",), max_new_tokens=2), BYTES)
    assert ended(rules, ids_of("abc")) == (2, Finish("length", None), "ab")


def test_the_argument_replaces_the_field_max_new_tokens() -> None:
    rules = StopRules(params(max_new_tokens=9), max_new_tokens=2)
    assert [rules.push(1), rules.push(1)] == [None, Finish("length", None)]


def test_no_token_may_follow_the_end() -> None:
    rules = StopRules(params(max_new_tokens=1))
    rules.push(1)
    with pytest.raises(AssertionError, match="over"):
        rules.push(1)


def test_without_text_rules_nothing_is_decoded_and_a_push_is_cheap() -> None:
    rules = StopRules(params(eos_token_ids=(5,), stop_token_ids=(6,), max_new_tokens=20_000))
    assert not rules.needs_text
    start = time.perf_counter()
    for _ in range(10_000):
        rules.push(1)
    # 0.2 us a push on an idle core; the bound leaves room for busy ones.
    assert (time.perf_counter() - start) / 10_000 < 5e-6
    with pytest.raises(ValueError, match="`tokenizer` is an int without decode"):
        StopRules(params(stop=("x",)), 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tokenizer"):
        _ = rules.text


# -- strings


@pytest.mark.parametrize(
    ("stop", "text", "count", "matched", "left"),
    [
        # the stop string spans three tokens; the ids keep them, the text does not
        (("END",), "say END now", 7, "END", "say "),
        (("\n\n",), "a\nb\n\nc", 5, "\n\n", "a\nb"),
        # a near miss before the hit
        (("aab",), "aaab", 4, "aab", "a"),
        # both are complete at the same token: the one that starts first
        (("cd", "bcd"), "abcd", 4, "bcd", "a"),
        # "bc" is complete a token before "abcd"
        (("abcd", "bc"), "abcd", 3, "bc", "a"),
        (("€",), "1 €.", 5, "€", "1 "),
        (("😀!",), "x😀!y", 6, "😀!", "x"),
    ],
)
def test_a_stop_string_cuts_the_text_where_it_begins(
    stop: tuple[str, ...], text: str, count: int, matched: str, left: str
) -> None:
    rules = StopRules(params(stop=stop), BYTES)
    assert rules.needs_text
    assert ended(rules, ids_of(text)) == (count, Finish("stop", matched), left)


def test_of_strings_that_start_together_the_shortest_wins() -> None:
    word = BYTES.convert_tokens_to_ids("STOP")
    rules = StopRules(params(stop=("STOP", "STO", "TOP")), BYTES)
    assert ended(rules, [word]) == (1, Finish("stop", "STO"), "")


def test_a_stop_string_inside_one_token_cuts_inside_it() -> None:
    word = BYTES.convert_tokens_to_ids("STOP")
    rules = StopRules(params(stop=("TO",)), BYTES)
    assert ended(rules, [*ids_of("a"), word]) == (2, Finish("stop", "TO"), "aS")


def test_a_character_that_lacks_bytes_is_not_searched() -> None:
    # Bytes E2 82 show as a replacement character until AC makes them a euro sign.
    rules = StopRules(params(stop=("\ufffd", "€")), BYTES)
    assert ended(rules, ids_of("a€")) == (4, Finish("stop", "€"), "a")


def test_uncut_text_is_all_that_the_ids_decode_to() -> None:
    rules = StopRules(params(stop=("zzz",), max_new_tokens=3), BYTES)
    ids = ids_of("a€")[:3]
    assert ended(rules, ids) == (3, Finish("length", None), "a\ufffd")


def test_a_special_token_as_stop_string_ends_at_the_token_and_when_spelled_out() -> None:
    rules = StopRules(params(stop=(END,)), BYTES)
    assert ended(rules, ids_of(f"ab{END}c")) == (3, Finish("stop", END), "ab")
    spelled = [token for char in END for token in ids_of(char)]
    rules = StopRules(params(stop=(END,)), BYTES)
    assert ended(rules, [*ids_of("ab"), *spelled]) == (9, Finish("stop", END), "ab")


def test_special_tokens_inside_the_text_are_invisible_to_stop_strings() -> None:
    rules = StopRules(params(stop=("ab",)), BYTES)
    assert ended(rules, ids_of(f"xa{END}bc")) == (4, Finish("stop", "ab"), "x")


def test_a_special_token_mixed_with_text_is_refused_with_the_remedy() -> None:
    with pytest.raises(ValueError, match=rf"`stop`.*stop_token_ids=\[{BYTES.eos_token_id}\]"):
        StopRules(params(stop=(f"\n{END}",)), BYTES)


def test_a_stop_string_may_span_more_tokens_than_are_kept_decoded() -> None:
    stop = "".join(chr(ord("A") + i % 26) for i in range(60))
    rules = StopRules(params(stop=(stop,)), BYTES)
    assert ended(rules, ids_of(f"say {stop} now")) == (64, Finish("stop", stop), "say ")


def test_ids_without_text_do_not_swallow_the_space_behind_them() -> None:
    tokenizer = TOKENIZERS["metaspace"]
    a, the, unknown = 4, 1, len(tokenizer)
    rules = StopRules(params(stop=("a the",)), tokenizer)
    assert ended(rules, [a] * 9 + [unknown] * 30 + [the]) == (40, Finish("stop", "a the"), "a" * 8)


def test_a_character_may_be_split_by_any_number_of_ids_without_text() -> None:
    *first, last = ids_of("aaaaab😀")
    for filler in range(20):
        rules = StopRules(params(stop=("b😀",)), BYTES)
        ids = [*first, *[len(BYTES)] * filler, last]
        assert ended(rules, ids) == (filler + 10, Finish("stop", "b😀"), "aaaaa")


def test_a_space_that_goes_when_the_next_quote_comes_is_not_settled() -> None:
    # "b '" becomes "b''" with one quote more; ids without text fill the window before it.
    tokenizer = TOKENIZERS["word_piece"]
    quote, b, unknown = 8, 4, len(tokenizer)
    for filler in range(20):
        rules = StopRules(params(stop=("b''",)), tokenizer)
        ids = [b, *[unknown] * filler, quote, quote]
        assert ended(rules, ids) == (filler + 3, Finish("stop", "b''"), "")


def test_the_cut_is_taken_from_one_decode_of_all_ids() -> None:
    class Titled:
        """Looks at all ids at once: no window can follow it."""

        def decode(self, token_ids: list[int], skip_special_tokens: bool = False) -> str:
            text: str = BYTES.decode(token_ids, skip_special_tokens=skip_special_tokens)
            return f"[long] {text}" if len(token_ids) > 20 else text

    rules = StopRules(params(stop=("END",)), Titled())
    assert ended(rules, ids_of("x" * 30 + "END")) == (
        33,
        Finish("stop", "END"),
        "[long] " + "x" * 30,
    )


# -- regexes


@pytest.mark.parametrize(
    ("pattern", "text", "count", "left"),
    [
        (r"\d{3}-\d{2}", "call 123-45", 11, "call "),
        (r"\n\n$", "a\n\nb", 3, "a"),
        (r"a.*z", "1a23z", 5, "1"),
        (r"(?<=x)y", "yxy", 3, "yx"),
        # a lookahead is no part of the match and may be all of it
        (r"(?=b)", "ab", 2, "a"),
        (r"(?i)stop", "Do sToP", 7, "Do "),
    ],
)
def test_a_stop_regex_cuts_the_text_where_its_match_begins(
    pattern: str, text: str, count: int, left: str
) -> None:
    rules = StopRules(params(stop_regex=(pattern,)), BYTES)
    assert rules.needs_text
    assert ended(rules, ids_of(text)) == (count, Finish("stop", pattern), left)


def test_string_and_regex_at_one_token_go_by_where_they_start() -> None:
    rules = StopRules(params(stop=("c",), stop_regex=("bc",)), BYTES)
    assert ended(rules, ids_of("abc")) == (3, Finish("stop", "bc"), "a")
    rules = StopRules(params(stop=("bc",), stop_regex=("b.",)), BYTES)
    assert ended(rules, ids_of("abc")) == (3, Finish("stop", "bc"), "a")


def test_a_regex_without_end_raises_for_its_request_and_names_the_pattern() -> None:
    rules = StopRules(params(stop_regex=(r"(a|aa)+\d",)), BYTES, regex_time_limit=0.05)
    ids = ids_of("b" + "a" * 60)
    start = time.perf_counter()
    with pytest.raises(StopRegexTimeout, match=r"stop_regex.*\(a\|aa\)\+") as caught:
        walk(rules, ids)
    assert time.perf_counter() - start < 5  # without a limit: hours
    assert isinstance(caught.value, RuntimeError)
    assert caught.value.pattern == r"(a|aa)+\d"
    assert rules.finish is None
    assert rules.text == "b" + "a" * (caught.value.num_tokens - 1)


# -- min_new_tokens


def test_before_min_new_tokens_nothing_but_the_length_ends_the_request() -> None:
    ids = ids_of("STOP")
    for fields in ({"eos_token_ids": (ids[0],)}, {"stop_token_ids": (ids[0],)}, {"stop": ("S",)}):
        rules = StopRules(params(min_new_tokens=4, **fields), BYTES)
        assert ended(rules, ids) == (4, None, "STOP")
    rules = StopRules(params(min_new_tokens=4), BYTES, max_new_tokens=2)
    assert ended(rules, ids) == (2, Finish("length", None), "ST")


@pytest.mark.parametrize("field", ["stop", "stop_regex"])
def test_a_match_counts_when_it_ends_past_the_minimum(field: str) -> None:
    # "ab" is there within the first two tokens and does not count; the second one does.
    rules = StopRules(params(min_new_tokens=2, **{field: ("ab",)}), BYTES)
    assert ended(rules, ids_of("abab")) == (4, Finish("stop", "ab"), "ab")
    # One that begins before the border and ends behind it counts.
    rules = StopRules(params(min_new_tokens=3, **{field: ("ab",)}), BYTES)
    assert ended(rules, ids_of("abab")) == (4, Finish("stop", "ab"), "ab")


def test_a_match_before_the_minimum_hides_none_that_overlaps_it() -> None:
    rules = StopRules(params(min_new_tokens=3, stop_regex=("aba",)), BYTES)
    assert ended(rules, ids_of("ababa")) == (5, Finish("stop", "aba"), "ab")


def test_a_character_completed_past_the_minimum_counts() -> None:
    rules = StopRules(params(min_new_tokens=2, stop=("€",)), BYTES)
    assert ended(rules, ids_of("€")) == (3, Finish("stop", "€"), "")


# -- errors at the door


@pytest.mark.parametrize("field", ["stop", "stop_regex"])
def test_text_rules_without_a_tokenizer_are_refused(field: str) -> None:
    with pytest.raises(ValueError, match=f"`{field}`.*pass `tokenizer=`"):
        StopRules(params(**{field: ("x",)}))


def test_a_bad_regex_is_refused_with_pattern_and_position() -> None:
    with pytest.raises(ValueError, match=r"`stop_regex` 'a\(b'.*position 3"):
        StopRules(params(stop_regex=("a(b",)), BYTES)


@pytest.mark.parametrize("pattern", ["a*", "$", "x|"])
def test_a_regex_that_matches_the_empty_string_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="matches the empty string"):
        StopRules(params(stop_regex=(pattern,)), BYTES)
