"""Choice: exactly the texts of a list."""

from __future__ import annotations

import random

import pytest
from toy import SlowMachine, toy_vocabulary

from logitkit.errors import GrammarError
from logitkit.grammar.choice import build
from logitkit.grammar.spec import Choice

CONTEXT = toy_vocabulary().context()


def test_exactly_the_options_are_accepted() -> None:
    machine = SlowMachine(build(Choice(["yes", "no", "not", "日本", "yes", "n"]), CONTEXT))
    for option in ("yes", "no", "not", "日本", "n"):
        assert machine.accepts(option.encode())
    for text in ("", "ye", "nope", "yesno", "日", "nott"):
        assert not machine.accepts(text.encode())
    assert not machine.machine.has_stack


def test_every_byte_offered_begins_an_option() -> None:
    random_ = random.Random(0)
    options = ["".join(random_.choices("abé", k=random_.randint(1, 6))) for _ in range(60)]
    machine = SlowMachine(build(Choice(options), CONTEXT))
    encoded = {option.encode() for option in options}
    prefixes = {text[:stop] for text in encoded for stop in range(len(text) + 1)}
    for prefix in prefixes:
        at = machine.run(prefix)
        assert at is not None
        assert machine.is_final(at) == (prefix in encoded)
        offered = {prefix + bytes([byte]) for byte in machine.alive_bytes(at)}
        assert offered == {text for text in prefixes if len(text) == len(prefix) + 1
                           and text.startswith(prefix)}  # fmt: skip


def test_many_long_options_cost_nothing_ahead() -> None:
    options = [f"{number:05d}" + "x" * 200 for number in range(20_000)]
    machine = SlowMachine(build(Choice(options), CONTEXT))
    assert machine.accepts(options[12_345].encode())
    assert len(machine.expansions) <= 206


def test_the_empty_text_may_be_one_option_of_several() -> None:
    machine = SlowMachine(build(Choice(["", "a"]), CONTEXT))
    assert machine.accepts(b"") and machine.accepts(b"a")
    with pytest.raises(GrammarError, match="empty text is the only option"):
        build(Choice(["", ""]), CONTEXT)


def test_an_option_that_no_token_spells_is_an_error() -> None:
    context = toy_vocabulary(missing=b"\xa5").context()
    with pytest.raises(GrammarError, match=r"options\[1\]='日本'.*0xA5"):
        build(Choice(["a", "日本"]), context)
