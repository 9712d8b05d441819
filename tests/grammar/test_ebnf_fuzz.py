"""Random grammars and real ones: the machine agrees with a slow oracle on every text and prefix."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import pytest
from slow_earley import (
    Alt,
    Lit,
    Oracle,
    Ref,
    Rep,
    Rules,
    Seq,
    grammar_text,
    random_rules,
)
from toy import SlowMachine, toy_vocabulary

from logitkit.errors import GrammarError
from logitkit.grammar.ebnf import build
from logitkit.grammar.machine import JSON_TEXT, PLAIN_TEXT
from logitkit.grammar.spec import Ebnf

VOCABULARY = toy_vocabulary()
CONTEXT = VOCABULARY.context()
REAL = Path("/work/shared/data/gbnf")
PIECES = [b"a", b"b", b"ab", "é".encode(), "è".encode(), b"\xc3", b"c"]


def texts(machine: SlowMachine, random_: random.Random) -> list[bytes]:
    """Short texts, random ones, and walks through the machine."""
    found = [b"".join(t) for n in range(4) for t in itertools.product([b"a", b"b"], repeat=n)]
    for _ in range(6):
        found.append(b"".join(random_.choices(PIECES, k=random_.randint(3, 9))))
        at, walked = machine.start, b""
        while len(walked) < 12 and (alive := machine.alive_bytes(at)):
            walked += bytes([random_.choice(alive)])
            at = machine.run(walked[-1:], at)
        found.append(walked)
    return found


def check(rules: Rules, random_: random.Random, machine: SlowMachine) -> tuple[int, int]:
    """Compare with the oracle; how many texts there were, and how many ended inside a call."""
    found = texts(machine, random_)
    calls = 0
    for data in found:
        oracle = Oracle(rules, data)
        assert machine.accepts(data) == oracle.accepts(), (grammar_text(rules), data)
        assert machine.prefix_alive(data) == oracle.prefix_alive(), (grammar_text(rules), data)
        at = machine.run(data)
        calls += at is not None and bool(at.stack)
    return len(found), calls


A, B, C, EMPTY, ROOT, X, Y = *map(Lit, ("a", "b", "c", "")), Ref("root"), Ref("x"), Ref("y")
TRICKY: dict[str, Rules] = {
    "may end with its caller": {"root": Alt((Seq((A, ROOT, Rep(B, 0, 1))), C))},
    "ends with its caller inside brackets": {
        "root": Alt((Seq((A, X, B)), C)),
        "x": Alt((Seq((C, X, Rep(A, 0, 1))), ROOT, B)),
    },
    "dangling else": {"root": Alt((Seq((A, ROOT)), Seq((A, ROOT, B, ROOT)), C))},
    "hidden left": {"root": Alt((Seq((X, ROOT, B)), C)), "x": Alt((A, EMPTY))},
    "mutual left": {"root": Alt((X, Y, C)), "x": Seq((ROOT, A, ROOT)), "y": Seq((ROOT, B, ROOT))},
    "left in brackets": {"root": Alt((Seq((ROOT, A, ROOT)), Seq((B, ROOT, B)), C))},
    "palindromes": {"root": Alt((Seq((A, ROOT, A)), Seq((B, ROOT, B)), Rep(C, 0, 2)))},
    "a unit cycle": {"root": Alt((X, Seq((A, ROOT)))), "x": Alt((ROOT, Y)), "y": Alt((X, B))},
    "three ways": {"root": Alt((Seq((ROOT, ROOT, ROOT)), Seq((ROOT, ROOT)), A))},
    "two calls at one byte": {
        "root": Alt((Seq((X, C)), Seq((Y, C, C)))),
        "x": Alt((Seq((A, X, B)), Seq((A, B)))),
        "y": Alt((Seq((A, Y, B, B)), Seq((A, B)))),
    },
    "a list of brackets": {
        "root": Seq((A, Rep(Seq((X, Rep(Seq((C, X)), 0, None))), 0, 1), B)),
        "x": Alt((ROOT, C)),
    },
}


@pytest.mark.parametrize("name", TRICKY)
def test_tricky_grammars_agree_with_the_oracle(name: str) -> None:
    rules = TRICKY[name]
    machine = SlowMachine(build(Ebnf(grammar_text(rules)), CONTEXT))
    for seed in range(12):
        check(rules, random.Random(seed), machine)


@pytest.mark.parametrize("block", range(4))
def test_random_grammars_agree_with_the_oracle(block: int) -> None:
    calls = checked = 0
    for seed in range(60 * block, 60 * block + 60):
        random_ = random.Random(seed)
        rules = random_rules(random_, random_.randint(1, 5))
        text = grammar_text(rules)
        try:
            machine = SlowMachine(build(Ebnf(text), CONTEXT))
        except GrammarError as error:
            empty = not Oracle(rules, b"").finishes["root"]
            assert empty or "only the empty text" in str(error), text
            continue
        found = check(rules, random_, machine)
        checked += found[0]
        calls += found[1]
    assert checked > 600
    assert calls > 0  # the walks went through the engine's stack


def test_the_oracle_knows_a_few_languages() -> None:
    rules = {"root": Alt((Seq((Lit("a"), Ref("root"), Lit("b"))), Rep(Lit("c"), 1, 2)))}
    good = [b"c", b"cc", b"acb", b"aaccbb"]
    bad = [b"", b"a", b"ccc", b"acbb"]
    assert [t for t in good if not Oracle(rules, t).accepts()] == []
    assert [t for t in bad if Oracle(rules, t).accepts()] == []
    assert [Oracle(rules, t).prefix_alive() for t in (b"aac", b"ab", b"acbb")] == [
        True,
        False,
        False,
    ]


def real(name: str) -> SlowMachine:
    path = REAL / f"{name}.gbnf"
    if not path.exists():
        pytest.skip(f"{path} is absent: the shared grammars are not part of the repository")
    return SlowMachine(build(Ebnf(path.read_text("utf-8")), CONTEXT))


@pytest.mark.parametrize(
    ("name", "accepted", "refused"),
    [
        (
            "arithmetic",
            ["a=1\n", "x*(y1+2)/3 = 4\n", "a-((b))=c\nd=(e+1)\n"],
            ["a=1", "a=1+1\n", "=\n"],
        ),
        (
            "c",
            [
                "int main(){return x;}",
                "int f(int a){int x = 1;while(x<y){x = f(x, ( 2+3 )*4);}}",
                "float g(){if(a==b){//no\n}else{/* * */}for(i =  0;  i<9; i =  i+1){f ();}}",
            ],
            ["int main(){", "int main()", "main(){}", "int f(){x}"],
        ),
        (
            "chess",
            ["1. e4 e5\n2. Nf3 Nc6\n", "1. O-O-O axb8=Q+\n1. d4 d5\n"],
            ["1. e4\n", "e4 e5\n"],
        ),
        ("english", ["Hello, (you) there!\nOk"], [" a", "a ", "é"]),
        ("japanese", ["日本 ひらがな、カ"], ["a", "日 "]),
        ("list", ["- a\n- 日本 b\n"], ["- a", "- \n", "- a\u2028\n", "a\n"]),
        ("vllm-sql", ["SELECTcol_1fromtable_2wherecol_2=1"], ["SELECT col_1", "SELECTcol_3"]),
    ],
)
def test_real_grammars(name: str, accepted: list[str], refused: list[str]) -> None:
    machine = real(name)
    assert [t for t in accepted if not machine.accepts(t.encode())] == []
    assert [t for t in refused if machine.accepts(t.encode())] == []


@pytest.mark.parametrize("name", ["json", "json_arr"])
def test_real_json_grammars_read_what_python_writes(name: str) -> None:
    machine = real(name)
    value: object = {"a": [1, -2.5e3, True, None], 'ü"\\\n': {"": [[], {}, "日本😀"]}}
    if name == "json_arr":
        text = "[\n" + json.dumps(value) + ",\n" + json.dumps(value, ensure_ascii=False) + "]"
    else:
        text = json.dumps({"x": value, "y": [value]}, ensure_ascii=False)
    assert machine.accepts(text.encode())
    for wrong in (text[:-1], text + "x", text.replace(":", ";"), text.replace("true", "True")):
        assert not machine.accepts(wrong.encode())


@pytest.mark.parametrize("name", ["json", "c", "arithmetic", "list", "english"])
def test_real_grammars_have_no_dead_ends_and_keep_their_slices(name: str) -> None:
    """Random walks never stop, and a promised slice is taken whole."""
    machine = real(name)
    random_ = random.Random(name)
    pieces = [VOCABULARY.bytes_of(token) for token in range(VOCABULARY.size)]
    plain = [piece for piece in pieces if piece and _is_plain(piece)]
    promised = 0
    for _ in range(30):
        at = machine.start
        for _ in range(60):
            expansion = machine.expand(at.key)
            promised += bool(expansion.slices)
            for piece in plain if expansion.slices else ():
                json_text = not any(mark in piece for mark in b'"\\')
                if expansion.slices & PLAIN_TEXT or (expansion.slices & JSON_TEXT and json_text):
                    after = machine.run(piece, at)
                    assert after is not None, (name, piece)
            alive = machine.alive_bytes(at)
            assert alive or machine.is_final(at)
            if not alive:
                break
            at = machine.step(at, random_.choice(alive))
            assert at is not None
    assert promised > 0 or name in ("c", "arithmetic", "english", "list")


def _is_plain(piece: bytes) -> bool:
    try:
        text = piece.decode()
    except UnicodeDecodeError:
        return False
    return all(char >= " " and char != "\x7f" for char in text)
