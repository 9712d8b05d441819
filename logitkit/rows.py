"""`History` and `Rows`: the memory of a batch, and the only window through which a stage reads it.

One line of the logits matrix is a *row*. It knows its request (`slot`), its `depth` in the draft
(0 = nothing drafted before it) and the `position` of the token being predicted. Drafted tokens are
written past the head of the history; a row reads up to head + depth, so every answer below is given
as that row sees it. Lowest level: knows tensors only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from logitkit import randomness


@dataclass(eq=False)
class History:
    """The tokens of every request, padding excluded.

    `tokens` [B, T] int64 (unspecified behind the head), `head` [B] int64 the number of committed
    tokens, `prompt_length` [B] int64 how many of them are prompt. A commit changes tokens and head
    in place.
    """

    tokens: Tensor
    head: Tensor
    prompt_length: Tensor

    @classmethod
    def start(cls, prompts: Tensor, lengths: Tensor, prompt_length: Tensor, room: int) -> History:
        """Copy left-aligned `prompts` [B, L] with `lengths` [B] real tokens, and `room` to grow."""
        size, width = prompts.shape
        with torch.inference_mode(False):  # such a tensor could not be written to outside that mode
            tokens = prompts.new_zeros(size, width + room)
            tokens[:, :width] = prompts
            return cls(tokens, lengths.clone(), prompt_length.clone())

    def reserve(self, width: int) -> None:
        """Grow so that `width` tokens fit in a row; at least doubles, so growing is amortised."""
        have = self.tokens.shape[1]
        if width > have:
            with torch.inference_mode(False):  # as above
                grown = self.tokens.new_zeros(self.tokens.shape[0], max(width, 2 * have))
                grown[:, :have] = self.tokens
            self.tokens = grown


@dataclass(eq=False)
class Rows:
    """What a stage may ask: parameters, history and randomness, each as the row sees it.

    `slot`, `depth`, `position` are [R] int64. `position` is the index of the token being predicted,
    which is the number of tokens the row sees.
    """

    slot: Tensor
    depth: Tensor
    position: Tensor
    history: History
    columns: Mapping[str, Tensor]
    seed: Tensor  # [B] int64, the bit pattern of the unsigned seed
    vocab_size: int  # the width of the logits
    states: Mapping[Any, Tensor] = field(default_factory=dict)  # stage -> [R, ...]

    def __len__(self) -> int:
        return int(self.slot.shape[0])

    def __getitem__(self, name: str) -> Tensor:
        """The parameter `name` of every row, [R, 1]; float64, int64 or bool."""
        if name not in self.columns:
            raise KeyError(f"{name!r} is no column of this plan, which has {sorted(self.columns)}")
        return self.columns[name][self.slot].unsqueeze(-1)

    @property
    def num_generated(self) -> Tensor:
        """How many tokens each row sees behind its prompt, [R] int64."""
        return self.position - self.history.prompt_length[self.slot]

    def tokens(self) -> tuple[Tensor, Tensor]:
        """The tokens each row sees, [R, T] int64 (0 where none is), and which are real [R, T].

        On a CPU T is the longest row's length; elsewhere it is the width of the history, since
        reading a length would wait for the device.
        """
        width = self.history.tokens.shape[1]
        if self.position.is_cpu:
            width = int(self.position.max()) if len(self) else 0
        seen = torch.arange(width, device=self.position.device) < self.position[:, None]
        return self.history.tokens[self.slot, :width].masked_fill(~seen, 0), seen

    def last(self, n: int) -> Tensor:
        """The last `n` tokens each row sees, newest at the right, [R, n] int64; -1 where none."""
        index = self.position[:, None] + torch.arange(-n, 0, device=self.position.device)
        found = self.history.tokens[self.slot].gather(1, index.clamp_min(0))
        return torch.where(index >= 0, found, -1)

    def counts(self) -> Tensor:
        """How often each token stands behind the prompt, [R, V] int64."""
        tokens, seen = self.tokens()
        prompt = self.history.prompt_length[self.slot][:, None]
        output = seen & (torch.arange(tokens.shape[1], device=tokens.device) >= prompt)
        return _count(tokens, output, self.vocab_size)

    def in_prompt(self) -> Tensor:
        """Which tokens stand in the prompt, [R, V] bool."""
        tokens, seen = self.tokens()
        prompt = self.history.prompt_length[self.slot][:, None]
        inside = seen & (torch.arange(tokens.shape[1], device=tokens.device) < prompt)
        return _count(tokens, inside, self.vocab_size) > 0

    def state(self, stage: object) -> Tensor:
        """The stage's own state at each row's depth, [R, ...]."""
        return self.states[stage]

    def uniform(self, stream: int) -> Tensor:
        """One number in (0, 1) per row, [R] float64: a function of seed, position and stream."""
        return randomness.uniform(self.seed[self.slot], self.position, stream)

    def select(self, index: Tensor) -> Rows:
        """The rows numbered by `index` (or where a bool mask holds), in that order."""
        states = {stage: state[index] for stage, state in self.states.items()}
        return Rows(
            self.slot[index], self.depth[index], self.position[index], self.history, self.columns,
            self.seed, self.vocab_size, states,
        )  # fmt: skip


def _count(tokens: Tensor, where: Tensor, vocab_size: int) -> Tensor:
    """Occurrences per token, [R, V]; a token id beyond the logits' width is not counted."""
    inside = where & (tokens < vocab_size)
    counts = torch.zeros(tokens.shape[0], vocab_size, dtype=torch.int64, device=tokens.device)
    return counts.scatter_add_(1, tokens.masked_fill(~inside, 0), inside.long())


class PromptMemory:
    """Tells a new generation from the next step of the old one, by the ids of each call alone.

    For a stage used alone. The ids of the first call are the prompt; a new generation starts when
    the row count changes, a row lost that prompt as its prefix, is shorter than it, or is longer
    than the longest call so far plus one, and when the bare prompts come again.
    """

    def __init__(self) -> None:
        self.prompt: Tensor | None = None  # [B, L]
        self.longest = 0

    def starts(self, input_ids: Tensor) -> bool:
        """Whether this call begins a generation; remembers what it saw."""
        width = input_ids.shape[1]
        prompt = self.prompt
        fresh = (
            prompt is None
            or prompt.shape[0] != input_ids.shape[0]
            or not prompt.shape[1] <= width <= self.longest + 1
            or width == prompt.shape[1] < self.longest
            or not torch.equal(input_ids[:, : prompt.shape[1]], prompt)
        )
        if fresh:
            self.prompt, self.longest = input_ids.clone(), width
        self.longest = max(self.longest, width)
        return fresh
