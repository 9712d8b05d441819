"""What `logitkit demo` shows: four requests in one batch, the plan, the speed and the cost.

Called by `cli`. It uses the public names only, as a reader of its source would.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text

import logitkit as lk
from logitkit.demo.model import load_demo_model, load_model

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import BatchEncoding, PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Request:
    """One row of the demo's batch: a name to show, a prompt, and what it asks of the sampler."""

    name: str
    prompt: str
    fields: dict[str, Any]

    def params(self, seed: int, max_new_tokens: int) -> lk.SamplingParams:
        return lk.SamplingParams(sampling_seed=seed, max_new_tokens=max_new_tokens, **self.fields)


REQUESTS = (
    Request("greedy", "What is the capital of France?", {"temperature": 0.0}),
    Request(
        "chat",
        "Explain in two sentences why the sky is blue.",
        {"temperature": 0.7, "top_k": 50, "top_p": 0.9, "min_p": 0.05, "repetition_penalty": 1.1},
    ),
    Request(
        "list",
        "List ten animals, one per line.",
        {"temperature": 0.8, "min_p": 0.1, "frequency_penalty": 0.4, "presence_penalty": 0.2},
    ),
    Request(
        "story",
        "Write the opening of a strange story about a lighthouse.",
        {
            "temperature": 1.3,
            "top_n_sigma": 1.0,
            "dry_multiplier": 0.8,
            "xtc_probability": 0.3,
            "xtc_threshold": 0.1,
        },
    ),
)

# What transformers has processors for too: the two are timed on these.
SHARED: dict[str, Any] = {
    "repetition_penalty": 1.1,
    "temperature": 0.7,
    "top_k": 50,
    "top_p": 0.9,
    "min_p": 0.05,
}
REPETITIONS = 50

Draw = Callable[["Tensor", "Tensor"], "Tensor"]


def run(model_name: str | None, *, max_new_tokens: int, seed: int) -> None:
    """Print the demo for a Hub id or local folder, or, with None, for the demo model.

    Raises what `model` raises, and ValueError for a seed or length that is out of range.
    """
    console = Console(highlight=False, soft_wrap=True)
    params = [request.params(seed, max_new_tokens) for request in REQUESTS]
    model, tokenizer = load_demo_model() if model_name is None else load_model(model_name)
    inputs = _encode(tokenizer).to(model.device)

    first = [replace(p, max_new_tokens=1) for p in params]
    lk.generate(model, **inputs, params=first, tokenizer=tokenizer)  # compiles the kernels
    start = time.perf_counter()
    out = lk.generate(
        model, **inputs, params=params, tokenizer=tokenizer, return_dict_in_generate=True
    )
    seconds = time.perf_counter() - start

    ids, logits = _one_step(model, inputs, out)
    prompt_lengths = inputs["attention_mask"].sum(1).tolist()
    mixed = _pipeline([replace(p, max_new_tokens=None) for p in params], tokenizer, prompt_lengths)
    mixed.sample(ids, logits)
    same = _pipeline(lk.SamplingParams(**SHARED, sampling_seed=seed), tokenizer, prompt_lengths)
    took = _medians(
        {"mixed": mixed.sample, "same": same.sample, "transformers": _transformers_draw()},
        ids,
        logits,
    )

    console.print(_answers(out))
    console.print("[bold]The plan[/] of these four requests:")
    console.print(str(mixed.plan), markup=False)
    tokens, steps = int(out.lengths.sum()), int(out.lengths.max())
    console.print(
        f"\n[bold]{tokens / seconds:.1f} tokens/s[/]: {tokens} tokens in {seconds:.1f} s, "
        f"{1e3 * seconds / steps:.1f} ms a step\n"
    )
    console.print(_costs(took))


def _encode(tokenizer: PreTrainedTokenizerBase) -> BatchEncoding:
    """Return the prompts of all requests as one batch, in the model's chat format if it has one."""
    texts: Any = [request.prompt for request in REQUESTS]
    chat = tokenizer.chat_template is not None
    if chat:
        chats = [[{"role": "user", "content": text}] for text in texts]
        texts = tokenizer.apply_chat_template(chats, tokenize=False, add_generation_prompt=True)
    batch: BatchEncoding = tokenizer(
        texts, padding=True, return_tensors="pt", add_special_tokens=not chat
    )
    return batch


def _one_step(model: PreTrainedModel, inputs: BatchEncoding, out: Any) -> tuple[Tensor, Tensor]:
    """Return ids [B, L] and logits [B, V] float32 of the last step in which all requests ran."""
    prompt_mask = inputs["attention_mask"]
    new = int(out.lengths.min()) - 1
    ids = out.sequences[:, : prompt_mask.shape[1] + new]
    mask = torch.cat([prompt_mask, prompt_mask.new_ones(len(ids), new)], 1)
    with torch.inference_mode():
        logits = model(input_ids=ids, attention_mask=mask, logits_to_keep=1).logits
    return ids, logits[:, -1].float()


def _pipeline(
    params: lk.SamplingParams | list[lk.SamplingParams],
    tokenizer: PreTrainedTokenizerBase,
    prompt_lengths: list[int],
) -> lk.LogitsPipeline:
    pipe = lk.LogitsPipeline(params, tokenizer=tokenizer)
    pipe.reset(prompt_lengths=prompt_lengths)
    return pipe


def _transformers_draw() -> Draw:
    """Return a function that draws as transformers' own loop does with the `SHARED` fields."""
    from transformers import (
        LogitsProcessorList,
        MinPLogitsWarper,
        RepetitionPenaltyLogitsProcessor,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    processors: Any = LogitsProcessorList(
        [
            RepetitionPenaltyLogitsProcessor(SHARED["repetition_penalty"]),
            TemperatureLogitsWarper(SHARED["temperature"]),
            TopKLogitsWarper(SHARED["top_k"]),
            TopPLogitsWarper(SHARED["top_p"]),
            MinPLogitsWarper(SHARED["min_p"]),
        ]
    )
    return lambda ids, logits: torch.multinomial(processors(ids, logits).softmax(-1), 1)


def _medians(draws: dict[str, Draw], ids: Tensor, logits: Tensor) -> dict[str, float]:
    """Return the median time of each function in ms, taking turns so that all see the same load."""
    times: dict[str, list[float]] = {name: [] for name in draws}
    for _ in range(REPETITIONS):
        for name, draw in draws.items():
            start = time.perf_counter()
            draw(ids, logits)
            times[name].append(1e3 * (time.perf_counter() - start))
    return {name: median(values) for name, values in times.items()}


def _answers(out: Any) -> Table:
    table = Table(title="Four requests, one batch", title_justify="left", show_lines=True)
    table.add_column("request")
    table.add_column("parameters", max_width=30)
    table.add_column("prompt and answer", ratio=1)
    table.add_column("tokens", justify="right")
    table.add_column("end")
    for row, request in enumerate(REQUESTS):
        fields = "\n".join(f"{name}={value}" for name, value in request.fields.items())
        answer = Text.assemble((request.prompt, "dim"), "\n", out.texts[row].strip())
        length, reason = str(int(out.lengths[row])), str(out.finish_reasons[row])
        table.add_row(request.name, fields, answer, length, reason)
    return table


def _costs(took: dict[str, float]) -> Table:
    title = f"Logits to tokens, {len(REQUESTS)} rows (medians of {REPETITIONS})"
    table = Table(title=title, title_justify="left")
    table.add_column("what")
    table.add_column("ms", justify="right")
    table.add_column("times", justify="right")
    fields = ", ".join(f"{name} {value}" for name, value in SHARED.items())
    for name, what in (
        ("transformers", f"transformers' processors, softmax, multinomial: {fields}"),
        ("same", "logitkit, the same parameters"),
        ("mixed", "logitkit, the four requests above"),
    ):
        ratio = took["transformers"] / took[name]
        table.add_row(what, f"{took[name]:.3f}", f"{ratio:.1f}x")
    return table
