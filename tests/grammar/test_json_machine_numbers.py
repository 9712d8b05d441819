"""Numbers under constraints: every short text against exact decimals, and no dead ends."""

from __future__ import annotations

import itertools
import re
from decimal import Decimal
from random import Random

import pytest

from logitkit.errors import GrammarError
from logitkit.grammar.json_schema.numbers import NumberMachine, number_machine
from logitkit.grammar.json_schema.types import Number

SPELLED = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")
TEXTS = [
    text
    for length in range(1, 6)
    for text in map("".join, itertools.product("-.0125", repeat=length))
    if SPELLED.fullmatch(text)
]
HUNDREDTHS = (
    0,
    100,
    200,
    500,
    1000,
    1200,
    2100,
    10000,
    50,
    10,
    150,
    225,
    -100,
    -200,
    -50,
    -1200,
    -1050,
    2010,
    -5,
    10**8,
)
VALUES = [Decimal(n).scaleb(-2) for n in HUNDREDTHS]
FACTORS = [Decimal(n).scaleb(-2) for n in (100, 200, 300, 500, 700, 50, 10, 1, 250, 1200, 25)]
HOLES = [Decimal(n).scaleb(-1) for n in (10, 20, 30, 5, 50)]


def wanted(number: Number, text: str) -> bool:
    value = Decimal(text)
    low, high = number.minimum, number.maximum
    return not (
        (number.integer and "." in text)
        or (value == 0 and text[0] == "-")
        or (low is not None and (value < low or (number.exclusive_minimum and value == low)))
        or (high is not None and (value > high or (number.exclusive_maximum and value == high)))
        or value in number.excluded
        or (number.multiple_of is not None and value % number.multiple_of != 0)
        or any(value % hole == 0 for hole in number.not_multiples)
    )


def accepts(machine: NumberMachine, text: str) -> bool:
    state = machine.start
    for char in text:
        after = dict(machine.moves(state)).get(ord(char))
        if after is None:
            return False
        state = after
    return machine.complete(state)


def dead_states(machine: NumberMachine) -> int:
    """How many of the states that can be reached lead to no number."""
    ways = {machine.start: [to for _, to in machine.moves(machine.start)]}
    pending = list(ways[machine.start])
    while pending:
        state = pending.pop()
        if state not in ways:
            ways[state] = [to for _, to in machine.moves(state)]
            pending += ways[state]
    alive = {state for state in ways if machine.complete(state)}
    while more := {s for s in ways.keys() - alive if any(to in alive for to in ways[s])}:
        alive |= more
    return len(ways) - len(alive)


def random_number(random: Random) -> Number:
    low, high = random.choice([None, *VALUES]), random.choice([None, *VALUES])
    if low is not None and high is not None and low > high:
        low, high = high, low
    return Number(
        integer=random.random() < 0.5,
        minimum=low,
        maximum=high,
        exclusive_minimum=random.random() < 0.4,
        exclusive_maximum=random.random() < 0.4,
        multiple_of=random.choice([None, None, *FACTORS]),
        excluded=frozenset(random.sample(VALUES, random.choice([0, 0, 1, 3]))),
        not_multiples=frozenset(random.sample(HOLES, random.choice([0, 0, 0, 1, 2]))),
    )


@pytest.mark.parametrize("seed", range(40))
def test_numbers_are_exact_and_without_dead_ends(seed: int) -> None:
    number = random_number(Random(seed))
    if not any((number.minimum, number.maximum, number.multiple_of, number.excluded)):
        number = Number(number.integer, minimum=Decimal(0), not_multiples=number.not_multiples)
    machine = number_machine(number)
    expected = [text for text in TEXTS if wanted(number, text)]
    if machine is None:
        assert expected == []
    else:
        assert [text for text in TEXTS if accepts(machine, text)] == expected
        assert dead_states(machine) == 0


def test_free_numbers_are_those_of_json() -> None:
    number, integer = number_machine(Number(False)), number_machine(Number(True))
    assert number is not None and integer is not None
    for text in ("0", "-0", "-0.50", "12e5", "1E-07", "1.5e+3"):
        assert accepts(number, text)
    for text in ("01", "1.", ".5", "+1", "1e", "--1", "-", "1.e3", "1e+"):
        assert not accepts(number, text)
    assert accepts(integer, "-12") and accepts(integer, "0")
    assert not any(accepts(integer, text) for text in ("-0", "1.0", "1e2", "-"))


def test_large_and_long_bounds_are_exact() -> None:
    edge = Decimal("18446744073709551615")
    machine = number_machine(Number(True, minimum=Decimal("-9223372036854775808"), maximum=edge))
    assert machine is not None
    assert accepts(machine, "18446744073709551615") and accepts(machine, "-9223372036854775808")
    assert not accepts(machine, "18446744073709551616")
    assert not accepts(machine, "-9223372036854775809")
    tenth = Decimal("0.1000000000000000000000000000000000001")
    close = number_machine(Number(False, minimum=tenth, maximum=Decimal("0.2")))
    assert close is not None
    assert accepts(close, str(tenth)) and accepts(close, "0.20000")
    assert not accepts(close, "0.1") and not accepts(close, "0.2000001")


def test_only_what_can_still_be_a_number_is_offered() -> None:
    machine = number_machine(Number(True, minimum=Decimal(250), maximum=Decimal(260)))
    assert machine is not None

    def offered(text: str) -> str:
        state = machine.start
        for char in text:
            state = dict(machine.moves(state))[ord(char)]
        return bytes(byte for byte, _ in machine.moves(state)).decode()

    assert [offered(text) for text in ("", "2", "25", "26", "255")] == [
        "2",
        "56",
        "0123456789",
        "0",
        "",
    ]


@pytest.mark.parametrize("step", [10_007, 10**6, 2**61 - 1, 10**40 + 1])
def test_multiples_of_large_numbers_are_accepts(step: int) -> None:
    machine = number_machine(Number(True, multiple_of=Decimal(step)))
    bounded = number_machine(
        Number(True, Decimal(step), Decimal(3 * step - 1), multiple_of=Decimal(step))
    )
    assert machine is not None and bounded is not None
    for value in (0, step, -step, 7 * step, 12_345 * step):
        assert accepts(machine, str(value))
        assert accepts(bounded, str(value)) == (value == step)
        assert not accepts(machine, str(value + 1)) and not accepts(machine, str(value - 1))
    assert accepts(bounded, str(2 * step)) and not accepts(bounded, str(3 * step))


def test_a_bound_of_too_many_digits_is_refused() -> None:
    with pytest.raises(GrammarError, match="digits"):
        number_machine(Number(False, minimum=Decimal("1e-2000")))
