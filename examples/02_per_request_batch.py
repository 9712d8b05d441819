"""Our own loop: one batch, four requests, four sets of parameters, exact stops, log-probabilities.

Run: python examples/02_per_request_batch.py   (fetches the 93 MB demo model once)
"""

import logitkit as lk
from logitkit.demo import load_demo_model


def main() -> None:
    model, tokenizer = load_demo_model()
    prompts = ["The capital of Italy is", "One, two, three,", "My favourite colour is", "Once upon"]
    inputs = tokenizer(prompts, padding=True, return_tensors="pt")
    params = [
        lk.SamplingParams(temperature=0.0, max_new_tokens=12, stop=["."], logprobs=2),
        lk.SamplingParams(temperature=0.7, top_k=40, max_new_tokens=16, sampling_seed=1),
        lk.SamplingParams(min_p=0.1, presence_penalty=0.5, max_new_tokens=10, sampling_seed=2),
        lk.SamplingParams(
            temperature=1.2, top_n_sigma=1.0, dry_multiplier=0.8, max_new_tokens=24, sampling_seed=3
        ),
    ]

    out = lk.generate(
        model, **inputs, params=params, tokenizer=tokenizer, return_dict_in_generate=True
    )

    for row, prompt in enumerate(prompts):
        reason, length = out.finish_reasons[row], int(out.lengths[row])
        print(f"{prompt!r} + {out.texts[row]!r} ({reason}, {length} tokens)")
    first = [f"{value:.2f}" for value in out.logprobs[0, : out.lengths[0]].tolist()]
    print("log-probabilities of the first request:", *first)

    # Rows are strangers: a request alone gives the very same tokens.
    alone = tokenizer(prompts[1], return_tensors="pt")
    again = lk.generate(
        model, **alone, params=params[1], tokenizer=tokenizer, return_dict_in_generate=True
    )
    assert again.texts[0] == out.texts[1]


if __name__ == "__main__":
    main()
