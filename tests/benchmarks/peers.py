"""The peers of the benchmarks: closures that do one sampling step on given logits and histories.

Each takes the same parameters as ours. llama.cpp and vLLM take part when they can be imported.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import LogitsProcessorList
from transformers.generation import logits_process as hf

import logitkit as lk

Step = Callable[[], Any]


def ours(logits: Tensor, ids: Tensor, prompt_length: int, fields: dict[str, Any]) -> Step:
    """`pipe.sample` as a serving loop calls it, Python included."""
    pipe = lk.LogitsPipeline(lk.SamplingParams(sampling_seed=1, **fields))
    pipe.reset(prompt_lengths=prompt_length)
    return lambda: pipe.sample(ids, logits)


class OutputPenalties(hf.LogitsProcessor):  # type: ignore[misc]
    """Presence and frequency penalties, which transformers lacks, in the plainest batched torch."""

    def __init__(self, prompt_length: int, presence: float, frequency: float) -> None:
        self.prompt_length, self.presence, self.frequency = prompt_length, presence, frequency

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        output = input_ids[:, self.prompt_length :]
        counts = torch.zeros_like(scores).scatter_add_(
            1, output, torch.ones_like(output, dtype=scores.dtype)
        )
        return scores - self.frequency * counts - self.presence * (counts > 0)


def transformers(logits: Tensor, ids: Tensor, prompt_length: int, fields: dict[str, Any]) -> Step:
    """transformers' own processors in its own order, then softmax and multinomial."""
    makers: dict[str, Callable[[Any], Any]] = {
        "repetition_penalty": hf.RepetitionPenaltyLogitsProcessor,
        "temperature": hf.TemperatureLogitsWarper,
        "top_k": hf.TopKLogitsWarper,
        "top_p": hf.TopPLogitsWarper,
        "min_p": hf.MinPLogitsWarper,
    }
    chain = LogitsProcessorList(make(fields[key]) for key, make in makers.items() if key in fields)
    if "presence_penalty" in fields:
        penalties = OutputPenalties(
            prompt_length, fields["presence_penalty"], fields["frequency_penalty"]
        )
        chain.insert(1, penalties)
    return lambda: torch.multinomial(chain(ids, logits).softmax(-1), 1)


def llama_cpp(
    logits: Tensor, ids: Tensor, prompt_length: int, fields: dict[str, Any]
) -> tuple[Step, Step] | None:
    """(refill, apply) of llama.cpp's sampler chain, one per row, or None where it is missing.

    Only `apply` is to be timed: filling the candidate arrays is left out, in llama.cpp's favour.
    """
    if importlib.util.find_spec("llama_cpp") is None:
        return None
    import llama_cpp as lib

    width = logits.shape[1]
    candidates = np.zeros(width, dtype=[("id", np.int32), ("logit", np.float32), ("p", np.float32)])
    rows, chains, arrays = [], [], []
    for row, history in zip(logits.numpy(), ids.tolist(), strict=True):
        chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        if "repetition_penalty" in fields:
            sampler = lib.llama_sampler_init_penalties(
                width, len(history), fields["repetition_penalty"],
                fields["frequency_penalty"], fields["presence_penalty"],
            )  # fmt: skip
            lib.llama_sampler_chain_add(chain, sampler)
        if "top_k" in fields:
            lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_top_k(fields["top_k"]))
        if "top_p" in fields:
            lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_top_p(fields["top_p"], 1))
        if "min_p" in fields:
            lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_min_p(fields["min_p"], 1))
        lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_temp(fields["temperature"]))
        lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_dist(1))
        for token in history:
            lib.llama_sampler_accept(chain, token)
        own = candidates.copy()
        array = lib.llama_token_data_array()
        array.data = ctypes.cast(own.ctypes.data, ctypes.POINTER(lib.llama_token_data))
        rows.append((own, row, array))
        chains.append(chain)
        arrays.append(ctypes.byref(array))

    def refill() -> None:
        for own, row, array in rows:
            own["id"], own["logit"], own["p"] = np.arange(width), row, 0.0
            array.size, array.selected, array.sorted = width, -1, False

    def apply() -> None:
        for chain, array in zip(chains, arrays, strict=True):
            lib.llama_sampler_apply(chain, array)

    return refill, apply


def vllm(logits: Tensor, fields: dict[str, Any]) -> Step | None:
    """vLLM's own top-k/top-p op for CPUs behind its temperature, or None where it is missing."""
    if importlib.util.find_spec("vllm") is None:
        return None
    from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p, random_sample

    size = logits.shape[0]
    k = torch.full((size,), fields["top_k"]) if "top_k" in fields else None
    p = torch.full((size,), fields["top_p"]) if "top_p" in fields else None

    def step() -> Any:
        scaled = apply_top_k_top_p(logits / fields["temperature"], k, p)
        return random_sample(scaled.softmax(-1, dtype=torch.float32), {})

    return step
