"""What a source answered, made safe: `checked` refuses what is no draft, `legal_draft` cuts it.

Above `draft.source`, below `draft.cascade` and `generation`. A source may be the user's: every
answer passes here once before anything is done with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor

from logitkit.draft.source import Draft
from logitkit.params.checks import kind, shown


def checked(draft: Any, size: int, device: torch.device) -> Draft:
    """The draft for `size` requests with int64 tensors on `device` and lengths of 0..k.

    Errors: ValueError naming the part that is not as `Draft` says.
    """
    if not isinstance(draft, Draft):
        raise ValueError(
            f"`draft`: a source's `propose` returned {kind(draft)}: return an lk.Draft(tokens, "
            "lengths), with lengths of 0 for no proposal"
        )
    tokens, lengths = (_whole(getattr(draft, name), name, device) for name in ("tokens", "lengths"))
    if tokens.ndim != 2 or lengths.shape != tokens.shape[:1] or len(lengths) != size:
        raise ValueError(
            f"`draft`: a source proposed tokens of shape {tuple(tokens.shape)} and lengths of "
            f"shape {tuple(lengths.shape)} for {size} rows: give [B, k] and [B]"
        )
    strength = draft.strength
    if strength is not None:
        strength = _whole(strength, "strength", device)
        if strength.shape != lengths.shape:
            raise ValueError(
                f"`draft`: a source gave `strength` of shape {tuple(strength.shape)} for {size} "
                "rows: give [B] or None"
            )
    names = draft.label if isinstance(draft.label, tuple) else (draft.label or "",) * size
    if len(names) != size or not all(isinstance(name, str) for name in names):
        raise ValueError(
            f"`draft`: a source gave the `label` {shown(draft.label)}: give a string, or a tuple "
            f"with one for each of the {size} rows"
        )
    lengths = lengths.clamp(0, tokens.shape[1])
    return dataclasses.replace(draft, tokens=tokens, lengths=lengths, strength=strength)


def check_logits(draft: Draft, vocab_size: int) -> None:
    """Refuse logits of the wrong shape: they are [B, k, V], or None."""
    logits, wanted = draft.logits, (*draft.tokens.shape, vocab_size)
    if logits is None or (isinstance(logits, Tensor) and tuple(logits.shape) == wanted):
        return
    what = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else kind(logits)
    raise ValueError(
        f"`draft`: a source gave `logits` of {what}: give [B, k, V], here {wanted}, or None"
    )


def check_drawn(draft: Draft) -> None:
    """Refuse logits that a token of the draft cannot have been drawn from: NaN, or without it."""
    if draft.logits is None:
        return
    largest = draft.logits.amax(-1)
    token = draft.tokens.clamp_max(draft.logits.shape[-1] - 1)
    found = draft.logits.gather(-1, token[..., None]).squeeze(-1)
    drawn = largest.isfinite() & (found > -torch.inf) & (token == draft.tokens)
    ahead = torch.arange(token.shape[1], device=token.device)
    wrong = (~drawn & (ahead < draft.lengths[:, None])).nonzero()
    if len(wrong):
        slot, depth = wrong[0].tolist()
        raise ValueError(
            f"`draft`: a source gave `logits` at row {slot}, depth {depth}, from which the token "
            f"{int(draft.tokens[slot, depth])} cannot have been drawn (NaN, +inf, or -inf at the "
            "token): give the logits that it was drawn from, or None"
        )


def legal_draft(draft: Draft, room: Sequence[int], num_tokens: int) -> Draft | None:
    """The draft with at most `room` [B] tokens per row, cut where an id is not in 0..num_tokens-1.

    None where nothing is left. Tokens behind a row's draft are 0.
    """
    chains = []
    # A few tokens a row: lists are read sooner than tensors are counted.
    for chain, length, most in zip(
        draft.tokens.tolist(), draft.lengths.tolist(), room, strict=True
    ):
        chain = chain[: max(0, min(length, most))]
        if chain and not 0 <= min(chain) <= max(chain) < num_tokens:
            chain = list(takewhile(lambda token: 0 <= token < num_tokens, chain))
        chains.append(chain)
    lengths = [len(chain) for chain in chains]
    k = max(lengths, default=0)
    if k == 0:
        return None
    device = draft.tokens.device
    return dataclasses.replace(
        draft,
        tokens=torch.tensor([chain + [0] * (k - len(chain)) for chain in chains], device=device),
        lengths=torch.tensor(lengths, device=device),
        logits=None if draft.logits is None else draft.logits[:, :k],
    )


def _whole(values: Any, name: str, device: torch.device) -> Tensor:
    """`values` as int64 on `device`."""
    is_tensor = isinstance(values, Tensor)
    if not is_tensor or values.is_floating_point() or values.is_complex():
        what = str(values.dtype) if is_tensor else kind(values)
        raise ValueError(f"`draft`: a source gave `{name}` as {what}: give a tensor of integers")
    whole: Tensor = values.to(device, torch.int64)
    return whole
