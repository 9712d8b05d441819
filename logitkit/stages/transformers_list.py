"""The stage that runs the caller's transformers processors inside our chain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass

import torch
from torch import Tensor

from logitkit.ops import reference
from logitkit.params import SamplingParams
from logitkit.rows import Rows
from logitkit.stage import Stage

Processor = Callable[[Tensor, Tensor], Tensor]
Reach = Callable[[Rows], Tensor]


@dataclass(frozen=True, eq=False)
class TransformersList(Stage):
    """Calls each processor with (input_ids [B, L], scores [B, V] float32), as transformers does.

    All B rows are shown in slot order: `prompts` [B, P] as they were given, padding included, then
    the row's new tokens. Every number of new tokens is one call, in which the rows that see so many
    are shown as plain decoding shows them: others up to as many, or further to the right behind
    more of `pad`. Processors get their own copy and may edit it in place. `running` tells which
    slots still matter ([B] bool, None for all).
    """

    processors: InitVar[Sequence[Processor]] = ()
    prompts: InitVar[Tensor | None] = None
    pad: InitVar[int] = 0
    reach: InitVar[Reach | None] = None

    def __post_init__(
        self,
        processors: Sequence[Processor],
        prompts: Tensor | None,
        pad: int,
        reach: Reach | None,
    ) -> None:
        assert prompts is not None and reach is not None
        object.__setattr__(self, "_call", _Call(tuple(processors), prompts, pad))
        object.__setattr__(self, "_reach", reach)

    def is_neutral(self, params: SamplingParams) -> bool:
        return False

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        call: _Call = self.__dict__["_call"]
        reached = self.__dict__["_reach"](rows)
        new = rows.num_generated
        out = logits.clone()
        for num_new in sorted(set(new[reached].tolist())):
            (index,) = (reached & (new == num_new)).nonzero(as_tuple=True)
            if not len(index):  # all of them are behind a masked token by now
                continue
            here = rows.select(index)
            if len(index) == len(rows) == len(call.slots):  # every slot, once
                return call.run(out, here, num_new)
            full = out.new_zeros(len(call.slots), out.shape[-1])
            full[here.slot] = out[index]
            out[index] = call.run(full, here, num_new)[here.slot]
            reached &= ~_behind_a_masked_token(out[index], here, rows)
        return out

    def culprit(self, logits: Tensor, row: Rows) -> str:
        """Which processor makes NaN or +inf out of a row's logits [1, V]; "" if none does now."""
        call: _Call = self.__dict__["_call"]
        scores = logits.new_zeros(len(call.slots), logits.shape[-1])
        scores[row.slot] = logits
        num_new = int(row.num_generated)
        for processor in call.processors:
            alone = _Call((processor,), call.prompts, call.pad)
            scores = alone.run(scores, row, num_new)
            if bool(reference.unusable(scores[row.slot])):
                return f"the processor {type(processor).__name__} returned them"
        return ""


def _behind_a_masked_token(logits: Tensor, here: Rows, rows: Rows) -> Tensor:
    """Which of `rows` stand behind a drafted token that `logits` of the rows `here` mask, [R]."""
    tokens = rows.history.tokens
    drafted = tokens[here.slot, here.position.clamp_max(tokens.shape[1] - 1)]
    masked = logits.gather(1, drafted.clamp_max(logits.shape[1] - 1)[:, None]).squeeze(1)
    depth = rows.depth.new_full((len(tokens),), torch.iinfo(rows.depth.dtype).max)
    depth[here.slot] = torch.where(masked == -torch.inf, here.depth, depth[here.slot])
    return rows.depth > depth[rows.slot]


class _Call:
    """The processors, and what transformers would show them."""

    def __init__(self, processors: tuple[Processor, ...], prompts: Tensor, pad: int) -> None:
        self.processors = processors
        self.prompts = prompts
        self.pad = pad
        self.slots = torch.arange(len(prompts), device=prompts.device)

    def run(self, scores: Tensor, rows: Rows, num_new: int) -> Tensor:
        """The scores [B, V] after every processor, as behind `num_new` tokens."""
        input_ids = self.input_ids(rows, num_new)
        for processor in self.processors:
            shape = scores.shape
            scores = processor(input_ids, scores)
            if not isinstance(scores, Tensor) or scores.shape != shape:
                what = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
                raise ValueError(
                    f"`logits_processor`: {type(processor).__name__} returned {what}; "
                    f"it must return scores of shape {tuple(shape)}"
                )
        return scores.float()

    def input_ids(self, rows: Rows, num_new: int) -> Tensor:
        """The ids of all slots, [B, P + num_new]."""
        history, width = rows.history, self.prompts.shape[1]
        seen = history.head.clone()
        seen[rows.slot] = rows.position
        new = (seen - history.prompt_length).clamp_max(num_new)
        place = torch.arange(width + num_new, device=seen.device) - (num_new - new)[:, None]
        own = (history.prompt_length[:, None] + place - width).clamp(0, history.tokens.shape[1] - 1)
        ids = torch.where(
            place < width,
            self.prompts.gather(1, place.clamp(0, width - 1)),
            history.tokens.gather(1, own),
        )
        return ids.masked_fill(place < 0, self.pad)
