"""How many new tokens each row may have.

Beside `batch`, below `strategy`. The request's own number counts first, then the call's, then the
context.
"""

from __future__ import annotations

from collections.abc import Sequence

from logitkit.causal_lm import CausalLM
from logitkit.params import ResolvedParams


def row_limits(
    params: Sequence[ResolvedParams],
    lengths: Sequence[int],
    max_new_tokens: int | None,
    lm: CausalLM,
) -> list[int]:
    """The most new tokens of every row; `lengths` are the rows' own prompt tokens.

    Raises ValueError where nothing limits a row, its prompt fills the context, a fixed table of
    positions is too short for what was asked, or `min_new_tokens` exceeds the limit.
    """
    limits = []
    for row, (p, length) in enumerate(zip(params, lengths, strict=True)):
        asked = p.max_new_tokens if p.max_new_tokens is not None else max_new_tokens
        limit = _context_room(row, length, lm.context_length) if asked is None else asked
        if asked is not None and lm.position_limit is not None:
            _check_positions(row, length, asked, lm.position_limit)
        if p.min_new_tokens > limit:
            raise ValueError(
                f"`min_new_tokens`={p.min_new_tokens} of row {row} is more than the {limit} new "
                "tokens that it may have: lower it, or raise `max_new_tokens`"
            )
        limits.append(limit)
    return limits


def _context_room(row: int, length: int, context: int | None) -> int:
    if context is None:
        raise ValueError(
            "`max_new_tokens` is needed: neither the request, the call, the model file nor the "
            "model's context length says how long the text may get"
        )
    if length >= context:
        raise ValueError(
            f"`input_ids`: row {row} has {length} tokens and fills the model's context of "
            f"{context}: shorten the prompt, or pass max_new_tokens= to go beyond it"
        )
    return context - length


def _check_positions(row: int, length: int, asked: int, positions: int) -> None:
    if length + asked > positions:
        raise ValueError(
            f"`max_new_tokens`={asked} does not fit behind the {length} tokens of row {row}: the "
            f"model has {positions} positions; give at most {positions - length}"
        )
