"""The fused operations in plain torch: every other backend is tested against this one.

The rules themselves are in `reference_edits` and `reference_filters`; a built-in stage applied
alone runs the same functions.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from logitkit import randomness
from logitkit.ops import BAD, EMPTY, FILTERS, OK, ORDER, reference_edits, reference_filters
from logitkit.rows import History, Rows

BACKEND = "torch"
FUSED: frozenset[str] = frozenset()  # nothing is faster together here, so stages run one by one
RULES: dict[str, Callable[[Tensor, Rows], Tensor]] = {
    name: getattr(reference_filters if name in FILTERS else reference_edits, name) for name in ORDER
}


def process_logits(
    logits: Tensor,
    slot: Tensor,
    position: Tensor,
    tokens: Tensor,
    prompt_length: Tensor,
    seed: Tensor,
    **arguments: Tensor,
) -> tuple[Tensor, Tensor]:
    """Apply the stages whose arguments are given, in `ORDER`: new logits [R, V] float32 and status.

    `greedy` [B] bool among the arguments marks the requests with temperature 0: they are exempt
    from temperature and filters, and `sample_tokens` takes their argmax.
    """
    history = History(tokens, tokens.new_empty(0), prompt_length)
    rows = Rows(slot, torch.zeros_like(slot), position, history, arguments, seed, logits.shape[-1])
    out = logits.float()
    bad = unusable(out)
    out = out.masked_fill(bad[:, None], 0.0)
    for name, owned in ORDER.items():
        if owned[0] in arguments:
            ruled = RULES[name](out, rows)
            out = exempt_greedy(ruled, out, rows) if name in FILTERS else ruled
            bad = bad | unusable(out)
    status = torch.where(out.amax(-1) == -torch.inf, EMPTY, OK)
    return out, torch.where(bad, BAD, status)


def sample_tokens(
    logits: Tensor,
    slot: Tensor,
    position: Tensor,
    tokens: Tensor,
    prompt_length: Tensor,
    seed: Tensor,
    *,
    details: bool = False,
    **arguments: Tensor,
) -> tuple[Tensor, ...]:
    """`process_logits`, then draw: tokens [R] int64 (-1 where the status is not OK) and status.

    The token is the argmax of logit - noise over what is left, the lowest id among equals. With
    `details` also its log-probability there, [R] float32 (NaN where the status is not OK), and how
    many tokens are left, [R] int64 (0 there). With temperature 0 that is 0 and 1.
    """
    out, status = process_logits(logits, slot, position, tokens, prompt_length, seed, **arguments)
    ids = torch.arange(out.shape[-1], device=out.device)
    noise = randomness.noise(
        seed[slot][:, None], ids[None], position[:, None], randomness.TARGET_STREAM
    )
    if "greedy" in arguments:
        noise = noise.masked_fill(arguments["greedy"][slot][:, None], 0.0)
    score = torch.where(out > -torch.inf, out - noise, -torch.inf)
    best = (score == score.amax(-1, keepdim=True)).to(torch.uint8).argmax(-1)
    drawn = torch.where(status == OK, best, -1)
    if not details:
        return drawn, status
    if "greedy" in arguments:
        out = reference_edits.keep_best(out, arguments["greedy"][slot][:, None])
    logprobs, survivors = details_of(out, best)
    return (
        drawn,
        status,
        torch.where(status == OK, logprobs, torch.nan),
        torch.where(status == OK, survivors, 0),
    )


def details_of(logits: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities of `tokens` [R] under `logits` [R, V], and how many entries are left.

    float32, by sums in float64, and int64.
    """
    exact = logits.double()
    chosen = exact.gather(-1, tokens[:, None]).squeeze(-1)
    return (chosen - exact.logsumexp(-1)).float(), (logits > -torch.inf).sum(-1)


def commit_tokens(
    tokens: Tensor, head: Tensor, new: Tensor, num_tokens: Tensor | None = None
) -> None:
    """Write `new` [B, n] into `tokens` [B, T] behind `head` [B], and move the head, in place.

    The head moves by `num_tokens` [B] of the n tokens (None: by all); what is written behind it is
    unspecified history. All are int64, and there is room for n tokens behind every head.
    """
    n = new.shape[1]
    place = head[:, None]
    if n != 1:
        place = place + torch.arange(n, device=head.device)
    tokens.scatter_(1, place, new)
    head += n if num_tokens is None else num_tokens


def advance_fsm(
    state: Tensor, tokens: Tensor, offsets: Tensor, data: Tensor, transitions: Tensor
) -> Tensor:
    """The states of byte automata after a token each, [B] int64; -1 is dead and stays so.

    `state`, `tokens` [B] int64; `offsets` [V + 1] int64 and `data` uint8 are the bytes of every
    token; `transitions` [S, 256] int32 is the state behind a byte, -1 where it is refused. A token
    without bytes, or none of the V, is refused.
    """
    known = (tokens >= 0) & (tokens < len(offsets) - 1)
    token = torch.where(known, tokens, 0)
    first, last = offsets[token], offsets[token + 1]
    length = torch.where(known, last - first, 0)
    state = torch.where(length > 0, state, -1)
    for i in range(int(length.max()) if len(length) else 0):
        more = (i < length) & (state >= 0)
        byte = data[torch.where(more, first + i, 0)].long()
        state = torch.where(more, transitions[state.clamp_min(0), byte].long(), state)
    return state


def exempt_greedy(filtered: Tensor, logits: Tensor, rows: Rows) -> Tensor:
    """A filter's result, but the unfiltered logits for requests with temperature 0."""
    return torch.where(rows["greedy"], logits, filtered) if "greedy" in rows.columns else filtered


def unusable(logits: Tensor) -> Tensor:
    """Which rows hold NaN or +inf, [R] bool."""
    return ~(logits.amax(-1) < torch.inf)
