"""`advance_fsm`: the bytes of a token folded over the table of an automaton."""

from __future__ import annotations

import pytest
import torch
from automata import csr, random_call, slow, table
from helpers import OPS

every_backend = pytest.mark.parametrize("backend", list(OPS))


@every_backend
def test_a_token_is_folded_byte_by_byte(backend: str) -> None:
    moves = table((0, 97, 1), (1, 98, 2), (2, 97, 1), (0, 255, 0), size=3)
    ends, data = csr([b"a", b"ab", b"aba", b"", b"b", b"\xff\xffa"])
    state = torch.tensor([0, 0, 0, 0, 0, 0, 1, 2, -1, 0, 0])
    tokens = torch.tensor([0, 1, 2, 3, 4, 5, 4, 1, 0, 6, -1])
    moved = OPS[backend].advance_fsm(state, tokens, ends, data, moves)
    # the empty token, the refused byte, the dead state and the ids that are no tokens end in -1
    assert moved.tolist() == [1, 2, 1, -1, -1, 1, 2, 2, -1, -1, -1]
    assert moved.dtype == torch.int64
    assert state.tolist()[0] == 0


@every_backend
def test_many_random_tokens_agree_with_a_plain_loop(backend: str) -> None:
    alive = 0
    for seed in range(30):
        call = random_call(seed)
        want = slow(call)
        assert OPS[backend].advance_fsm(*call).tolist() == want
        alive += sum(state >= 0 for state in want)
    assert alive > 300


@every_backend
def test_no_rows_and_strided_columns_are_taken(backend: str) -> None:
    state, tokens, *rest = random_call(1)
    none = OPS[backend].advance_fsm(state[:0], tokens[:0], *rest)
    assert none.tolist() == []
    drafted = torch.stack([tokens, tokens.flip(0)], 1)
    found = OPS[backend].advance_fsm(state, drafted[:, 1], *rest)
    assert found.tolist() == slow((state, tokens.flip(0), *rest))
