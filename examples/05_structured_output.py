"""Structured output: a different grammar per request in one batch, and every text fits its own.

Run: python examples/05_structured_output.py   (fetches the 93 MB demo model once)
"""

import json

import logitkit as lk
from logitkit.demo import load_demo_model

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Z][a-z]+$", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "city": {"enum": ["Paris", "Rome", "Lagos"]},
    },
    "required": ["name", "age", "city"],
    "additionalProperties": False,
}
LIST = 'root ::= item item item\nitem ::= "- " [a-z ]{3,12} "\\n"'


def main() -> None:
    model, tokenizer = load_demo_model()
    asked = {
        "Describe a person as JSON.": {"json_schema": PERSON},
        "When was the first moon landing?": {"regex": r"\d{4}-\d{2}-\d{2}"},
        "Is water wet?": {"choice": ["yes", "no"]},
        "List three fruits.": {"ebnf": LIST},
    }
    texts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True
        )
        for text in asked
    ]
    inputs = tokenizer(texts, padding=True, return_tensors="pt")
    params = [
        lk.SamplingParams(temperature=0.7, sampling_seed=i, max_new_tokens=60, **grammar)
        for i, grammar in enumerate(asked.values())
    ]
    out = lk.generate(
        model, **inputs, params=params, tokenizer=tokenizer, draft="auto",
        return_dict_in_generate=True,
    )  # fmt: skip
    for text, reason in zip(out.texts, out.finish_reasons, strict=True):
        print(f"{reason}: {text!r}")
    print("the person is", json.loads(out.texts[0]))
    print(out.speculation.by_source)


if __name__ == "__main__":
    main()
