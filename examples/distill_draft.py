"""Make a small draft model for any target and any text, and say whether it can pay.

Run: python examples/distill_draft.py [--model FOLDER] [--text FILE] [--out FOLDER] [--minutes 3]

The draft is a few layers of the target with the target's own embeddings and head (frozen). It
learns from what the target itself writes behind the lines of the text, by the full distribution
(KL divergence). Saved as a normal transformers folder, for lk.generate(..., draft=model).
"""

import argparse
import copy
import time
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import kl_div, log_softmax
from transformers import AutoModelForCausalLM, AutoTokenizer

import logitkit as lk
from logitkit.demo import load_demo_model

LINES = [
    "Explain how a bicycle stays upright.", "Write a letter to a friend about the sea.",
    "List five uses of a paper clip.", "What did people eat in ancient Rome?",
    "Write a Python function that reverses a string.", "Describe a rainy morning in a big city.",
    "How do plants make sugar from light?", "Give advice to someone who cannot sleep.",
    "Write a recipe for a simple soup.", "Why do we have leap years?",
    "Tell a short story about a clock.", "What is the difference between a virus and a bacterium?",
]  # fmt: skip
HELD_OUT = 3  # so many lines are kept for measuring


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--model", help="a transformers folder; default: the demo model")
    options.add_argument("--text", help="a file with one prompt per line")
    options.add_argument("--out", default="draft-model")
    options.add_argument("--layers", type=int, default=3)
    options.add_argument("--minutes", type=float, default=3.0, help="of training")
    options.add_argument("--tokens", type=int, default=96, help="that the target writes per line")
    given = options.parse_args()
    if given.model:
        target = AutoModelForCausalLM.from_pretrained(given.model)
        tokenizer = AutoTokenizer.from_pretrained(given.model)
    else:
        target, tokenizer = load_demo_model()
    lines = Path(given.text).read_text().splitlines() if given.text else LINES
    prompts = [prompt_ids(tokenizer, line) for line in lines if line.strip()]
    if len(prompts) <= HELD_OUT:
        raise SystemExit(f"--text has {len(prompts)} lines: give more than {HELD_OUT}")
    learned, held_out = prompts[:-HELD_OUT], prompts[-HELD_OUT:]
    draft = small_copy(target, given.layers)
    before = acceptance(target, draft, held_out, given.tokens)
    texts = [written(target, ids, given.tokens, seed) for seed, ids in enumerate(learned)]
    train(draft, target, texts, [len(ids[0]) for ids in learned], 60 * given.minutes)
    after = acceptance(target, draft, held_out, given.tokens)
    draft.save_pretrained(given.out)
    tokenizer.save_pretrained(given.out)
    report(given.out, before, after, cost(target, draft, held_out[0]))


def prompt_ids(tokenizer: Any, line: str) -> torch.Tensor:
    if tokenizer.chat_template:
        chat = [{"role": "user", "content": line}]
        line = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    return tokenizer(line, return_tensors="pt")["input_ids"]


def small_copy(target: Any, layers: int) -> Any:
    """The target with `layers` of its layers, evenly spread; embeddings and head are shared."""
    config = copy.deepcopy(target.config)
    have = config.num_hidden_layers
    config.num_hidden_layers = layers
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:layers]
    draft = type(target)(config).to(target.dtype)
    weights = target.state_dict()
    chosen = [round(i * (have - 1) / max(1, layers - 1)) for i in range(layers)]
    for name in draft.state_dict():
        source = name
        if ".layers." in name:
            head, tail = name.split(".layers.")
            number, rest = tail.split(".", 1)
            source = f"{head}.layers.{chosen[int(number)]}.{rest}"
        draft.state_dict()[name].copy_(weights[source])
    draft.set_input_embeddings(target.get_input_embeddings())
    draft.set_output_embeddings(target.get_output_embeddings())
    return draft.eval()


def written(target: Any, ids: torch.Tensor, tokens: int, seed: int) -> torch.Tensor:
    params = lk.SamplingParams(temperature=0.8, sampling_seed=seed, max_new_tokens=tokens)
    return lk.generate(target, ids, params=params)


def train(
    draft: Any, target: Any, texts: list[torch.Tensor], prompts: list[int], seconds: float
) -> None:
    """Bring the draft's distribution behind every written token to the target's."""
    target.requires_grad_(False)  # the shared embeddings stay as they are
    shared = {id(p) for p in target.parameters()}
    own = [p for p in draft.parameters() if id(p) not in shared]
    optimizer = torch.optim.AdamW(own, lr=1e-3, weight_decay=0.01)
    begin, step = time.perf_counter(), 0
    while (gone := time.perf_counter() - begin) < seconds:
        optimizer.param_groups[0]["lr"] = 1e-3 * (1.02 - gone / seconds)
        ids, start = texts[step % len(texts)], prompts[step % len(texts)] - 1
        with torch.no_grad():
            wanted = log_softmax(target(ids).logits[:, start:-1].float(), -1)
        given = log_softmax(draft(ids).logits[:, start:-1].float(), -1)
        loss = kl_div(given.flatten(0, 1), wanted.flatten(0, 1), log_target=True,
                      reduction="batchmean")  # fmt: skip
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(own, 1.0)
        optimizer.step()
        step += 1
        if step % 20 == 0:
            print(f"step {step}, {gone:.0f} s: divergence {float(loss):.2f} nats")


def acceptance(target: Any, draft: Any, prompts: list[torch.Tensor], tokens: int) -> float:
    """The share of the first drafted tokens that were right, greedy and in float32 or as given."""
    right = steps = 0
    for ids in prompts:
        params = lk.SamplingParams(temperature=0, max_new_tokens=tokens)
        out = lk.generate(
            target, ids, params=params, draft=draft, num_draft_tokens=1,
            return_dict_in_generate=True,
        )  # fmt: skip
        right += out.speculation.num_accepted
        steps += out.speculation.num_drafted
    return right / max(1, steps)


@torch.no_grad()
def cost(target: Any, draft: Any, ids: torch.Tensor) -> float:
    """The time of one token of the draft, in units of one of the target."""
    seconds = []
    for model in (target, draft):
        params = lk.SamplingParams(temperature=0, max_new_tokens=24, ignore_eos=True)
        lk.generate(model, ids, params=params)
        begin = time.perf_counter()
        lk.generate(model, ids, params=params)
        seconds.append(time.perf_counter() - begin)
    return seconds[1] / seconds[0]


def report(out: str, before: float, after: float, price: float) -> None:
    print(f"saved to {out}\nfirst drafted token right: {before:.0%} before, {after:.0%} after")
    print(f"a drafted token costs {price:.2f} of a token of the target")
    best = max((sum(after**i for i in range(k + 1)) / (1 + price * k), k) for k in range(1, 9))
    if best[0] > 1.03:
        print(
            f"where verifying is free, {best[1]} tokens a step make it {best[0]:.2f} times as fast"
        )
    else:
        print(
            "it cannot pay here: even with free verification a step is not faster. Train longer, "
            "take fewer layers, or use it for a larger target, whose layers outweigh the head."
        )


if __name__ == "__main__":
    main()
