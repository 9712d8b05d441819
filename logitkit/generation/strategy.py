"""`GenerationStrategy`: the loop `forward -> logits -> stages -> token`; `Sampling`: the plain one.

Above `call` (one call under way), below the doors. A strategy is also a valid
`custom_generate=` callable of transformers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from logitkit.errors import RowError
from logitkit.generation.call import Generation, begin
from logitkit.generation.custom_generate import settings as settings_from_transformers
from logitkit.generation.settings import Settings
from logitkit.ops import OK
from logitkit.params import SamplingParams
from logitkit.params.checks import shown
from logitkit.params.words import check_tokenizer
from logitkit.plan import Plan
from logitkit.rows import Rows
from logitkit.sampler import Choice
from logitkit.stage import Stage
from logitkit.stages import DEFAULT_STAGES


def as_requests(params: Any) -> tuple[SamplingParams, ...]:
    """`params`, one or several, as a tuple; raises ValueError for what is no SamplingParams."""
    is_several = isinstance(params, Iterable) and not isinstance(params, str | Mapping)
    several = tuple(params) if is_several else (params,)
    for p in several:
        if not isinstance(p, SamplingParams):
            raise ValueError(
                f"`params` holds {shown(p)}: give SamplingParams, one or one per prompt"
            )
    if not several:
        raise ValueError("`params` is empty: give SamplingParams, one or one per prompt")
    return several


class GenerationStrategy(ABC):
    """How tokens are made, once the doors have said what is wanted.

    `params` is one `SamplingParams` or a list with one per prompt; None reads transformers'
    generation config. `tokenizer` is needed for text (stop strings, bad words, `.texts`).
    As `model.generate(custom_generate=...)` it keeps the caller's processors and criteria;
    transformers hands on neither `streamer=` nor `tokenizer=`, so give them here.

    A strategy of your own defines `run`; with `keeps_logits` every choice shows the logits that it
    was made from.
    """

    keeps_logits = False

    def __init__(
        self,
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        tokenizer: Any = None,
        *,
        stages: Sequence[Stage] = DEFAULT_STAGES,
        backend: str = "auto",
        streamer: Any = None,
    ) -> None:
        if tokenizer is not None:
            check_tokenizer(tokenizer, "decode")
        self.params = None if params is None else as_requests(params)
        self.tokenizer = tokenizer
        self.stages = tuple(stages)
        self.backend = backend
        self.streamer = streamer

    if not TYPE_CHECKING:  # before __init__ wonders about transformers' keywords

        def __new__(cls, *args, **kwargs):
            if "generation_config" in kwargs:
                raise ValueError(
                    f"`custom_generate` is the class {cls.__name__}: give an object of it, "
                    f"custom_generate={cls.__name__}(params)"
                )
            return super().__new__(cls)

    def __call__(
        self,
        model: Any,
        input_ids: Tensor,
        logits_processor: Any = None,
        stopping_criteria: Any = None,
        generation_config: Any = None,
        **model_kwargs: Any,
    ) -> Any:
        """What transformers calls with `custom_generate=`; the rows are expanded already.

        Without params of the strategy's own, `generation_config` says how to sample. With params it
        gives eos and length; what the model file asks of sampling gives way, and what the call
        itself asks of it is refused by name.
        """
        # No model input may be named in this signature: transformers would take it out.
        settings = settings_from_transformers(
            input_ids, self.params, logits_processor or (), stopping_criteria or (),
            generation_config, getattr(model, "generation_config", None), model_kwargs,
        )  # fmt: skip
        return self.generate(model, input_ids, settings)

    @torch.no_grad()
    def generate(self, model: Any, input_ids: Tensor, settings: Settings) -> Any:
        """Run one call on `input_ids` [B, L], one line per row (`n` samples are `n` lines).

        Returns [B, L + T] int64, or a `DecoderOnlyOutput` with `return_dict`. A request whose row
        cannot be decided stops; the others finish, then its `RowError` is raised with their result
        in `output`.
        """
        streamer = self.streamer
        try:
            generation = begin(
                model, input_ids, settings, tokenizer=self.tokenizer, stages=self.stages,
                backend=self.backend, streamer=streamer, keeps_logits=self.keeps_logits,
            )  # fmt: skip
            if streamer is not None:
                streamer.put(input_ids.cpu())
            self.run(generation)
        finally:
            if streamer is not None:
                streamer.end()
        return _finished(generation, settings, input_ids, texts=self.tokenizer is not None)

    @abstractmethod
    def run(self, generation: Generation) -> None:
        """Make tokens until every row is over."""


class Sampling(GenerationStrategy):
    """Plain decoding: one forward, one token per row."""

    def run(self, generation: Generation) -> None:
        lm, progress = generation.lm, generation.progress
        logits = lm.prefill().to(generation.batch.device)
        while True:
            rows = generation.batch.rows()
            take(generation, logits, rows, generation.sampler.choose(logits, rows))
            if progress.done:
                return
            logits = lm(progress.tokens[:, None])[:, -1].to(generation.batch.device)


def take(
    generation: Generation,
    logits: Tensor,
    rows: Rows,
    choice: Choice,
    num_tokens: Sequence[int] | None = None,
) -> Tensor:
    """Give every running row its new tokens, up to its end; returns how many each took, [B] int64.

    logits [B * n, V] and `choice` belong to `rows`, n per request; of a request's n tokens the
    first `num_tokens` [B] count (None: all). Rows that could not be decided end by an error.
    """
    batch, progress = generation.batch, generation.progress
    tokens = choice.tokens.view(len(batch), -1)
    n = tokens.shape[1]
    start = list(progress.lengths)
    took, failed = progress.advance(tokens, [n] * len(batch) if num_tokens is None else num_tokens)
    taken = [now - before for now, before in zip(progress.lengths, start, strict=True)]
    progress.failures += [
        _failure(batch.plan, logits, rows, choice, slot, taken) for slot in failed
    ]
    if any(taken):
        generation.record.add(logits, choice, tokens, start, taken)
        batch.commit(tokens.clamp_min(0), took)
    if any(taken) or failed:  # rows that wait for nobody any more are shown to their end
        progress.show(generation.record.scores)
    return tokens.new_full((len(batch),), n) if took is None else took


def _failure(
    plan: Plan,
    logits: Tensor,
    rows: Rows,
    choice: Choice,
    failed: int,
    taken: Sequence[int],
) -> RowError:
    """The error for the request `failed`, whose row behind `taken` could not be decided."""
    n = len(rows) // len(taken)
    place = [slot * n + min(count, n - 1) for slot, count in enumerate(taken)]
    index = torch.tensor(place, device=choice.tokens.device)
    status = torch.full_like(index, OK)
    status[failed] = choice.status[index[failed]].to(status.dtype)
    try:
        plan.refuse(logits[index], rows.select(index), status, choice.tokens[index])
    except RowError as error:
        return error


def _finished(generation: Generation, settings: Settings, input_ids: Tensor, texts: bool) -> Any:
    """What the call returns; raises the first failure, with the result in `output`.

    The first is that of the earliest token, whichever step came to it, then of the lowest slot.
    """
    progress = generation.progress
    progress.settle(input_ids.device)
    result: Any = progress.sequences
    if settings.return_dict:
        pad = settings.pad_token_id
        result = generation.record.output(
            progress, generation.lm.cache, pad, texts=texts, speculation=generation.speculation
        )
    if not progress.failures:
        return result
    first, *later = sorted(progress.failures, key=progress.place)
    for other in later:
        first.add_note(f"later: {other}")
        first.slots = (*first.slots, *other.slots)
    first.output = result
    raise first
