"""The stage that runs the caller's transformers processors inside our chain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass

import torch
from torch import Tensor

from logitkit.params import SamplingParams
from logitkit.rows import Rows
from logitkit.stage import Stage

Processor = Callable[[Tensor, Tensor], Tensor]
Running = Callable[[], Tensor | None]


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
    running: InitVar[Running] = lambda: None

    def __post_init__(
        self,
        processors: Sequence[Processor],
        prompts: Tensor | None,
        pad: int,
        running: Running,
    ) -> None:
        assert prompts is not None
        object.__setattr__(self, "_call", _Call(tuple(processors), prompts, pad))
        object.__setattr__(self, "_running", running)

    def is_neutral(self, params: SamplingParams) -> bool:
        return False

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        call: _Call = self.__dict__["_call"]
        running = self.__dict__["_running"]()
        new = rows.num_generated
        matters = new if running is None else new[running[rows.slot]]
        matters = matters if len(matters) else new  # asked about a row that is over: an error's
        out = logits.clone()
        for num_new in sorted(set(matters.tolist())):
            (index,) = (new == num_new).nonzero(as_tuple=True)
            if len(index) == len(rows) == len(call.slots):  # every slot, once
                out = call.run(out, rows, num_new)
                continue
            here = rows.select(index)
            full = out.new_zeros(len(call.slots), out.shape[-1])
            full[here.slot] = out[index]
            out[index] = call.run(full, here, num_new)[here.slot]
        return out


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
