"""A sampling rule of your own in ten lines: batched, per request, and law-abiding like ours.

Run: python examples/03_custom_stage.py   (fetches the 93 MB demo model once)
"""

from dataclasses import dataclass

import torch

import logitkit as lk
from logitkit.demo import load_demo_model


@dataclass(frozen=True, eq=False)
class TailFree(lk.Stage):
    """Keep tokens whose logit is at most `tail` below the mean of the five best. Neutral: 0."""

    tail: float = 0.0

    def apply(self, logits: torch.Tensor, rows: lk.Rows) -> torch.Tensor:
        best = logits.topk(5, dim=-1).values.mean(-1, keepdim=True)
        tail = rows["tail"]  # [R, 1]: each row's own value
        return logits.masked_fill((tail > 0) & (logits < best - tail), -torch.inf)


def main() -> None:
    model, tokenizer = load_demo_model()
    inputs = tokenizer(["The sea was", "The sky was"], padding=True, return_tensors="pt")
    params = [
        lk.SamplingParams(temperature=1.5, sampling_seed=1, extra={"tail": 2.0}),
        lk.SamplingParams(temperature=1.5, sampling_seed=1),
    ]
    stages = (TailFree(), *lk.DEFAULT_STAGES)

    pipe = lk.LogitsPipeline(params, tokenizer=tokenizer, stages=stages)
    print(pipe.plan)
    out = lk.generate(
        model, **inputs, params=params, tokenizer=tokenizer, stages=stages, max_new_tokens=16
    )
    for text in tokenizer.batch_decode(out, True):
        print(repr(text))


if __name__ == "__main__":
    main()
