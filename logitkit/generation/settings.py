"""`Settings`: what a door has decided about one call; the strategies read nothing else of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from logitkit.generation.progress import Criteria
from logitkit.params import SamplingParams
from logitkit.stages.transformers_list import Processor


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a door has decided about one call.

    `params`: one per prompt, or one for all. `max_new_tokens` serves requests that name none (None:
    as much as the context holds). `pad_token_id` None: not known. `criteria` are called as
    transformers calls its own.
    """

    params: Sequence[SamplingParams]
    eos_token_ids: tuple[int, ...] = ()
    pad_token_id: int | None = None
    max_new_tokens: int | None = None
    processors: Sequence[Processor] = ()
    criteria: Criteria | None = None
    return_dict: bool = False
    output_scores: bool = False
    output_logits: bool = False
    model_inputs: dict[str, Any] = field(default_factory=dict)
