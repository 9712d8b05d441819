"""Law 7 under grammars: drafts change nothing, forced text is drafted, dead rows do not raise."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from scripted import MODES, Scripted
from tiny import EOS, IDS, PAD, PADDED, tiny_model, tiny_tokenizer

import logitkit as lk
from logitkit import Draft, SamplingParams

MODEL, TOKENIZER = tiny_model(), tiny_tokenizer()
NEW = slice(IDS.shape[1], None)
GRAMMARS: list[dict[str, Any]] = [
    {"regex": "(abc|xyz)+ hello world (a|b)*"},
    {},
    {"ebnf": 'root ::= "say " item (" and " item)*\nitem ::= "one" | "two" | root'},
]


def requests(temperature: float) -> list[SamplingParams]:
    return [
        SamplingParams(
            temperature=temperature,
            sampling_seed=i,
            max_new_tokens=n,
            repetition_penalty=1.2,
            **grammar,
        )
        for i, (n, grammar) in enumerate(zip((40, 12, 33), GRAMMARS, strict=True))
    ]


def written(params: Any, **keywords: Any) -> Any:
    return lk.generate(
        MODEL, **PADDED, params=params, tokenizer=TOKENIZER, pad_token_id=PAD, eos_token_id=EOS,
        return_dict_in_generate=True, **keywords,
    )  # fmt: skip


@pytest.mark.parametrize("temperature", [0.0, 1.3])
@pytest.mark.parametrize("backend", ["torch", "numba"])
def test_drafts_change_nothing_under_grammars(temperature: float, backend: str) -> None:
    params = requests(temperature)
    plain = written(params, backend=backend)
    sources: list[Any] = ["grammar", "ngram", "auto", MODEL]
    sources += [Scripted(plain.sequences[:, NEW], mode, seed=3) for mode in MODES]
    for source in sources:
        for num_draft_tokens in (1, 5):
            out = written(params, draft=source, num_draft_tokens=num_draft_tokens, backend=backend)
            assert torch.equal(out.sequences, plain.sequences)
            assert out.finish_reasons == plain.finish_reasons
            assert out.texts == plain.texts


def test_forced_text_is_drafted_but_for_its_last_token() -> None:
    params = SamplingParams(regex="(x|y)abcdefgh", max_new_tokens=20, temperature=0)
    ids = {"input_ids": IDS[1:2]}
    plain = lk.generate(MODEL, **ids, params=params, tokenizer=TOKENIZER, eos_token_id=EOS)
    out = lk.generate(
        MODEL, **ids, params=params, tokenizer=TOKENIZER, eos_token_id=EOS, draft="grammar",
        num_draft_tokens=16, return_dict_in_generate=True,
    )  # fmt: skip
    assert torch.equal(out.sequences, plain)
    assert out.texts[0][1:] == "abcdefgh"
    # x or y; abcdefg from the draft and h behind it; eos
    assert out.speculation.num_target_forwards == 3
    assert (out.speculation.num_drafted, out.speculation.num_accepted) == (7, 7)


def test_what_a_draft_writes_against_the_grammar_is_never_reached() -> None:
    class Against:
        def propose(self, batch: Any, k: int) -> Draft:
            tokens = torch.full((len(batch), k), 30)  # a letter that no grammar here knows
            return Draft(tokens, torch.full((len(batch),), k))

    params = requests(0.9)
    plain = written(params)
    out = written(params, draft=Against(), num_draft_tokens=6)
    assert torch.equal(out.sequences, plain.sequences)


def test_a_source_serves_one_generation_after_another() -> None:
    source = lk.GrammarDraft()
    for seed in range(3):
        params = SamplingParams(regex="(ab|cd){3}xyzxyz", sampling_seed=seed, max_new_tokens=20)
        keywords = {"params": params, "tokenizer": TOKENIZER, "eos_token_id": EOS}
        plain = lk.generate(MODEL, IDS[1:2], **keywords)
        out = lk.generate(MODEL, IDS[1:2], draft=source, num_draft_tokens=4, **keywords)
        assert torch.equal(out, plain)
