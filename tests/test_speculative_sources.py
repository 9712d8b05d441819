"""Law 7 over the built-in sources, the same model as its own draft, and the rules of research."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from tiny import PAD, PADDED, tiny_model
from torch import Tensor

import logitkit as lk
from logitkit import SamplingParams

MODEL = tiny_model(vocab_size=67)
SMALL = tiny_model(seed=9, vocab_size=67, num_hidden_layers=1)
WIDE = tiny_model(seed=9, vocab_size=96, num_hidden_layers=1)
FIELDS: dict[str, Any] = {
    "top_p": 0.95, "repetition_penalty": 1.1, "no_repeat_ngram_size": 4, "min_new_tokens": 5,
}  # fmt: skip


def requests(temperature: float) -> list[SamplingParams]:
    return [
        SamplingParams(temperature=temperature, sampling_seed=i, max_new_tokens=n, **FIELDS)
        for i, n in enumerate((30, 11, 24))
    ]


def written(params: Any, **keywords: Any) -> Any:
    return lk.generate(
        MODEL, **PADDED, params=params, pad_token_id=PAD, return_dict_in_generate=True, **keywords
    )


SOURCES: dict[str, Any] = {
    "ngram": lambda: "ngram",
    "adjacency": lambda: "adjacency",
    "auto": lambda: "auto",
    "small model": lambda: SMALL,
    "wider model": lambda: lk.ModelDraft(WIDE),
    "cascade": lambda: lk.Cascade(lk.NgramDraft(), lk.AdjacencyDraft(), lk.ModelDraft(SMALL)),
}


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("num_draft_tokens", [1, 4, "auto"])
def test_every_source_writes_the_text_of_plain_decoding(
    name: str, temperature: float, num_draft_tokens: Any
) -> None:
    plain = written(requests(temperature))
    source = SOURCES[name]()
    for _ in range(2):  # an object used twice keeps nothing that matters
        out = written(requests(temperature), draft=source, num_draft_tokens=num_draft_tokens)
        assert torch.equal(out.sequences, plain.sequences)
        assert out.finish_reasons == plain.finish_reasons


@pytest.mark.parametrize("temperature", [0.0, 0.5, 0.7, 1.0, 1.5])
def test_a_model_that_drafts_for_itself_is_always_right(temperature: float) -> None:
    params = [
        SamplingParams(temperature=temperature, top_p=0.8, sampling_seed=i, max_new_tokens=24)
        for i in range(3)
    ]
    out = written(params, draft=MODEL, num_draft_tokens=4)
    assert torch.equal(out.sequences, written(params).sequences)
    assert out.speculation.num_drafted > 30
    assert out.speculation.acceptance_rate == 1.0


def test_the_tally_adds_up() -> None:
    out = written(requests(0.0), draft=SMALL, num_draft_tokens=3)
    told = out.speculation
    assert told.num_drafted == sum(row.num_drafted for row in told.requests)
    assert told.num_accepted == sum(row.num_accepted for row in told.requests)
    for row, length in zip(told.requests, out.lengths.tolist(), strict=True):
        assert length == 1 + row.num_steps + row.num_accepted
    assert told.by_source == {"model": (told.num_drafted, told.num_accepted)}
    verified = told.forward_modes.count(lk.ForwardMode.TARGET_VERIFY)
    decoded = told.forward_modes.count(lk.ForwardMode.DECODE)
    assert told.num_target_forwards == 1 + verified + decoded
    assert told.forward_modes[0] is lk.ForwardMode.EXTEND
    assert set(told.seconds) == {"draft", "target", "pipeline"}
    assert told.share_without_draft == decoded / (verified + decoded)
    assert all(0 <= share <= 1 for share in told.acceptance_by_position)


def test_a_frozen_cost_makes_the_lengths_repeatable() -> None:
    first = written(requests(0.0), draft="auto")
    cost = first.speculation.cost
    runs = [written(requests(0.0), draft="auto", cost=cost).speculation for _ in range(2)]
    assert runs[0].forward_modes == runs[1].forward_modes
    assert runs[0].num_drafted == runs[1].num_drafted


V, NEW, ROWS = 4, 4, 2000


@pytest.mark.parametrize("verify", ["ratio", "block", "exact"])
def test_many_rounds_together_write_the_targets_distribution(verify: str) -> None:
    """2,000 texts of 4 tokens in several rounds of up to 2 drafts, against the exact joint.

    Chi-square over outcomes of at least 5 expected texts, the rest in one: the false-alarm
    probability at mean + 6 standard deviations is below 1e-6.
    """
    sizes = {"vocab_size": V, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
    target = tiny_model(seed=1, initializer_range=0.25, **sizes).double()
    draft = tiny_model(seed=2, initializer_range=0.25, **sizes).double()
    prompt = torch.tensor([[1, 3]])
    params = SamplingParams(n=ROWS, max_new_tokens=NEW, sampling_seed=77, temperature=1.2)
    out = lk.generate(
        target, prompt, params=params, draft=draft, num_draft_tokens=2, verify=verify,
        return_dict_in_generate=True, pad_token_id=0,
    )  # fmt: skip
    if verify != "exact":
        assert 0.2 < out.speculation.acceptance_rate < 0.97
    texts = [tuple(text) for text in out.sequences[:, 2:].tolist()]
    chances = joint(target, prompt, 1.2)
    seen = dict.fromkeys(chances, 0)
    for text in texts:
        seen[text] += 1
    often = [text for text, chance in chances.items() if chance * ROWS >= 5]
    observed = [seen[text] for text in often]
    expected = [chances[text] * ROWS for text in often]
    observed.append(ROWS - sum(observed))
    expected.append(ROWS - sum(expected))
    chi = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    freedom = len(expected) - 1
    assert freedom > 50
    assert chi < freedom + 6 * (2 * freedom) ** 0.5, (chi, freedom)


@torch.no_grad()
def joint(model: Any, prompt: Tensor, temperature: float) -> dict[tuple[int, ...], float]:
    """The probability of every text of NEW tokens."""
    texts = list(itertools.product(range(V), repeat=NEW))
    ids = torch.cat([prompt.expand(len(texts), -1), torch.tensor(texts)], 1)
    logprobs = (model(ids).logits / temperature).log_softmax(-1)
    first = prompt.shape[1] - 1
    chosen = logprobs[:, first:-1].gather(2, ids[:, first + 1 :, None]).squeeze(2).sum(1).exp()
    return dict(zip(texts, chosen.tolist(), strict=True))
