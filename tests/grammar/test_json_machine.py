"""`JsonMachine` on hand-made normal forms: what it accepts and refuses, byte by byte."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from logitkit.errors import GrammarError
from logitkit.grammar import strings
from logitkit.grammar.json_schema.types import (
    NEVER,
    Array,
    Boolean,
    Contains,
    Literal,
    Null,
    Number,
    Object,
    String,
)
from logitkit.grammar.machine import Call, Return, Step
from tests.grammar.json_walks import machine_of
from tests.grammar.toy import Slow, SlowMachine, toy_vocabulary

INTEGER = Number(True)
QUOTE = ord('"')
ANY_VALUE = (Null(), Boolean(), Number(False), String(strings.ANY), Array(), Object())


def check(machine: SlowMachine, yes: list[str], no: list[str]) -> None:
    for text in yes:
        assert machine.accepts(text.encode()), f"refused: {text}"
    for text in no:
        assert not machine.accepts(text.encode()), f"accepted: {text}"


def prefixes(machine: SlowMachine, alive: list[str], dead: list[str]) -> None:
    for text in alive:
        assert machine.prefix_alive(text.encode()), f"dead: {text}"
    for text in dead:
        assert not machine.prefix_alive(text.encode()), f"alive: {text}"


def offered(machine: SlowMachine, text: bytes) -> set[int]:
    """The bytes that the machine says may follow `text`."""
    at = machine.run(text)
    assert at is not None
    moves = machine.expand(at.key).moves
    return {byte for low, high, _ in moves for byte in range(low, high + 1)}


def call(machine: SlowMachine, text: bytes) -> Call:
    """The only call that may follow `text`."""
    at = machine.run(text)
    assert at is not None
    (found,) = (move for _, _, move in machine.expand(at.key).moves if isinstance(move, Call))
    return found


def test_any_value_is_json_and_nothing_else() -> None:
    check(
        machine_of(*ANY_VALUE, n1=ANY_VALUE),
        [
            "null",
            "true",
            "-1.5e+3",
            "0",
            '"a\\u0041"',
            "[]",
            "[1, 2,[3],{}]",
            "[ ]",
            "{\n}",
            '{"a":{"b" : [null]},\n  "c":1}',
            '{"":""}',
        ],
        [
            "nul",
            "truefalse",
            "[1,]",
            "{,}",
            '{"a"}',
            '{"a":1,}',
            " 1",
            "1 ",
            "1.",
            "01",
            "[1 2]",
            "[1  ]",
            "",
            "'a'",
            '{"a" 1}',
            "[[]",
            "[\n\n1]",
        ],
    )


def test_whitespace_of_the_default_is_bounded() -> None:
    machine = machine_of(Array(), n1=INTEGER)
    ok = [f"[{space}1{space},1]" for space in ("", " ", "\n", "\n" + 20 * " ", "\n \t")]
    check(machine, ok, ["[  1]", "[\t1]", "[\n" + 21 * " " + "1]", "[\n\n1]", "[ \n1]", "[\r1]"])


def test_compact_and_any_whitespace() -> None:
    check(machine_of(Object(), n1=INTEGER, whitespace="compact"), ['{"a":1}'], ['{"a": 1}', "{ }"])
    loose = ["{ \r\n\t }", '{\n\n"a"  :  1  ,"b":2 }']
    check(machine_of(Object(), n1=INTEGER, whitespace="any"), loose, ['{"a":1} ', " {}"])


@pytest.mark.parametrize("indent", [0, 1, 4])
def test_an_indent_is_what_json_dumps_writes(indent: int) -> None:
    machine = machine_of(*ANY_VALUE, n1=ANY_VALUE, whitespace=indent)
    value = {"a": [1, [], {}, {"b": None}], "c": {"d": "x"}, "e": [[2]]}
    text = json.dumps(value, indent=indent)
    wrong = [json.dumps(value), text.replace("[]", "[ ]"), text.replace(": ", ":"), text + "\n"]
    check(machine, [text, "{}", "[]", "3"], [*wrong, "{\n}", text.replace("\n", "\n ", 1)])


def test_members_come_in_declared_order_if_all_are_known() -> None:
    names = (("b", 3), ("a", 4), ("c", 3))
    obj = Object(names, frozenset("abc"), additional=NEVER)
    machine = machine_of(obj, n3=INTEGER, n4=Boolean())
    check(
        machine,
        ['{"b":1,"a":true,"c":2}', '{ "b": -7 , "a":false,\n"c":0}'],
        ["{}", '{"b":1,"a":true}', '{"a":true,"b":1,"c":2}', '{"b":true,"a":true,"c":2}'],
    )
    assert offered(machine, b'{"') == {ord("b")}  # keys are forced


def test_optional_members_come_in_any_order_and_only_once() -> None:
    obj = Object((("a", 3), ("b", 4), ("c", 3)), frozenset("b"), additional=NEVER)
    check(
        machine_of(obj, n3=INTEGER, n4=Boolean()),
        ['{"b":true}', '{"a":1,"b":true}', '{"c":1,"b":true,"a":2}'],
        ["{}", '{"a":1}', '{"b":true,"b":true}', '{"b":true,"d":1}', '{"a":1,"a":1,"b":true}'],
    )


def test_a_declared_name_never_comes_back_as_an_undeclared_one() -> None:
    obj = Object((("ab", 3), ("abc", 4), ("no", NEVER)), frozenset({"abc"}), additional=5)
    machine = machine_of(obj, n3=INTEGER, n4=Boolean(), n5=Null())
    check(
        machine,
        [
            '{"ab":1,"abc":true}',
            '{"x":null,"abc":false,"abcd":null,"a":null,"":null}',
            '{"abc":true,"ab":1}',
            '{"abc":true,"n":null,"nop":null}',
        ],
        [
            '{"ab":null,"abc":true}',
            '{"abc":null}',
            '{"x":1,"abc":true}',
            '{"abc":true,"no":null}',
            '{"a\\u0062":null,"abc":true}',
            '{"abc":true,"abc":true}',
        ],
    )
    assert QUOTE in offered(machine, b'{"ab":1,"abc') and QUOTE in offered(machine, b'{"n')
    for text in (b'{"ab":1,"ab', b'{"no'):
        assert QUOTE not in offered(machine, text)


def test_patterns_that_only_match_declared_names_offer_nothing() -> None:
    patterns = ((strings.literals(["a"]), 4),)
    obj = Object((("a", 3),), patterns=patterns, additional=NEVER)
    machine = machine_of(obj, n3=INTEGER, n4=Null())
    prefixes(machine, ['{"a":1}'], ['{"a":1,', '{"a":null'])


def test_patterns_decide_the_value_of_undeclared_keys() -> None:
    words = strings.literals
    patterns = ((words(["a", "ab", "c"]), 4), (words(["d"]), NEVER))
    obj = Object((("a", 3),), patterns=patterns, additional=NEVER)
    machine = machine_of(obj, n3=INTEGER, n4=Null())
    check(machine, ['{"a":1,"ab":null}', '{"c":null}', "{}"], ['{"a":null}', '{"ab":1}'])
    prefixes(machine, ['{"a', '{"c'], ['{"b', '{"d', '{"ac', '{"abc'])


def test_patterns_without_a_value_are_not_offered_though_others_are() -> None:
    patterns = ((strings.pattern("^x"), NEVER), (strings.pattern("z$"), 4))
    machine = machine_of(Object(patterns=patterns, additional=3), n3=INTEGER, n4=Null())
    check(machine, ['{"a":1,"z":null}', '{"":1}'], ['{"z":1}', '{"a":null}'])
    prefixes(machine, ['{"a', '{"z'], ['{"x'])


def test_property_names_hold_for_all_keys() -> None:
    obj = Object((("a", 3), ("bb", 3)), names=strings.length(2, 3), additional=3)
    machine = machine_of(obj, n3=INTEGER)
    check(machine, ['{"bb":1,"xyz":2}', "{}"], ['{"a":1}', '{"x":1}', '{"wxyz":1}'])


def test_objects_of_a_union_run_side_by_side() -> None:
    first = Object((("k", 5), ("a", 3)), frozenset("ka"), additional=NEVER)
    second = Object((("k", 6), ("a", 4)), frozenset("k"), additional=NEVER)
    machine = machine_of(
        first, second, n3=INTEGER, n4=Boolean(), n5=Literal('"x"'), n6=Literal('"xy"')
    )
    check(
        machine,
        ['{"k":"x","a":1}', '{"k":"xy"}', '{"k":"xy","a":true}'],
        ['{"k":"x"}', '{"k":"x","a":true}', '{"k":"xy","a":1}'],
    )


def test_a_name_declared_by_one_object_is_an_undeclared_key_of_another() -> None:
    first = Object((("a", 3),), frozenset("a"), additional=NEVER)
    second = Object((("b", 4),), frozenset("b"), additional=4)
    machine = machine_of(first, second, n3=INTEGER, n4=Null())
    check(
        machine,
        ['{"a":1}', '{"b":null,"a":null}', '{"a":null,"b":null,"x":null}'],
        ['{"a":null}', '{"a":1,"b":null}', '{"b":1}', "{}"],
    )


def test_literals_of_all_kinds() -> None:
    texts = ['{"a":[1,{"b":null}],"c":"\\n"}', "[]", "{}", "12", "-0.5", "true", "null", '"é\\""']
    machine = machine_of(*map(Literal, texts))
    spaced = '{ "a": [ 1,\n{"b" :null} ], "c":"\\n"}'
    check(machine, [*texts, spaced, "[ ]"], ["1", "[1]", '{"c":"\\n"}', '"é"', "false", "123"])


def test_counts_of_members_leave_no_dead_end() -> None:
    names = (("a", 3), ("b", 3), ("c", 3))
    obj = Object(names, additional=NEVER, min_properties=2, max_properties=2)
    machine = machine_of(obj, n3=INTEGER)
    yes = ['{"a":1,"b":1}', '{"c":1,"a":1}', '{"b":1,"c":1}']
    check(machine, yes, ["{}", '{"a":1}', '{"a":1,"b":1,"c":1}'])
    prefixes(machine, ['{"a":1,'], ['{"a":1}', '{"a":1,"b":1,'])
    none = Object(names, additional=NEVER, min_properties=3, max_properties=2)
    prefixes(machine_of(none, Null(), n3=INTEGER), ["n"], ["{"])
    full = Object(names, frozenset("c"), additional=NEVER, max_properties=1)
    prefixes(machine_of(full, n3=INTEGER), ['{"c'], ['{"a', '{"b'])


def test_one_undeclared_member_counts_towards_the_minimum() -> None:
    obj = Object((("a", 3),), additional=3, min_properties=2)
    machine = machine_of(obj, n3=INTEGER)
    check(machine, ['{"a":1,"x":1}', '{"x":1,"a":1}'], ["{}", '{"a":1}', '{"x":1,"x":2}'])


def test_clauses_over_names_hold_and_leave_no_dead_end() -> None:
    # a implies c; b or c. With c at the end of what is offered, a without c must not end.
    clauses = (frozenset({("a", False), ("c", True)}), frozenset({("b", True), ("c", True)}))
    obj = Object((("a", 3), ("b", 3), ("c", 3)), additional=NEVER, clauses=clauses)
    machine = machine_of(obj, n3=INTEGER)
    yes = ['{"b":1}', '{"c":1}', '{"a":1,"c":1}', '{"b":1,"a":1,"c":1}']
    check(machine, yes, ["{}", '{"a":1}', '{"a":1,"b":1}'])
    never = (frozenset({("a", False), ("b", False)}),)
    apart = Object((("a", 3), ("b", 3)), additional=NEVER, clauses=never)
    prefixes(machine_of(apart, n3=INTEGER), ['{"a":1', '{"b":1'], ['{"a":1,', '{"b":1,'])


def test_clauses_together_with_a_maximum() -> None:
    clauses = (frozenset({("a", False), ("b", True)}), frozenset({("c", False), ("d", True)}))
    names = tuple((name, 3) for name in "abcd")
    obj = Object(names, additional=NEVER, clauses=clauses, max_properties=2)
    machine = machine_of(obj, n3=INTEGER)
    check(machine, ["{}", '{"a":1,"b":1}', '{"b":1,"d":1}'], ['{"a":1}', '{"a":1,"d":1}'])
    prefixes(machine, ['{"d":1,"b'], ['{"d":1,"a', '{"d":1,"b":1,'])


def test_the_last_undeclared_member_fits_some() -> None:
    some = ((strings.literals(["x", "y"]), 4),)
    obj = Object((("a", 3),), additional=3, max_properties=2, some=some)
    machine = machine_of(obj, n3=INTEGER, n4=Number(True, minimum=Decimal(5)))
    check(
        machine,
        ['{"x":5}', '{"x":4,"y":7}', '{"z":1,"x":5}', '{"a":1,"x":55}'],
        ["{}", '{"a":1}', '{"x":4}', '{"x":5,"z":1}', '{"z":1,"x":5,"a":1}'],
    )
    prefixes(machine, ['{"a":1,"x', '{"z":1,"y'], ['{"a":1,"z', '{"z":1,"a', '{"x":5,"x":5,'])


def test_items_by_position() -> None:
    machine = machine_of(Array((3,), 4, 2, 4), n3=INTEGER, n4=Boolean())
    check(
        machine,
        ["[1,true]", "[1, true ,true,\nfalse]"],
        ["[]", "[1]", "[true]", "[1,2]", "[1,true,true,true,true]"],
    )
    prefixes(machine_of(Array((3,), NEVER), n3=INTEGER), ["[1", "[]"], ["[1,"])


def test_items_without_a_value_bound_the_length() -> None:
    with pytest.raises(GrammarError, match="no value"):
        machine_of(Array((3,), NEVER, min_items=2), n3=INTEGER)


@pytest.mark.parametrize("horizon", [3, 40])
def test_large_bounds_of_items_are_exact(horizon: int) -> None:
    array = Array((3,), 4, 90, 2000)
    machine = machine_of(array, n3=INTEGER, n4=Boolean(), horizon=horizon)

    def text(count: int) -> str:
        return "[" + ",".join(["7", *["true"] * (count - 1)]) + "]"

    check(machine, [text(n) for n in (90, 91, 500, 1999, 2000)], [text(89), text(2001), text(1)])
    assert len(machine.expansions) < 12 * (200 + 4 * horizon)  # and not some per item


def test_unique_items_are_used_once() -> None:
    literals = tuple(map(Literal, ["1", '"a"', "null", "[2]"]))
    machine = machine_of(Array(rest=3, unique=True, min_items=2), n3=literals)
    check(machine, ['[1,"a"]', '["a",[2],1,null]'], ["[1]", "[1,1]", '["a",1,null,[2],1]'])
    prefixes(machine, ["[1,"], ['["a",1,null,[2],', "[1,1"])


def test_many_unique_items_are_told_apart() -> None:
    literals = tuple(Literal(str(i)) for i in range(10, 210))
    machine = machine_of(Array(rest=3, unique=True, min_items=199), n3=literals)
    every = list(map(str, range(10, 210)))
    for count, held in [(198, False), (199, True), (200, True)]:
        assert machine.accepts(f"[{','.join(every[:count])}]".encode()) == held
    assert not machine.prefix_alive(f"[{','.join(every)},".encode())
    assert not machine.prefix_alive(b"[10,20,10,")


def test_contains_is_counted() -> None:
    joined = {(3, 4): 4, (3, 5): 5}
    both, yes, no = (INTEGER, Boolean()), Boolean(), INTEGER
    two = Array(rest=3, contains=(Contains(4, 2),))
    check(
        machine_of(two, joined=joined, n3=both, n4=yes, n5=no),
        ["[true,1,false]", "[1,1,true,true,true,1]"],
        ["[]", "[1]", "[true]", "[1,true]"],
    )
    exact = Array(rest=3, max_items=3, contains=(Contains(4, 2, 2, 5),))
    machine = machine_of(exact, joined=joined, n3=both, n4=yes, n5=no)
    check(machine, ["[true,1,false]", "[true,true]"], ["[true,true,true]", "[1,true]"])
    prefixes(machine, ["[1,t", "[true,true,1"], ["[1,1", "[true,true,t"])


def test_two_contains_may_be_met_by_one_item() -> None:
    joined = {(3, 4): 4, (3, 5): 5, (4, 5): 6}
    contains = (Contains(4, 1), Contains(5, 1))
    machine = machine_of(
        Array(rest=3, max_items=1, contains=contains),
        joined=joined,
        n3=INTEGER,
        n4=Number(True, minimum=Decimal(3)),
        n5=Number(True, maximum=Decimal(4)),
        n6=Number(True, minimum=Decimal(3), maximum=Decimal(4)),
    )
    check(machine, ["[3]", "[4]"], ["[]", "[2]", "[5]", "[2,5]"])


def test_strings_of_several_kinds_share_the_quote() -> None:
    obj = Object((("s", 3),), frozenset("s"), additional=NEVER)
    languages = (String(strings.pattern("^a+$")), String(strings.length(2, 2)), Literal('"xyz"'))
    machine = machine_of(obj, n3=languages)
    yes = ['{"s":"aaaa"}', '{"s":"zz"}', '{"s":"z\\n"}', '{"s":"xyz"}']
    check(machine, yes, ['{"s":"z"}', '{"s":"xy z"}', '{"s":"aab"}', '{"s":""}'])


def test_free_strings_have_every_spelling_and_others_one() -> None:
    free = machine_of(String(strings.length(2, 2)), Literal("1"))
    check(free, ['"\\u007A/"', '"\\/\\u000a"', '"\\ud83d\\ude00\\n"'], ['"\\ud83da"', '"abc"'])
    bound = machine_of(String(strings.pattern("^z/\\n?$")))
    check(bound, ['"z/"', '"z/\\n"'], ['"\\u007a/"', '"z\\/"', '"z/\\u000a"'])
    assert offered(bound, b'"') == {ord("z")}
    both = machine_of(String(strings.ANY), Literal('"z"'))
    check(both, ['"\\u007a"', '"z"'], [])


def test_recursion_adds_no_states() -> None:
    tree = Object((("l", 2), ("r", 2)), frozenset(), additional=NEVER)
    machine = machine_of(tree, Null())
    text = b"null"
    for _ in range(30):
        text = b'{"l":' + text + b',"r":null}'
    assert machine.accepts(text)
    states = len(machine.expansions)
    assert machine.accepts(b'{"l":' * 100 + b"null" + b"}" * 100)
    assert len(machine.expansions) == states


def test_bodies_are_shared_by_all_places() -> None:
    leaf = String(strings.pattern("^[ab]{3}$"))
    obj = Object((("x", 3), ("y", 3)), frozenset("xy"), additional=NEVER)
    machine = machine_of(obj, n3=leaf)
    assert call(machine, b'{"x":').key == call(machine, b'{"x":"aaa","y":').key


def test_missing_bytes_are_escaped_or_left_out() -> None:
    vocabulary = toy_vocabulary(missing=b"\n\x20\xf0z")
    alphabet = vocabulary.context().alphabet
    obj = Object((("z😀", 3),), frozenset({"z😀"}), additional=NEVER)
    machine = machine_of(obj, n3=Literal('"a z"'), alphabet=alphabet)
    only = b'{"\\u007a\\ud83d\\ude00":"a\\u0020\\u007a"}'
    assert machine.accepts(only)
    at: Slow | None = machine.start
    for byte in only:
        assert at is not None and machine.alive_bytes(at) == [byte]
        at = machine.step(at, byte)


def test_a_vocabulary_that_cannot_spell_json_is_refused() -> None:
    alphabet = tuple(byte != ord("{") for byte in range(256))
    with pytest.raises(GrammarError, match=r"spells '\{'"):
        machine_of(INTEGER, alphabet=alphabet)
    without = tuple(byte != ord("\n") for byte in range(256))
    with pytest.raises(GrammarError, match="`whitespace`=2"):
        machine_of(INTEGER, whitespace=2, alphabet=without)


def test_resume_refuses_what_no_caller_wants() -> None:
    first = Object((("a", 3),), frozenset("a"), additional=NEVER)
    machine = machine_of(first, n3=INTEGER)
    assert machine.machine.resume(call(machine, b"{").site, frozenset()) is None


def test_moves_are_steps_calls_and_returns_only() -> None:
    machine = machine_of(*ANY_VALUE, n1=ANY_VALUE)
    machine.accepts(b'{"a":[1,"b",{"c":null}]}')
    for expansion in machine.expansions.values():
        assert all(isinstance(move, Step | Call | Return) for _, _, move in expansion.moves)
