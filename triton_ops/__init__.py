"""GPU kernels in Triton: they know tensors only and import nothing of logitkit.

The same operations as `logitkit.ops`, with the same names, arguments and results. On a GPU they
are one launch for many rows and a fixed number for few; `TRITON_INTERPRET=1` runs them on the CPU.
"""

from __future__ import annotations

import torch
from torch import Tensor

from triton_ops import commit, fsm, launch

BACKEND = "triton"
FUSED = frozenset(
    {
        "allowed_token_ids", "logit_bias", "bad_words", "repetition_penalty", "presence_penalty",
        "frequency_penalty", "no_repeat_ngram", "min_new_tokens", "grammar", "temperature",
        "top_n_sigma", "top_k", "top_p", "min_p", "epsilon_cutoff", "eta_cutoff",
    }
)  # fmt: skip


def process_logits(
    logits: Tensor,
    slot: Tensor,
    position: Tensor,
    tokens: Tensor,
    prompt_length: Tensor,
    seed: Tensor,
    **arguments: Tensor,
) -> tuple[Tensor, Tensor]:
    """Edits, temperature and filters: new logits [R, V] float32 and status [R] (0 is good)."""
    out = torch.empty(logits.shape, dtype=torch.float32, device=logits.device)
    _, status = launch.run(logits, slot, position, tokens, prompt_length, seed, arguments, out)
    return out, status


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
    """The same and a draw: tokens [R] int64 (-1 where the status is not 0) and status.

    With `details` also each token's log-probability, float32 (NaN where there is none), and the
    number of survivors, int64; still no logits are written.
    """
    return launch.run(logits, slot, position, tokens, prompt_length, seed, arguments, None, details)


def commit_tokens(
    tokens: Tensor, head: Tensor, new: Tensor, num_tokens: Tensor | None = None
) -> None:
    """Write `new` [B, n] into `tokens` [B, T] behind `head` [B], and move it by `num_tokens` [B].

    In place and in one launch; all int64.
    """
    commit.run(tokens, head, new, num_tokens)


def advance_fsm(
    state: Tensor, tokens: Tensor, offsets: Tensor, data: Tensor, transitions: Tensor
) -> Tensor:
    """States of byte automata after a token each: [B] int64 (-1: dead, refused).

    `state`, `tokens` [B] int64, `offsets` [V + 1] int64, `data` uint8, `transitions` [S, 256]
    int32.
    """
    return fsm.run(state, tokens, offsets, data, transitions)
