"""Values without brackets and quotes, inline in the states of `machine`: numbers and words.

A scalar is an interned position: inside an automaton of numbers, or before the bytes of a literal
that are still to come.
"""

from __future__ import annotations

from logitkit.grammar.json_schema.magnitude import State
from logitkit.grammar.json_schema.numbers import NumberMachine, number_machine
from logitkit.grammar.json_schema.types import Number

Position = bytes | tuple[int, State]


class Scalars:
    """Interned scalar positions and where their bytes lead."""

    def __init__(self) -> None:
        self._machines: list[NumberMachine] = []
        self._starts: dict[Number, int | None] = {}
        self._ids: dict[Position, int] = {}
        self._positions: list[Position] = []
        self._moves: list[tuple[tuple[int, int], ...] | None] = []

    def _intern(self, position: Position) -> int:
        found = self._ids.get(position)
        if found is None:
            found = len(self._positions)
            self._moves += [None] * (found + 1 - len(self._moves))
            self._positions.append(position)
            self._ids[position] = found
        return found

    def literal(self, text: str) -> int:
        """The position before a literal that is no string, object or array."""
        return self._intern(text.encode())

    def number(self, number: Number) -> int | None:
        """The position before a number; None where no value is left."""
        if number not in self._starts:
            machine = number_machine(number)
            if machine is None:
                self._starts[number] = None
            else:
                self._machines.append(machine)
                self._starts[number] = self._intern((len(self._machines) - 1, machine.start))
        return self._starts[number]

    def moves(self, scalar: int) -> tuple[tuple[int, int], ...]:
        """(byte, next position) of every byte that may come, sorted."""
        found = self._moves[scalar]
        if found is None:
            position = self._positions[scalar]
            if isinstance(position, bytes):
                found = ((position[0], self._intern(position[1:])),) if position else ()
            else:
                index, state = position
                moves = self._machines[index].moves(state)
                found = tuple(sorted((byte, self._intern((index, to))) for byte, to in moves))
            self._moves[scalar] = found
        return found

    def is_over(self, scalar: int) -> bool:
        """Whether a literal was read to its end."""
        return not self._positions[scalar]

    def complete(self, scalar: int) -> bool:
        """Whether the value may end here."""
        position = self._positions[scalar]
        if isinstance(position, bytes):
            return not position
        index, state = position
        return self._machines[index].complete(state)
