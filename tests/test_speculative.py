"""Law 7 with `verify="exact"`: drafts change nothing but the time, whatever they propose."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from cases import CASES
from drafted import (
    EVERYTHING,
    MODEL,
    NEW,
    VOCAB,
    assert_drafts_change_nothing,
    assert_same,
    requests,
    written,
)
from scripted import MODES, Scripted
from tiny import EOS, IDS, MASK, PAD, PADDED, tiny_tokenizer
from torch import Tensor
from transformers import LogitsProcessor

import logitkit as lk
from logitkit import DEFAULT_STAGES, Draft, SamplingParams


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stage.__name__)
def test_no_stage_notices_a_draft(case: Any) -> None:
    for offset in range(0, len(case.requests), 3):
        some = [dict(case.requests[(offset + i) % len(case.requests)]) for i in range(3)]
        params = [
            SamplingParams(
                **{"sampling_seed": 3 + i, **fields},
                max_new_tokens=max(n, fields.get("min_new_tokens", 0)),
            )
            for i, (n, fields) in enumerate(zip((18, 7, 12), some, strict=True))
        ]
        spells = {"tokenizer": tiny_tokenizer()} if case.stage is lk.stages.Grammar else {}
        assert_drafts_change_nothing(params, **spells)


@pytest.mark.parametrize("backend", ["torch", "numba"])
@pytest.mark.parametrize("mode", MODES)
def test_whatever_a_source_does_the_tokens_are_those_of_plain_decoding(
    mode: str, backend: str
) -> None:
    for temperature in (0.0, 0.9):
        params = requests(**{**EVERYTHING, "temperature": temperature})
        plain = written(params, backend=backend)
        source = Scripted(plain.sequences[:, NEW], mode, seed=1)
        out = written(params, draft=source, num_draft_tokens=5, backend=backend)
        assert_same(out, plain)
        tally = out.speculation
        if mode in ("right", "long"):
            assert tally.acceptance_rate == 1.0
            assert tally.num_target_forwards == 1 + 3  # 18 = 1 + 6 + 6 + 5 tokens
        if mode == "wrong":
            assert tally.num_accepted == 0 and tally.num_target_forwards == 18


@pytest.mark.parametrize("num_draft_tokens", range(1, 7))
@pytest.mark.parametrize("length", range(1, 9))
def test_the_length_is_kept_to_the_token_with_no_forward_too_many(
    length: int, num_draft_tokens: int
) -> None:
    params = [SamplingParams(temperature=0, max_new_tokens=length)]
    ids = {"input_ids": IDS[1:2], "attention_mask": None}
    plain = written(params, **ids)
    source = Scripted(plain.sequences[:, NEW], "right")
    out = written(params, draft=source, num_draft_tokens=num_draft_tokens, **ids)
    assert_same(out, plain)
    assert out.speculation.num_target_forwards == 1 + -(-(length - 1) // (num_draft_tokens + 1))
    assert out.speculation.num_drafted == out.speculation.num_accepted


def test_ragged_prompts_equal_single_runs() -> None:
    generator = torch.Generator().manual_seed(4)
    lengths = (3, 9, 1, 6, 12, 5)
    prompts = [torch.randint(3, VOCAB, (n,), generator=generator) for n in lengths]
    ids = torch.full((6, 12), EOS)  # pad = eos
    mask = torch.zeros_like(ids)
    for i, prompt in enumerate(prompts):
        ids[i, 12 - len(prompt) :], mask[i, 12 - len(prompt) :] = prompt, 1
    params = [SamplingParams(**EVERYTHING, sampling_seed=i, max_new_tokens=20) for i in range(6)]
    pads = {"pad_token_id": EOS, "return_dict_in_generate": True}
    single = [
        lk.generate(MODEL, prompt[None], params=p, **pads)
        for prompt, p in zip(prompts, params, strict=True)
    ]
    truth = torch.full((6, 20), 7)
    for i, out in enumerate(single):
        truth[i, : int(out.lengths)] = out.sequences[0, len(prompts[i]) :]
    for seed in range(4):
        out = lk.generate(
            MODEL, ids, attention_mask=mask, params=params, num_draft_tokens=1 + seed,
            draft=Scripted(truth, "until" if seed % 2 else "mixed", seed), **pads,
        )  # fmt: skip
        for i, alone in enumerate(single):
            n = int(alone.lengths)
            assert out.sequences[i, 12 : 12 + n].tolist() == truth[i, :n].tolist()
            assert (out.sequences[i, 12 + n :] == EOS).all()


def test_several_samples_and_positions_of_ones_own() -> None:
    params = [SamplingParams(**EVERYTHING, n=2, sampling_seed=9, max_new_tokens=10)] * 3
    positions = (MASK.cumsum(1) - 1).clamp_min(0) * 2
    assert_drafts_change_nothing(params, position_ids=positions)


def test_the_cache_left_behind_is_that_of_plain_decoding() -> None:
    params = [SamplingParams(temperature=0, max_new_tokens=11)]
    ids = {"input_ids": IDS[1:2], "attention_mask": None}
    plain = written(params, **ids)
    for mode in ("right", "until", "wrong"):
        source = Scripted(plain.sequences[:, NEW], mode, seed=3)
        out = written(params, draft=source, num_draft_tokens=4, **ids)
        for mine, other in zip(
            out.past_key_values.layers, plain.past_key_values.layers, strict=True
        ):
            torch.testing.assert_close(mine.keys, other.keys, atol=1e-5, rtol=1e-4)


def test_only_missing_seeds_are_drawn_from_the_global_generator() -> None:
    params = [SamplingParams(max_new_tokens=9)] * 3
    torch.manual_seed(5)
    plain = written(params)
    after = torch.rand(1)
    torch.manual_seed(5)
    out = written(params, draft=Scripted(plain.sequences[:, NEW]), num_draft_tokens=3)
    assert torch.equal(torch.rand(1), after)
    assert_same(out, plain)


def test_model_and_config_are_unchanged_also_after_an_exception() -> None:
    class Fails(Scripted):
        def propose(self, batch: Any, k: int) -> Draft:
            raise RuntimeError("a source of the user's fails")

    weights = {name: value.clone() for name, value in MODEL.state_dict().items()}
    configs = MODEL.config.to_dict(), MODEL.generation_config.to_dict()
    with pytest.raises(RuntimeError, match="fails"):
        written(requests(), draft=Fails(IDS), num_draft_tokens=3)
    assert configs == (MODEL.config.to_dict(), MODEL.generation_config.to_dict())
    assert all(torch.equal(value, weights[name]) for name, value in MODEL.state_dict().items())


def test_inside_model_generate_the_strategy_equals_the_door() -> None:
    params = requests(**EVERYTHING)
    plain = written(params, stages=DEFAULT_STAGES)
    strategy = lk.Speculative(params, draft=Scripted(plain.sequences[:, NEW]), num_draft_tokens=4)
    out = MODEL.generate(
        **PADDED, custom_generate=strategy, pad_token_id=PAD, return_dict_in_generate=True,
        max_new_tokens=30,
    )  # fmt: skip
    assert torch.equal(out.sequences, plain.sequences)
    assert out.speculation.num_drafted > 0


def test_a_source_of_the_users_needs_no_base_class() -> None:
    plain = written(requests())
    scripted = Scripted(plain.sequences[:, NEW], "right")

    class Mine:
        def propose(self, batch: Any, k: int) -> Draft:
            return scripted.propose(batch, k)

    assert_same(written(requests(), draft=Mine(), num_draft_tokens=3), plain)


@pytest.mark.parametrize("verify", ["ratio", "block"])
def test_the_rules_of_research_keep_greedy_text_and_count_alike(verify: str) -> None:
    plain = written(requests(temperature=0))
    source = Scripted(plain.sequences[:, NEW], "right")
    out = written(requests(temperature=0), draft=source, num_draft_tokens=3, verify=verify)
    assert_same(out, plain)
    assert out.speculation.acceptance_rate == 1.0


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"draft": 3}, "`draft` is"),
        ({"draft": "telepathy"}, "`draft`='telepathy' is no source's name"),
        ({"draft": "ngram", "num_draft_tokens": 0}, "`num_draft_tokens` is 0: give 'auto' or an"),
        ({"draft": "ngram", "num_draft_tokens": 65}, "from 1 to 64"),
        ({"draft": "ngram", "num_draft_tokens": True}, "`num_draft_tokens` is"),
        ({"draft": "ngram", "verify": "close enough"}, "`verify` is 'close enough'"),
        ({"draft": "ngram", "verify": "ratio"}, "needs an integer `num_draft_tokens`"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(keywords: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        written(requests(), **keywords)
    if "verify" not in keywords or keywords["verify"] != "close enough":
        return
    with pytest.raises(ValueError, match=message):
        lk.Speculative(**keywords)


def test_processors_that_count_their_calls_are_refused_by_name() -> None:
    class SynthIDTextWatermarkLogitsProcessor(LogitsProcessor):
        def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
            return scores

    with pytest.raises(ValueError, match="SynthIDTextWatermarkLogitsProcessor"):
        written(requests(), draft="ngram", logits_processor=[SynthIDTextWatermarkLogitsProcessor()])


def test_a_source_that_answers_in_a_wrong_shape_is_named() -> None:
    class Wrong:
        def propose(self, batch: Any, k: int) -> Draft:
            return Draft(torch.zeros(1, 2, dtype=torch.int64), torch.ones(1, dtype=torch.int64))

    with pytest.raises(ValueError, match="`draft`: a source proposed"):
        written(requests(), draft=Wrong(), num_draft_tokens=2)
