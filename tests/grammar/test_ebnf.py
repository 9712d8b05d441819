"""EBNF: what is read, what is refused and where, and that states do not multiply."""

from __future__ import annotations

import time

import pytest
from toy import SlowMachine, ToyVocabulary, toy_vocabulary

from logitkit.errors import GrammarError
from logitkit.grammar.ebnf import build
from logitkit.grammar.machine import JSON_TEXT, PLAIN_TEXT, Budget, Step
from logitkit.grammar.spec import Ebnf

VOCABULARY = toy_vocabulary()


def slow(text: str, root: str = "root", vocabulary: ToyVocabulary = VOCABULARY) -> SlowMachine:
    return SlowMachine(build(Ebnf(text, root), vocabulary.context()))


def error_of(text: str, root: str = "root", budget: Budget | None = None) -> GrammarError:
    with pytest.raises(GrammarError) as caught:
        build(Ebnf(text, root), VOCABULARY.context(budget))
    return caught.value


@pytest.mark.parametrize(
    ("text", "accepted", "refused"),
    [
        ('root ::= "a" | "bc"', ["a", "bc"], ["", "b", "abc"]),
        ('root ::= "a" "b"\n  | "c"\n\n  "d" # more\nx ::= "e"', ["ab", "cd"], ["a", "cde"]),
        ('root ::= (\n "a"\n | "b" # or\n)+ "."', ["a.", "abba."], [".", "ab"]),
        ('root ::= | "a"', ["", "a"], ["aa"]),
        ('root ::= "a" | ', ["", "a"], ["aa"]),
        ('root ::= "a" ("" | "b") () "c"', ["ac", "abc"], ["ab"]),
        ('root ::= "a"* "b"+ "c"?', ["b", "aabbc"], ["a", "bcc"]),
        ('root ::= "a"{2} "b"{2,} "c"{,2} "d"{1,3}', ["aabbd", "aabbbccddd"], ["aabd", "aabbcccd"]),
        ('root ::= "x" "a"{0} "y" "b"{0,0} "z"', ["xyz"], ["xayz", "xybz"]),
        ('root ::= "a"{ 1 , 2 }', ["a", "aa"], ["", "aaa"]),
        ('root ::= ("a"+)? "b"', ["b", "aab"], ["a"]),
        ('root ::= "a"+? "b"', ["b", "ab", "aab"], ["a"]),
        ('root ::= "b" "a"??', ["b", "ba"], ["baa"]),
        ('root ::= "b" "a"++', ["ba", "baa"], ["b"]),
        ('root ::= x_1-y.z\nx_1-y.z ::= "a"', ["a"], ["b"]),
        ("root ::= [a-c^-] [^a-c] [-x] [x-]", ["a^-x", "-dx-"], ["aaxx", "dxxx"]),
        ("root ::= [^]", ["a", "日", "\n"], ["", "ab"]),
        ("root ::= .", ["a", "日", "😀", "\n"], ["", "ab"]),
        (r'root ::= "\n\t\r\\\"\'\x41\u00e9\U0001F600"', ["\n\t\r\\\"'Aé😀"], ["nt"]),
        (r"root ::= [\]\\\[\-\x61-c\n]", ["]", "\\", "[", "-", "b", "\n"], ["d", "x", "^"]),
        (r'root ::= "\x412"', ["A2"], ["A"]),
        (r"root ::= [\x85\u65e5]", ["\x85", "日"], ["\u65e6"]),
    ],
)
def test_syntax_means_what_it_says(text: str, accepted: list[str], refused: list[str]) -> None:
    machine = slow(text)
    assert [t for t in accepted if not machine.accepts(t.encode())] == []
    assert [t for t in refused if machine.accepts(t.encode())] == []


def test_another_root_may_be_named() -> None:
    assert slow('a ::= "x"\nb ::= a a', "b").accepts(b"xx")


def test_classes_are_canonical_utf8_only() -> None:
    machine = slow("root ::= [^a]")
    whole = slow(r"root ::= [\u0430-\u044f\u0800-\uFFFF]")
    for point in (0, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF):
        assert machine.accepts(chr(point).encode()), hex(point)
        assert whole.accepts(chr(point).encode()) == (0x800 <= point <= 0xFFFF)
    assert [c for c in "\u0430\u0431\u044f" if not whole.accepts(c.encode())] == []
    for bad in (b"\xc0\x80", b"\xc1\xbf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xff", b"\x80"):
        assert not machine.prefix_alive(bad), bad


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ('root ::= "a"\n  missing', "line 2, column 3", "'missing' is not defined"),
        ('root ::= "a"\nb ::= "x"\n\nb ::= "y"', "line 4, column 1", "'b' is defined twice"),
        ('root ::= "abc\nb ::= "x"', "line 1, column 10", "literal is never closed"),
        ('root ::= "abc', "line 1, column 10", "literal is never closed"),
        ("root ::= a [abc\na ::= [a]", "line 1, column 12", "class is never closed"),
        (r'root ::= "a\q"', "line 1, column 12", r"unknown escape '\\q'"),
        (r"root ::= [\d]", "line 1, column 11", r"unknown escape '\\d'"),
        (r'root ::= "\x4"', "line 1, column 11", "2 hexadecimal digits"),
        (r'root ::= "\uD83D"', "line 1, column 11", "surrogate"),
        (r'root ::= "\U00110000"', "line 1, column 11", "U+10FFFF"),
        ("root ::= [z-a]", "line 1, column 11", "wrong way round"),
        ("root ::= []", "line 1, column 10", "empty class"),
        ('root ::= ("a" | "b"', "line 1, column 10", "never closed"),
        ('root ::= ("a"\nb ::= "b")', "line 1, column 10", "never closed"),
        ('root ::= "a")', "line 1, column 13", "closes no group"),
        ("root ::= *", "line 1, column 10", "repeats nothing"),
        ('root ::= "a" | {2}', "line 1, column 16", "repeats nothing"),
        ('root ::= "a"{3,2}', "line 1, column 13", "wrong way round"),
        ('root ::= "a"{}', "line 1, column 13", "{m,n}"),
        ('root ::= "a"{x}', "line 1, column 13", "{m,n}"),
        ('root ::= "a" b ::= "c"', "line 1, column 14", "line of its own"),
        ('root : "a"', "line 1, column 5", "expected `::=`"),
        ('= "a"', "line 1, column 1", "expected a rule"),
        ("# nothing\n", "line 1, column 1", "no rules"),
        ('root ::= "a" <[12]>', "line 1, column 14", "token literals"),
        ('root ::= !<[12]> "a"', "line 1, column 10", "token literals"),
        ("root ::= Token(12)", "line 1, column 10", "macro Token"),
        ('root ::= "a" (= "b")', "line 1, column 14", "lookahead"),
        ('root[max_tokens=3] ::= "a"', "line 1, column 5", "attributes"),
        ("root ::= 'a'", "line 1, column 10", 'unexpected "\'"'),
    ],
)
def test_errors_say_line_and_column(text: str, where: str, message: str) -> None:
    error = error_of(text)
    assert error.where == where
    assert message in str(error)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("root ::= root", "no text can be derived"),
        ('root ::= "a" x\nx ::= "b" x', "no text can be derived"),
        ('root ::= ""', "only the empty text"),
        ('root ::= x*\nx ::= () ""', "only the empty text"),
        ('first ::= "a"', "'root' is not defined"),
    ],
)
def test_a_root_without_texts_is_an_error(text: str, message: str) -> None:
    assert message in str(error_of(text))


def test_rules_of_no_use_are_fine() -> None:
    machine = slow('root ::= "a" | "b" endless\nendless ::= "c" endless\nunused ::= "d" | unused')
    assert machine.accepts(b"a")
    assert not machine.prefix_alive(b"b")


def test_bytes_that_no_token_spells_are_never_needed() -> None:
    poor = toy_vocabulary(missing=b"z\xa9")
    machine = slow('root ::= "a" "z"? [x-z]+ | "z" | "é" | "ab"', vocabulary=poor)
    assert machine.accepts(b"axy") and machine.accepts(b"ab")
    assert not machine.prefix_alive(b"az")
    assert not machine.prefix_alive(b"\xc3")
    assert machine.alive_bytes(machine.start) == [ord("a")]
    with pytest.raises(GrammarError, match="no token spells"):
        slow('root ::= "a" "z"', vocabulary=poor)


@pytest.mark.parametrize(
    ("text", "data", "states"),
    [
        ('root ::= root "a" | "b"', b"b" + b"a" * 300, 4),  # left
        ('root ::= o root "x" | "y"\no ::= "z"?', b"z" * 9 + b"y" + b"x" * 300, 16),  # hidden left
        ('root ::= "a" root | "b"', b"a" * 300 + b"b", 3),  # right
        ('root ::= root root | "a"', b"a" * 300, 3),  # ambiguous
        ('root ::= root root | "a" | ""', b"a" * 300, 3),
        ('root ::= root "+" root | root "*" root | "1"', b"1+1*" * 99 + b"1", 6),
        ('root ::= e\ne ::= s | p | "1"\ns ::= e "+" e\np ::= e "*" e', b"1+1*" * 99 + b"1", 6),
        ('root ::= "(" root ")" | "1"', b"(" * 300 + b"1" + b")" * 300, 8),  # nested
        ('root ::= root "+" root | "(" root ")" | "1"', b"1+(" * 99 + b"1" + b")" * 99, 16),
        ('root ::= b | "a" root\nb ::= root | "c"', b"a" * 300 + b"c", 4),  # a cycle of units
    ],
)
def test_recursion_does_not_multiply_states(text: str, data: bytes, states: int) -> None:
    machine = slow(text)
    assert machine.accepts(data)
    assert len(machine.expansions) <= states


def test_only_nesting_grammars_use_the_stack() -> None:
    regular = ['root ::= "a" root | "b"', 'root ::= root "a" | "b"', 'root ::= x x\nx ::= "a"+']
    nesting = ['root ::= "(" root ")" | "x"', 'root ::= a root a | "x"\na ::= "a"*']
    assert not any(slow(text).machine.has_stack for text in regular)
    assert all(slow(text).machine.has_stack for text in nesting)
    machine = slow(regular[2]).machine
    work, seen = [machine.start], {machine.start}
    while work:
        for _, _, move in machine.expand(work.pop()).moves:
            assert isinstance(move, Step)
            if move.key not in seen:
                seen.add(move.key)
                work.append(move.key)
    assert len(seen) <= 5


def test_a_nested_value_is_a_call_with_shared_states() -> None:
    machine = slow('root ::= "[" (root ("," root)*)? "]" | "1"')
    deep = machine.run(b"[[[[")
    assert deep is not None and len(deep.stack) == 3
    assert deep.key == machine.run(b"[[").key  # type: ignore[union-attr]
    assert machine.accepts(b"[[[[1,1],1,[]]],1]") and not machine.prefix_alive(b"[1]]")


def test_slices_are_promised_where_whole_characters_loop() -> None:
    machine = slow('root ::= "<" [^>\\x00-\\x1f]* ">" | "\\"" [^"\\\\\\x00-\\x1f]* "\\"" | "." .*')
    json_text = machine.expand(machine.run(b'"').key).slices  # type: ignore[union-attr]
    every = machine.expand(machine.run(b".").key).slices  # type: ignore[union-attr]
    tag = machine.expand(machine.run(b"<").key).slices  # type: ignore[union-attr]
    assert (json_text, every, tag) == (JSON_TEXT, JSON_TEXT | PLAIN_TEXT, 0)
    assert machine.expand(machine.start.key).slices == 0


def test_a_character_once_is_no_slice() -> None:
    assert slow("root ::= [^\\x00-\\x1f]").expand(slow("root ::= .").start.key).slices == 0


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        (f"root ::= {'(' * 60_000}" + '"a"' + ")" * 60_000, "nesting"),
        ('root ::= "a"{0,20000}', "repeats"),
        ('root ::= "a"{99999999999999999999999}', "repeats"),
        ("root ::= ([a-z]{1000}){1000}", "states"),
        (f'root ::= "{"a" * 1_000_000}"', "states"),
    ],
)
def test_what_is_too_large_is_refused_fast(text: str, budget: str) -> None:
    started = time.process_time()
    error = error_of(text)
    assert f"`{budget}`" in str(error)
    assert time.process_time() - started < 2


def test_long_chains_of_rules_need_no_deep_recursion() -> None:
    rules = [f'r{i} ::= r{i + 1} | "x" r{i} "y"' for i in range(800)]
    machine = slow("\n".join(["root ::= r0", *rules, 'r800 ::= "a" | r0 "z"']))
    assert machine.accepts(b"xxayy") and machine.accepts(b"azz") and not machine.accepts(b"xa")


def test_nested_groups_within_the_budget_are_read() -> None:
    assert slow("root ::= " + "(" * 900 + '"a"' + ")?" * 900).accepts(b"a")
    assert slow('root ::= "a"' + "*" * 60_000).accepts(b"aaa")
