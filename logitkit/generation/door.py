"""`generate`: our loop behind the signature of `model.generate`.

The door beside `pipeline`: it resolves keywords, checks the inputs, and hands the call to a
strategy.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import (
    MaxTimeCriteria,
    PrefixConstrainedLogitsProcessor,
    PreTrainedModel,
    StoppingCriteriaList,
)

from logitkit.causal_lm.checks import check_model
from logitkit.draft.sources import as_source
from logitkit.generation.keywords import Keywords, read_keywords
from logitkit.generation.settings import Settings
from logitkit.generation.speculative import Speculative, check_speculation
from logitkit.generation.strategy import GenerationStrategy, Sampling, as_requests
from logitkit.params import SamplingParams
from logitkit.params.checks import kind
from logitkit.params.fields import checked
from logitkit.pipeline.door import LogitsPipeline
from logitkit.stage import Stage
from logitkit.stages import DEFAULT_STAGES


def generate(
    model: PreTrainedModel,
    inputs: Tensor | None = None,
    generation_config: Any = None,
    logits_processor: Sequence[Any] | None = None,
    stopping_criteria: Sequence[Any] | None = None,
    prefix_allowed_tokens_fn: Callable[[int, Tensor], list[int]] | None = None,
    *,
    params: SamplingParams | Sequence[SamplingParams] | None = None,
    tokenizer: Any = None,
    streamer: Any = None,
    stages: Sequence[Stage] = DEFAULT_STAGES,
    backend: str = "auto",
    draft: Any = None,
    num_draft_tokens: int | str = "auto",
    verify: str = "exact",
    cost: Any = None,
    **keywords: Any,
) -> Any:
    """Generate text for a batch of prompts, each with its own parameters; as `model.generate`.

    `inputs` or `input_ids` [B, L] int64, left-padded, with `attention_mask` [B, L] (None: no
    padding; it is never guessed from ids). `params` is one `SamplingParams` for every prompt or a
    list with one per prompt; `n` samples make n rows, one after the other. Without `params`
    transformers' keywords, `generation_config` and the model file say how to sample, as there, but:
    a temperature, top_p, top_k or min_p without `do_sample` means sampling, and there is no default
    length of 20.

    How long: the request's `max_new_tokens`, else the call's, else the model file's, else until the
    context is full. `max_length` counts the padded prompt, as in transformers. `tokenizer` is
    needed for text (stop strings, bad words, `.texts`). `logits_processor` and
    `prefix_allowed_tokens_fn` run where transformers runs them: behind penalties and masks, before
    the temperature.

    `draft` makes it speculative: a draft source, a transformers model with the same tokenizer, or
    "ngram", "adjacency", "grammar", "auto"; with `num_draft_tokens`, `verify` and `cost` as
    `Speculative` takes them. With `verify="exact"` the tokens are those of plain decoding.

    Returns [B, L + T] int64, filled with the pad id (else the first eos id) behind a row's end, or
    with `return_dict_in_generate=True` a `DecoderOnlyOutput`: `.scores`, `.logits` (with
    `output_scores`, `output_logits`), `.lengths`, `.finish_reasons`, `.stop_matched`, `.texts`,
    `.logprobs`, `.top_logprobs`, `.top_token_ids`, `.num_survivors`, `.speculation`.

    Raises ValueError naming the keyword or field that is wrong or cannot be honoured. A request
    whose logits cannot be decided stops, the others finish, then `RowError` is raised with their
    result in `output` (the row's finish reason is "error"). Nothing of the model is changed.
    """
    try:
        check_model(model)
        speculates = _speculates(draft, num_draft_tokens, verify, cost)
        input_ids = _input_ids(inputs, keywords)
        words, model_inputs = read_keywords(
            keywords,
            generation_config,
            model.generation_config,
            inspect.signature(model.forward).parameters,
        )
        requests = _requests(params, words, input_ids, tokenizer)
        counts = torch.tensor([p.n for p in requests]).expand(len(input_ids))
        prompts = torch.arange(len(input_ids)).repeat_interleave(counts)  # [B] the row's prompt
        settings = Settings(
            params=requests,
            processors=_processors(logits_processor, prefix_allowed_tokens_fn, prompts),
            criteria=_criteria(stopping_criteria, words.merged.get("max_time")),
            max_new_tokens=words.max_new_tokens(input_ids.shape[1]),
            model_inputs=_repeated(model_inputs, len(input_ids), prompts),
            eos_token_ids=_eos(words),
            pad_token_id=_pad(words, tokenizer),
            return_dict=words.shows("return_dict_in_generate"),
            output_scores=words.shows("output_scores"),
            output_logits=words.shows("output_logits"),
        )
    except BaseException:
        if streamer is not None:
            streamer.end()
        raise
    common = {"stages": stages, "backend": backend, "streamer": streamer}
    strategy: GenerationStrategy = (
        Speculative(
            requests, tokenizer, draft=draft, num_draft_tokens=num_draft_tokens, verify=verify,
            cost=cost, **common,
        )
        if speculates
        else Sampling(requests, tokenizer, **common)
    )  # fmt: skip
    return strategy.generate(model, input_ids[prompts.to(input_ids.device)], settings)


def _speculates(draft: Any, num_draft_tokens: Any, verify: Any, cost: Any) -> bool:
    """Whether there is a draft; refuses what would mean nothing without one."""
    check_speculation(num_draft_tokens, verify, cost)
    if draft is not None:
        as_source(draft)
        return True
    given: dict[str, tuple[Any, Any]] = {
        "num_draft_tokens": (num_draft_tokens, "auto"),
        "verify": (verify, "exact"),
        "cost": (cost, None),
    }
    for name, (value, default) in given.items():
        if value != default:
            raise ValueError(f"`{name}`={value!r} means nothing without `draft`: pass draft=")
    return False


def _input_ids(inputs: Any, keywords: dict[str, Any]) -> Tensor:
    """The prompts [B, L]; takes `input_ids` out of the keywords."""
    given = keywords.pop("input_ids", None)
    if inputs is not None and given is not None:
        raise ValueError("`inputs` and `input_ids` are the same thing: give one of them")
    ids = inputs if given is None else given
    if isinstance(ids, Mapping):
        raise ValueError("`inputs` is a mapping: unpack it, generate(model, **inputs)")
    if ids is None:
        raise ValueError("`input_ids` is missing: give the prompts as a tensor [B, L]")
    if not isinstance(ids, Tensor):
        raise ValueError(
            f"`input_ids` is {kind(ids)}: give a tensor [B, L], for example "
            'tokenizer(texts, padding=True, padding_side="left", return_tensors="pt")'
        )
    if ids.ndim != 2 or 0 in ids.shape:
        raise ValueError(
            f"`input_ids` has shape {tuple(ids.shape)}: give [B, L] with at least one row and one "
            "token; a single prompt is input_ids[None]"
        )
    return ids


def _requests(
    params: Any, words: Keywords, input_ids: Tensor, tokenizer: Any
) -> tuple[SamplingParams, ...]:
    """One `SamplingParams` for all prompts or one each: `params`, or what the keywords say."""
    if params is None:
        if words.merged.get("stop_strings") and tokenizer is None:
            raise ValueError("`stop_strings` need text: pass tokenizer=")
        return (words.sampling_params(input_ids.shape[1]),)
    requests = as_requests(params)
    if len(requests) not in (1, len(input_ids)):
        raise ValueError(
            f"`params` has {len(requests)} entries for {len(input_ids)} prompts: "
            "give one SamplingParams for all, or one per prompt"
        )
    words.refuse_sampling()
    samples = words.call.get("num_return_sequences")
    if samples is not None and any(p.n != samples for p in requests):
        raise ValueError(
            f"`num_return_sequences`={samples} differs from the `n` of `params`: set `n` only"
        )
    return requests


def _eos(words: Keywords) -> tuple[int, ...]:
    eos = words.merged.get("eos_token_id")
    ids = [] if eos is None else torch.as_tensor(eos).flatten().tolist()
    return tuple(checked("eos_token_ids", ids, ()))


def _pad(words: Keywords, tokenizer: Any) -> int | None:
    """The pad id of the configs, else the tokenizer's."""
    pad = words.merged.get("pad_token_id")
    pad = getattr(tokenizer, "pad_token_id", None) if pad is None else int(pad)
    if pad is not None and pad < 0:
        raise ValueError(f"`pad_token_id` is {pad}: give a token id >= 0")
    return pad


def _processors(
    processors: Sequence[Any] | None,
    prefix_allowed_tokens_fn: Callable[[int, Tensor], list[int]] | None,
    prompts: Tensor,
) -> list[Any]:
    """The caller's processors, behind the one that asks `prefix_allowed_tokens_fn`."""
    found = list(processors or ())
    for processor in found:
        if isinstance(processor, LogitsPipeline):
            raise ValueError(
                "`logits_processor` holds a LogitsPipeline, which is for model.generate: "
                "pass its SamplingParams as params="
            )
        if not callable(processor):
            raise ValueError(f"`logits_processor` holds {processor!r}, which cannot be called")
    if prefix_allowed_tokens_fn is None:
        return found
    prompt_of = prompts.tolist()

    def allowed(row: int, ids: Tensor) -> list[int]:
        return prefix_allowed_tokens_fn(prompt_of[row], ids)

    return [PrefixConstrainedLogitsProcessor(allowed, num_beams=1), *found]


def _criteria(
    criteria: Sequence[Any] | None, max_time: float | None
) -> StoppingCriteriaList | None:
    found = list(criteria or ())
    if max_time is not None:
        found.append(MaxTimeCriteria(max_time=max_time))
    return StoppingCriteriaList(found) if found else None


def _repeated(model_inputs: dict[str, Any], num_prompts: int, prompts: Tensor) -> dict[str, Any]:
    """The model's inputs with one entry per row, where `prompts` [B] is the prompt of every row."""
    if len(prompts) == num_prompts:
        return model_inputs
    repeated = {}
    for name, value in model_inputs.items():
        if isinstance(value, Tensor):
            dim = value.ndim - 2 if name == "position_ids" else 0
            if value.shape[dim] != num_prompts:
                raise ValueError(
                    f"`{name}` has shape {tuple(value.shape)}, which has no entry per prompt to "
                    "repeat for `n` > 1: repeat the prompts n times instead, each with n=1"
                )
            value = value.index_select(dim, prompts.to(value.device))
        repeated[name] = value
    return repeated
