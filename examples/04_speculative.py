"""Speculative decoding: the same tokens in less time, whatever the parameters.

Run: python examples/04_speculative.py   (fetches the 93 MB demo model once)
"""

import time

import torch

import logitkit as lk
from logitkit.demo import load_demo_model

EDIT = """Correct the spelling and repeat the text: The quick brown fox jumpd over the lazy dog.
A journey of a thousand miles begins with a single step. All that glitters is not gold."""


def main() -> None:
    model, tokenizer = load_demo_model()
    chat = [{"role": "user", "content": EDIT}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    inputs = tokenizer(text, return_tensors="pt")
    params = lk.SamplingParams(
        temperature=0.7, top_p=0.9, repetition_penalty=1.05, sampling_seed=4, max_new_tokens=48
    )
    written = {}
    for draft in (None, "ngram", "auto", model):
        begin = time.perf_counter()
        out = lk.generate(
            model, **inputs, params=params, tokenizer=tokenizer, draft=draft,
            return_dict_in_generate=True,
        )  # fmt: skip
        seconds = time.perf_counter() - begin
        name = draft if isinstance(draft, str) else "none" if draft is None else "itself"
        written[name] = out.sequences
        print(f"draft {name:6}: {1000 * seconds / int(out.lengths):5.1f} ms a token", end="")
        if told := out.speculation:
            print(
                f", {told.num_accepted} of {told.num_drafted} drafted tokens right, "
                f"{told.mean_accepted_length:.2f} tokens a step",
                end="",
            )
        print()
    print(out.texts[0])
    same = all(torch.equal(ids, written["none"]) for ids in written.values())
    print("every draft wrote the same text:", same)


if __name__ == "__main__":
    main()
