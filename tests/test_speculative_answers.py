"""What a draft source may answer, and what is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from drafted_rows import VOCAB, Answers, requests, written
from tiny import tiny_model

import logitkit as lk
from logitkit import Draft

SMALL = tiny_model(seed=9, vocab_size=VOCAB, num_hidden_layers=1)

_TOKENS, _LENGTHS = torch.zeros(3, 2, dtype=torch.int64), torch.full((3,), 2)


@pytest.mark.parametrize("source", [lambda s: s, lambda s: lk.Cascade(lk.NgramDraft(), s)])
@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "returned a NoneType: return an lk.Draft"),
        ((_TOKENS, _LENGTHS), "returned a tuple"),
        (Draft([[1]] * 3, _LENGTHS), "`tokens` as a list"),  # type: ignore[arg-type]
        (Draft(_TOKENS.float(), _LENGTHS), "`tokens` as torch.float32"),
        (Draft(_TOKENS, _LENGTHS.double()), "`lengths` as torch.float64"),
        (Draft(_TOKENS[:2], _LENGTHS[:2]), r"tokens of shape \(2, 2\)"),
        (Draft(_TOKENS.repeat(2, 1), _LENGTHS.repeat(2)), r"tokens of shape \(6, 2\)"),
        (Draft(_TOKENS, _LENGTHS, strength=_LENGTHS[:1]), r"`strength` of shape \(1,\)"),
        (Draft(_TOKENS, _LENGTHS, strength=_LENGTHS.float()), "`strength` as torch.float32"),
        (Draft(_TOKENS, _LENGTHS, label=("a",)), "`label`"),
        (Draft(_TOKENS, _LENGTHS, label=["a"] * 3), "`label`"),  # type: ignore[arg-type]
    ],
)
def test_an_answer_that_is_no_draft_is_refused_by_name(
    answer: Any, message: str, source: Any
) -> None:
    for k in (2, "auto"):
        with pytest.raises(ValueError, match=f"`draft`: .*{message}"):
            written(requests(9, 9, 9), draft=source(Answers(answer)), num_draft_tokens=k)


def test_odd_but_clear_answers_are_taken() -> None:
    params = requests(9, 9, 9)
    plain = written(params)
    for dtype in (torch.uint8, torch.int16, torch.int32):
        for lengths in (_LENGTHS, torch.tensor([-3, 0, 99])):
            answer = Draft(_TOKENS.to(dtype), lengths.to(torch.int32))
            for source in (Answers(answer), lk.Cascade(Answers(answer), lk.NgramDraft())):
                for k in (2, "auto"):
                    out = written(params, draft=source, num_draft_tokens=k)
                    assert torch.equal(out.sequences, plain.sequences)


def test_logits_of_another_width_are_refused_where_they_count() -> None:
    answer = Draft(_TOKENS, _LENGTHS, torch.zeros(3, 2, 5))
    with pytest.raises(ValueError, match=r"`logits` of shape \(3, 2, 5\): .*\(3, 2, 67\)"):
        written(requests(9, 9, 9), draft=Answers(answer), num_draft_tokens=2, verify="ratio")


@pytest.mark.parametrize("cost", [-1.0, float("nan"), float("inf"), "much", None, True])
def test_a_cost_that_is_no_price_is_refused_by_name(cost: Any) -> None:
    source = Answers(None)
    source.cost = cost
    with pytest.raises(ValueError, match="`draft`: the `cost` of Answers"):
        written(requests(9, 9, 9), draft=source)


def test_a_cascade_in_a_cascade_pays_for_its_sources() -> None:
    model = lk.ModelDraft(SMALL)
    outer = lk.Cascade(lk.Cascade(model, lk.NgramDraft()), lk.AdjacencyDraft())
    assert [source.label for source in outer.sources] == ["ngram", "adjacency", "model"]


@pytest.mark.parametrize("worst", [-torch.inf, -3e38])
def test_an_infinite_lead_is_no_error(worst: float) -> None:
    model = tiny_model(vocab_size=VOCAB)

    def only_one(module: Any, inputs: Any, output: Any) -> Any:
        best = output.logits.argmax(-1, keepdim=True)
        output.logits = torch.full_like(output.logits, worst).scatter(-1, best, 3e38)
        return output

    model.register_forward_hook(only_one)
    params = requests(20, 20, 20, temperature=0)
    plain = written(params, model)
    for k in (3, "auto"):
        out = written(params, model, draft="adjacency", num_draft_tokens=k)
        assert torch.equal(out.sequences, plain.sequences)


def _spoiled(value: float, token: int) -> torch.Tensor:
    logits = torch.zeros(3, 2, VOCAB)
    logits[1, 1, token] = value
    return logits


@pytest.mark.parametrize("rule", ["ratio", "block"])
@pytest.mark.parametrize(
    "logits",
    [_spoiled(-torch.inf, 0), _spoiled(torch.nan, 5), _spoiled(torch.inf, 5)],
    ids=["without the token", "nan", "inf"],
)
def test_logits_that_the_token_was_not_drawn_from_are_refused(
    logits: torch.Tensor, rule: str
) -> None:
    with pytest.raises(ValueError, match=r"row 1, depth 1, .* token 0 cannot have been drawn"):
        answer = Draft(_TOKENS, _LENGTHS, logits)
        written(requests(9, 9, 9), draft=Answers(answer), num_draft_tokens=2, verify=rule)
    shorter = Draft(_TOKENS, torch.full((3,), 1), logits)  # behind the draft they do not matter
    written(requests(9, 9, 9), draft=Answers(shorter), num_draft_tokens=2, verify=rule)


@pytest.mark.parametrize("logits", [[1.0], {}, torch.zeros(5)], ids=["list", "dict", "flat"])
def test_logits_are_not_looked_at_where_tokens_must_be_equal(logits: Any) -> None:
    params = requests(9, 9, 9)
    out = written(params, draft=Answers(Draft(_TOKENS, _LENGTHS, logits)), num_draft_tokens=2)
    assert torch.equal(out.sequences, written(params).sequences)
