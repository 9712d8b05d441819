"""How much time drafts save: prompts of several kinds, each way of decoding side by side.

Run: python examples/bench_speculative.py [--dtype bfloat16] [--repeats 5] [--tokens 96] [--quick]
     python examples/bench_speculative.py --batch 8      # prompts side by side in one batch

Times are per new token, as ratios to `model.generate` in the same round: every round runs all the
ways on one prompt, one after the other, beginning with another one each time. A prompt's figure is
the median of its rounds, a table's figure the geometric mean of its prompts.
"""

import argparse
import json
import math
import statistics
import time
from itertools import cycle, islice, zip_longest
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import logitkit as lk
from logitkit.demo import load_demo_model

STORY = (
    "The lighthouse keeper climbed the stairs every evening at six. He lit the lamp, wound the "
    "clock, and wrote the weather in a small blue book. On the last night of October the wind "
    "turned north, and the sea threw stones against the door."
)
CODE = """def area(w, h):
    return w * h

def volume(w, h, d):
    return area(w, h) * d
"""
PROMPTS = {
    "copy": [
        f"Repeat this text word for word:\n{STORY}",
        f"Copy the code and rename w to width:\n{CODE}",
        f"Correct the spelling, change nothing else:\n{STORY.replace('weather', 'wether')}",
    ],
    "summary": [
        f"Summarise in two sentences:\n{STORY}",
        f"List the facts of this text as bullet points:\n{STORY}",
    ],
    "code": [
        "Write a Python function that returns the n-th Fibonacci number, with a docstring.",
        "Write an HTML page with a heading, a paragraph and a list of three fruits.",
    ],
    "json": [
        'Write a JSON array of three people with the keys "name", "age" and "city".',
    ],
    "chat": [
        "What is the capital of France and why is it famous?",
        "Give me three tips for learning to swim.",
        "Explain why the sky is blue to a child.",
        "Write a short poem about autumn.",
    ],
}
Way = dict[str, Any]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--tokens", type=int, default=96)
    options.add_argument("--temperature", type=float, nargs="*", default=[0.0, 0.8])
    options.add_argument("--batch", type=int, default=1, help="rows of a call")
    options.add_argument("--quick", action="store_true", help="two calls, one round")
    options.add_argument("--json", help="write the figures to this file")
    given = options.parse_args()
    calls = [(kind, [text]) for kind, texts in PROMPTS.items() for text in texts]
    if given.batch > 1:
        calls = batches(given.batch)
    if given.quick:
        calls = [calls[0], calls[-1]]
        given.repeats = 1
    model, tokenizer = load_demo_model()
    model = model.to(getattr(torch, given.dtype))
    figures = {}
    for temperature in given.temperature:
        rows = [measure(model, tokenizer, *call, temperature, given) for call in calls]
        show(rows, temperature)
        figures[f"temperature {temperature}"] = rows
    print(f"JSON under a schema, auto against draft=None: {under_a_schema(model, tokenizer):.2f}")
    if given.json:
        with open(given.json, "w") as file:
            json.dump(figures, file, indent=1)


def batches(size: int) -> list[tuple[str, list[str]]]:
    """A batch of copy prompts, over and over, and batches that hold prompts of every kind."""
    every = [text for texts in zip_longest(*PROMPTS.values()) for text in texts if text]
    mixed = [list(islice(cycle(every), start, start + size)) for start in (0, 4, 8)]
    copies = list(islice(cycle(PROMPTS["copy"]), size))
    return [("copy", copies), *(("mixed", texts) for texts in mixed)]


def ways(temperature: float, tokens: int, size: int) -> dict[str, Way]:
    """Each way of decoding `size` rows, as keywords of `lk.generate`, or of transformers ("hf")."""
    hf: Way = {"hf": True, "max_new_tokens": tokens, "do_sample": temperature > 0}
    if temperature:
        hf |= {"temperature": temperature, "top_k": 0, "top_p": 1.0}
    lookup = hf | {"prompt_lookup_num_tokens": 8}
    return {
        "model.generate": hf,
        **({"its prompt lookup": lookup} if size == 1 else {}),  # it refuses batches
        "draft=None": {"draft": None},
        "ngram": {"draft": "ngram"},
        "adjacency": {"draft": "adjacency"},
        "auto": {"draft": "auto"},
        "always wrong": {"draft": Wrong()},
    }


class Wrong(lk.DraftSource):
    """Proposes a token that is never right."""

    label = "wrong"

    def propose(self, batch: lk.Batch, k: int) -> lk.Draft:
        tokens = torch.zeros(len(batch), k, dtype=torch.int64)
        return lk.Draft(tokens, torch.full((len(batch),), k), label=self.label)


def measure(
    model: Any, tokenizer: Any, kind: str, prompts: list[str], temperature: float, given: Any
) -> dict[str, Any]:
    """One batch of prompts: seconds per token of every way and round, and what the drafts did."""
    texts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
        )
        for prompt in prompts
    ]
    inputs = tokenizer(texts, return_tensors="pt", padding=True, padding_side="left")
    row: dict[str, Any] = {"kind": kind, "prompt": prompts[0][:40], "seconds": {}, "length": {}}
    table = list(ways(temperature, given.tokens, len(prompts)).items())
    for turn in range(0 if given.quick else -1, given.repeats):  # the first round warms up
        for name, way in table[turn % len(table) :] + table[: turn % len(table)]:
            torch.manual_seed(1)
            begin = time.perf_counter()
            if way.get("hf"):
                keywords = {key: value for key, value in way.items() if key != "hf"}
                ids = model.generate(**inputs, **keywords)
                told = None
            else:
                params = [
                    lk.SamplingParams(
                        temperature=temperature, sampling_seed=seed, max_new_tokens=given.tokens
                    )
                    for seed in range(len(texts))
                ]
                out = lk.generate(
                    model, **inputs, params=params, tokenizer=tokenizer,
                    return_dict_in_generate=True, **way,
                )  # fmt: skip
                ids, told = out.sequences, out.speculation
            seconds = time.perf_counter() - begin
            width = inputs["input_ids"].shape[1]
            new = [written(line, tokenizer.eos_token_id) for line in ids[:, width:].tolist()]
            if turn >= 0:
                row["seconds"].setdefault(name, []).append(seconds / sum(map(len, new)))
            if told is not None:
                row["length"][name] = told.mean_accepted_length
            if name == "draft=None":
                row["tokens"] = min(map(len, new))
                row["repeats"] = statistics.mean(map(repeats, new))
    return row


def written(tokens: list[int], eos: int) -> list[int]:
    """A row's own tokens, its eos with them."""
    return tokens[: tokens.index(eos) + 1] if eos in tokens else tokens


def under_a_schema(model: Any, tokenizer: Any, repeats: int = 5) -> float:
    """How many times as fast drafts make compact JSON of a schema; the median of pairs."""
    keys = ("first_name", "last_name", "country_of_birth", "favourite_colour")
    schema = {
        "type": "object",
        "properties": {key: {"type": "string", "maxLength": 12} for key in keys},
        "required": list(keys),
        "additionalProperties": False,
    }
    params = lk.SamplingParams(
        temperature=0, max_new_tokens=96, json_schema=lk.JsonSchema(schema, whitespace="compact")
    )
    inputs = tokenizer("A person as JSON:", return_tensors="pt")
    ratios = []
    for _ in range(repeats + 1):
        seconds = []
        for draft in (None, "auto"):
            begin = time.perf_counter()
            lk.generate(model, **inputs, params=params, tokenizer=tokenizer, draft=draft)
            seconds.append(time.perf_counter() - begin)
        ratios.append(seconds[0] / seconds[1])
    return statistics.median(ratios[1:])


def repeats(tokens: list[int]) -> float:
    """The share of tokens that end a run of four which stood in the text before."""
    seen, again = set(), 0
    for i in range(3, len(tokens)):
        four = tuple(tokens[i - 3 : i + 1])
        again += four in seen
        seen.add(four)
    return again / max(1, len(tokens))


def speedup(row: dict[str, Any], name: str, against: str = "model.generate") -> float:
    pairs = zip(row["seconds"][against], row["seconds"][name], strict=True)
    return statistics.median(base / own for base, own in pairs)


def mean(rows: list[dict[str, Any]], name: str, against: str = "model.generate") -> float:
    logs = [math.log(speedup(row, name, against)) for row in rows]
    return math.exp(sum(logs) / len(logs))


def show(rows: list[dict[str, Any]], temperature: float) -> None:
    names = [name for name in rows[0]["seconds"] if name != "model.generate"]
    table = Table(title=f"temperature {temperature}: times as fast as model.generate")
    for column in ("prompts", "self-repeating", *names, "tokens a forward (auto)"):
        table.add_column(column, justify="left" if column == "prompts" else "right")
    kinds = {kind: [row for row in rows if row["kind"] == kind] for kind in (*PROMPTS, "mixed")}
    kinds = {kind: some for kind, some in kinds.items() if some}
    kinds["all"] = rows
    if "mixed" not in kinds:
        kinds["all but copy"] = [row for row in rows if row["kind"] != "copy"]
    for kind, some in kinds.items():
        table.add_row(
            f"{kind} ({len(some)})",
            f"{statistics.mean(row['repeats'] for row in some):.0%}",
            *[f"{mean(some, name):.2f}" for name in names],
            f"{statistics.mean(row['length']['auto'] for row in some):.2f}",
        )
    console = Console(width=140)
    console.print(table)
    long = [row for row in rows if row["tokens"] >= 48] or rows
    worst = min(long, key=lambda row: speedup(row, "auto"))
    console.print(
        f"worst call of at least 48 tokens a row: {speedup(worst, 'auto'):.2f} "
        f"({worst['prompt']!r})\n"
        f"a draft that is always wrong, against draft=None: "
        f"{mean(rows, 'always wrong', 'draft=None'):.2f}"
    )
    lookup = "its prompt lookup"
    if lookup in names:
        console.print(
            f"auto against transformers' prompt lookup: {mean(rows, 'auto', lookup):.2f}, "
            f"on copy {mean(kinds['copy'], 'auto', lookup):.2f}"
        )


if __name__ == "__main__":
    main()
