"""States that are explored with another one are what they would be if explored alone."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest

from logitkit.grammar.compile import compile_grammar
from logitkit.grammar.machine import Call, Key, Machine, Move, Step
from logitkit.grammar.memory import DEAD, LIMIT, UNEXPANDED
from logitkit.grammar.spec import JsonSchema
from tests.grammar.toy import ToyVocabulary, toy_vocabulary

SCHEMAS: list[Any] = [
    {"type": "object", "properties": {"a": {"type": "array"}, "b": {"const": 1}}},
    {"type": "array", "items": {"enum": [True, "x"]}, "minItems": 2, "maxItems": 9},
    {"type": "object", "properties": {"a": True}, "required": ["a"], "additionalProperties": False},
]
WITHOUT_TABS = ToyVocabulary(
    (b"", *(bytes([b]) for b in range(256) if b != 9)), (0,)
)  # a vocabulary that cannot spell one of the bytes


def moves_of(machine: Machine, key: Key) -> list[Move | None]:
    """The move of each byte; None: dead."""
    found: list[Move | None] = [None] * 256
    for low, high, move in machine.expand(key).moves:
        found[low : high + 1] = [move] * (high + 1 - low)
    return found


@pytest.mark.parametrize("vocabulary", [toy_vocabulary(), WITHOUT_TABS], ids=["all", "no tabs"])
@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_kin_differ_from_their_state_in_no_other_byte(
    schema: Any, vocabulary: ToyVocabulary
) -> None:
    machine = compile_grammar(JsonSchema(schema), vocabulary).program.machine
    seen, queue, families = {machine.start}, deque([machine.start]), 0
    while queue and len(seen) < 3000:
        key = queue.popleft()
        expansion = machine.expand(key)
        for _, _, move in expansion.moves:
            after = move.key if isinstance(move, Step | Call) else None
            if after is not None and after not in seen:
                seen.add(after)
                queue.append(after)
        if expansion.kin is None:
            continue
        families += 1
        kin, own = expansion.kin, moves_of(machine, key)
        numbered = [key, *kin.keys]
        for other, leads in zip(kin.keys, kin.leads.tolist(), strict=True):
            want = list(own)
            for byte, number in zip(kin.places.tolist(), leads, strict=True):
                want[byte] = None if number < 0 else Step(numbered[number])
            assert moves_of(machine, other) == want
            alone = machine.expand(other)
            assert alone.kin is None
            assert alone._replace(moves=()) == expansion._replace(moves=(), kin=None)
    assert families


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_the_rows_of_kin_are_those_of_states_explored_alone(schema: Any) -> None:
    grammar = compile_grammar(JsonSchema(schema), toy_vocabulary())
    grammar.warm(seconds=0.5)
    program, heap = grammar.program, grammar.arena.heap
    checked = 0
    for state, key in list(program.keys.items()):
        if heap.states[state, LIMIT] == UNEXPANDED:
            continue
        want = np.full(256, DEAD, np.int32)
        for low, high, move in program.machine.expand(key).moves:
            want[low : high + 1] = program._code(move)
        assert np.array_equal(heap.table[state], want), key
        checked += 1
    assert checked > 50
