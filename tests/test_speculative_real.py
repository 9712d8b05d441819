"""Speculation on the demo model: the same text with every source; bfloat16 differs in near ties."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

import logitkit as lk

STORY = (
    "The lighthouse keeper climbed the stairs every evening at six. He lit the lamp, wound the "
    "clock, and wrote the weather in a small blue book."
)
CODE = "def area(w, h):\n    return w * h\n"
PROMPTS = [
    f"Repeat this text word for word:\n{STORY}",
    'Write a JSON array of three people with the keys "name" and "age".',
    "Write a Python function that adds two numbers.",
    f"Summarise in one sentence:\n{STORY}",
    "What is the capital of France?",
    f"Copy the code and rename w to width:\n{CODE}",
    "Give me three tips for learning to swim.",
    "Explain why the sky is blue to a child.",
    "Write a short poem about autumn.",
    "List the days of the week, one per line.",
    f"Correct the spelling, change nothing else:\n{STORY.replace('weather', 'wether')}",
    "Write an HTML list of three fruits.",
    "Translate to French: The cat sits on the table.",
    "What is 12 times 12? Explain step by step.",
    "Write a SQL query that counts the users per country.",
    f"Translate to German:\n{STORY}",
    "Who wrote Romeo and Juliet?",
    "Write a haiku about rain.",
    "Describe a bicycle to someone who has never seen one.",
    'Write a JSON object with the keys "title", "year" and "tags".',
    "Count from one to twenty in words.",
    f"Repeat the code twice:\n{CODE}",
    "Name five animals that live in the sea.",
    "Write a letter of two sentences to a friend.",
    "What should I pack for a trip to the mountains?",
    "Write a regular expression for a date.",
    f"Rewrite in capital letters:\n{STORY}",
    "Tell me a joke about a programmer.",
    "Define the word entropy.",
    "Write three questions about history.",
]
SOURCES = ("ngram", "adjacency", "auto", "itself")


def ids_of(tokenizer: Any, prompt: str) -> Tensor:
    chat = [{"role": "user", "content": prompt}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    ids: Tensor = tokenizer(text, return_tensors="pt")["input_ids"]
    return ids


def compare(smollm2: Any, prompts: list[str], temperature: float, num_tokens: int) -> None:
    model, tokenizer = smollm2
    params = lk.SamplingParams(
        temperature=temperature, top_p=0.95, sampling_seed=5, max_new_tokens=num_tokens
    )
    for prompt in prompts:
        ids = ids_of(tokenizer, prompt)
        plain = lk.generate(model, ids, params=params, tokenizer=tokenizer)
        for source in SOURCES:
            draft = model if source == "itself" else source
            out = lk.generate(
                model, ids, params=params, tokenizer=tokenizer, draft=draft, num_draft_tokens=4,
                return_dict_in_generate=True,
            )  # fmt: skip
            assert torch.equal(out.sequences, plain), (prompt, source)
            if source == "itself":
                assert out.speculation.acceptance_rate == 1.0


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_text_with_each_source_equals_the_text_without(
    smollm2: Any, temperature: float
) -> None:
    compare(smollm2, PROMPTS[:2], temperature, 16)


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_thirty_texts_with_each_source_equal_those_without(
    smollm2: Any, temperature: float
) -> None:
    compare(smollm2, PROMPTS, temperature, 40)


@pytest.mark.slow
def test_in_bfloat16_texts_part_only_at_near_ties(smollm2: Any) -> None:
    """The two best logits of a row that parts are within 2 units of their last place (0.25)."""
    model, tokenizer = smollm2
    model = copy.deepcopy(model).to(torch.bfloat16)
    params = lk.SamplingParams(temperature=0, max_new_tokens=48)
    tokens = parted = 0
    for prompt in PROMPTS:
        ids = ids_of(tokenizer, prompt)
        keywords: dict[str, Any] = {
            "params": params, "tokenizer": tokenizer, "return_dict_in_generate": True,
            "output_logits": True,
        }  # fmt: skip
        plain = lk.generate(model, ids, **keywords)
        out = lk.generate(model, ids, draft="ngram", num_draft_tokens=6, **keywords)
        width = ids.shape[1]
        for i, (one, other) in enumerate(
            zip(plain.sequences[0, width:], out.sequences[0, width:], strict=False)
        ):
            tokens += 1
            if one != other:
                best = plain.logits[i][0].topk(2).values
                assert float(best[0] - best[1]) <= 0.25, prompt
                parted += 1
                break
    print(f"{parted} of {len(PROMPTS)} texts parted, once in {tokens // max(1, parted)} tokens")
