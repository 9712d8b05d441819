"""Numbers byte by byte: the automata of the type `Number`, used by `scalars`.

`Free` is JSON's own grammar. `Bounded` spells numbers under constraints: a sign, then the digits
of a `Magnitude`.

Narrowings: no exponent and no negative zero under constraints, no negative zero in integers.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Protocol

from logitkit.grammar.json_schema.magnitude import DIGITS, POINT, Magnitude, State
from logitkit.grammar.json_schema.types import Number

MINUS = 0x2D


class NumberMachine(Protocol):
    """`moves` leads on from a state (byte, next); `complete`: the digits so far are a value."""

    start: State

    def moves(self, state: State) -> list[tuple[int, State]]: ...

    def complete(self, state: State) -> bool: ...


def number_machine(number: Number) -> NumberMachine | None:
    """The automaton of a `Number`; None where no value is left."""
    plain = replace(number, integer=True) == Number(integer=True)
    if plain:
        return Free(number.integer)
    machine = Bounded(number)
    return machine if machine.moves(machine.start) else None


class Free:
    """All integers, or all numbers, of JSON."""

    start: State = ("",)

    def __init__(self, integer: bool) -> None:
        first = [(MINUS, "-"), (0x30, "0"), *((digit, "1") for digit in DIGITS[1:])]
        more = [(digit, "1") for digit in DIGITS]
        if integer:
            self._table = {"": first, "-": first[2:], "0": [], "1": more}
        else:
            point = [(POINT, ".")]
            exponent = [(0x45, "e"), (0x65, "e")]
            fraction = [(digit, "f") for digit in DIGITS]
            power = [(digit, "x") for digit in DIGITS]
            self._table = {
                "": first,
                "-": first[1:],
                "0": point + exponent,
                "1": point + more + exponent,
                ".": fraction,
                "f": fraction + exponent,
                "e": [(0x2B, "s"), (MINUS, "s"), *power],
                "s": power,
                "x": power,
            }

    def moves(self, state: State) -> list[tuple[int, State]]:
        return [(byte, (name,)) for byte, name in self._table[str(state[0])]]

    def complete(self, state: State) -> bool:
        return state[0] in {"0", "1", "f", "x"}


class Bounded:
    """The numbers of one `Number` with constraints."""

    start: State = ("",)

    def __init__(self, number: Number) -> None:
        self._sides = {
            "+": Magnitude(number),
            "-": Magnitude(
                replace(
                    number,
                    minimum=_negated(number.maximum),
                    maximum=_negated(number.minimum),
                    exclusive_minimum=number.exclusive_maximum,
                    exclusive_maximum=number.exclusive_minimum,
                    excluded=frozenset({v.copy_negate() for v in number.excluded} | {Decimal(0)}),
                )
            ),
        }

    def moves(self, state: State) -> list[tuple[int, State]]:
        if state == self.start:
            minus = self._sides["-"].moves(("t", ""))
            sign = [(MINUS, ("-", "t", ""))] if minus else []
            return sign + [(b, ("+", *s)) for b, s in self._sides["+"].moves(("t", ""))]
        side = state[0]
        return [(b, (side, *s)) for b, s in self._sides[str(side)].moves(state[1:])]

    def complete(self, state: State) -> bool:
        return state != self.start and self._sides[str(state[0])].complete(state[1:])


def _negated(value: Decimal | None) -> Decimal | None:
    return None if value is None else value.copy_negate()  # `-value` would round
