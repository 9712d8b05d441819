"""One call under way: `Generation`, and how it begins.

Above `batch`, `plan` and `causal_lm`, below `strategy`, which makes its tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from logitkit.batch import Batch, expand
from logitkit.causal_lm import CausalLM
from logitkit.generation.limits import row_limits
from logitkit.generation.progress import Progress
from logitkit.generation.reach import Reach
from logitkit.generation.record import Record
from logitkit.generation.settings import Settings
from logitkit.generation.speculation import Speculation
from logitkit.params import ResolvedParams, resolve
from logitkit.sampler import Sampler
from logitkit.stage import Stage
from logitkit.stages.transformers_list import TransformersList
from logitkit.stops import StopRules

_BEHIND_PROCESSORS = ("grammar", "temperature")  # and the filters


@dataclass
class Generation:
    """One call under way: the model with its prompt, the batch, and what became of the rows.

    `limits` are the most new tokens of each row. `speculation` is what a speculative strategy tells
    at the end.
    """

    lm: CausalLM
    batch: Batch
    sampler: Sampler
    progress: Progress
    record: Record
    limits: list[int]
    speculation: Speculation | None = None


def begin(
    model: Any,
    input_ids: Tensor,
    settings: Settings,
    *,
    tokenizer: Any,
    stages: tuple[Stage, ...],
    backend: str,
    streamer: Any,
    keeps_logits: bool,
) -> Generation:
    """The generation for `input_ids` [B, L] before its first forward.

    What the call asks for and cannot be honoured is a ValueError here. `stages` are the strategy's;
    the caller's processors run among them, in front of the temperature.
    """
    inputs = dict(settings.model_inputs)
    mask = inputs.pop("attention_mask", None)
    lm = CausalLM(model, input_ids, mask, **inputs)
    resolved = [
        resolve(
            p,
            tokenizer=tokenizer,
            eos_token_ids=settings.eos_token_ids,
            vocab_size=lm.vocab_size,
        )
        for p in settings.params
    ]
    _check_logprobs(resolved, lm.vocab_size, settings.return_dict)
    params = expand(resolved, len(input_ids))
    lengths = lm.lengths.tolist()
    limits = row_limits(params, lengths, settings.max_new_tokens, lm)
    rules = [StopRules(p, tokenizer, limit) for p, limit in zip(params, limits, strict=True)]
    device = lm.lengths.device
    prompts = input_ids.to(device, torch.int64)
    pad = _pad(settings, params, limits)
    idle = pad if pad < lm.vocab_size else 0
    progress = Progress(prompts, rules, pad, idle, settings.criteria, streamer)
    if settings.processors:
        mine = TransformersList(settings.processors, prompts, idle, Reach(params, limits, progress))
        stages = _with_processors(stages, mine)
    batch = Batch.start(
        params,
        [row[len(row) - length :] for row, length in zip(prompts, lengths, strict=True)],
        stages,
        vocab_size=lm.vocab_size,
        room=min(max(limits), 1024) + 1,
        device=device,
        backend=backend,
    )
    record = Record(params, scores=settings.output_scores, logits=settings.output_logits)
    keeps_logits = keeps_logits or record.keeps_logits
    sampler = Sampler(batch.plan, params, keeps_logits=keeps_logits)
    return Generation(lm, batch, sampler, progress, record, limits)


def _with_processors(stages: tuple[Stage, ...], processors: TransformersList) -> tuple[Stage, ...]:
    """The chain with the caller's processors where transformers would run them."""
    behind = (i for i, s in enumerate(stages) if s.is_filter or s.op in _BEHIND_PROCESSORS)
    place = next(behind, len(stages))
    return (*stages[:place], processors, *stages[place:])


def _check_logprobs(params: Sequence[ResolvedParams], vocab_size: int, return_dict: bool) -> None:
    for p in params:
        if p.logprobs is not None and not return_dict:
            raise ValueError(
                f"`logprobs`={p.logprobs} has nowhere to go in a tensor of tokens: "
                "pass return_dict_in_generate=True"
            )
        if p.logprobs is not None and p.logprobs > vocab_size:
            raise ValueError(
                f"`logprobs`={p.logprobs}, but there are only {vocab_size} tokens: ask for fewer"
            )


def _pad(settings: Settings, params: Sequence[ResolvedParams], limits: Sequence[int]) -> int:
    """What stands behind the end of a row: the pad id, else the first eos id."""
    if settings.pad_token_id is not None:
        return settings.pad_token_id
    if settings.eos_token_ids:
        return settings.eos_token_ids[0]
    stops = any(p.stop or p.stop_token_ids or p.stop_regex for p in params)
    if len(params) > 1 and (stops or settings.criteria or len(set(limits)) > 1):
        raise ValueError(
            "`pad_token_id`: rows may end at different tokens, and neither a pad nor an eos id is "
            "known to fill the shorter ones; pass pad_token_id="
        )
    return 0
