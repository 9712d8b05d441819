"""Per-request sampling inside transformers' own `model.generate`.

Run: python examples/01_inside_transformers.py   (fetches the 93 MB demo model once)
"""

import logitkit as lk
from logitkit.demo import load_demo_model


def main() -> None:
    model, tokenizer = load_demo_model()
    questions = ["Name three fruits.", "Write one line about rain."]
    chats = [[{"role": "user", "content": question}] for question in questions]
    inputs = tokenizer.apply_chat_template(
        chats, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
    )

    params = [
        lk.SamplingParams(temperature=0.0, stop=["\n\n"]),
        lk.SamplingParams(temperature=0.8, top_p=0.95, min_p=0.05, sampling_seed=7),
    ]
    pipe = lk.LogitsPipeline(params, tokenizer=tokenizer)
    print(pipe.plan)

    # The pipeline draws the tokens itself, so transformers' own top_k=50 behind it changes nothing.
    output = model.generate(
        **inputs,
        max_new_tokens=32,
        do_sample=True,
        logits_processor=[pipe],
        stopping_criteria=pipe.stopping_criteria(),
    )
    new = output[:, inputs["input_ids"].shape[1] :]
    for question, answer in zip(questions, tokenizer.batch_decode(new, True), strict=True):
        print(f"{question} -> {answer!r}")

    # A stage alone is a transformers processor too.
    output = model.generate(
        **inputs,
        max_new_tokens=8,
        do_sample=True,
        top_k=0,
        logits_processor=[lk.stages.TopK(top_k=20), lk.stages.MinP(min_p=0.1)],
    )
    print(tokenizer.batch_decode(output[:, -8:], True))


if __name__ == "__main__":
    main()
