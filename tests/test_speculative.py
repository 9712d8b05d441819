"""Law 7 with `verify="exact"`: drafts change nothing but the time, whatever they propose."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from cases import CASES, NearBest, Streak
from scripted import MODES, Scripted
from tiny import EOS, IDS, MASK, PAD, PADDED, tiny_model, tiny_tokenizer
from torch import Tensor
from transformers import LogitsProcessor

import logitkit as lk
from logitkit import DEFAULT_STAGES, Draft, EmptyRowError, SamplingParams

VOCAB = 67  # the cases name tokens up to 66
MODEL = tiny_model(vocab_size=VOCAB)
CHAIN = (*DEFAULT_STAGES[:9], Streak(), *DEFAULT_STAGES[9:], NearBest())
NEW = slice(IDS.shape[1], None)
EVERYTHING: dict[str, Any] = {
    "temperature": 0.9, "top_p": 0.95, "min_p": 0.01, "repetition_penalty": 1.2,
    "presence_penalty": 0.3, "frequency_penalty": 0.2, "no_repeat_ngram_size": 3,
    "min_new_tokens": 4, "dry_multiplier": 0.5, "dry_sequence_breakers": [[4]],
    "xtc_probability": 0.5, "xtc_threshold": 0.1,
}  # fmt: skip


def requests(**fields: Any) -> list[SamplingParams]:
    """Three requests of different length."""
    return [
        SamplingParams(**{"sampling_seed": 3 + i, "max_new_tokens": n, **fields})
        for i, n in enumerate((18, 7, 12))
    ]


def written(params: Any, **keywords: Any) -> Any:
    """One generation with everything shown."""
    shows = {"return_dict_in_generate": True, "output_scores": True, "output_logits": True}
    merged = {"pad_token_id": PAD, "stages": CHAIN, **PADDED, **shows, **keywords}
    return lk.generate(MODEL, params=params, **merged)


def assert_same(out: Any, plain: Any) -> None:
    assert torch.equal(out.sequences, plain.sequences)
    assert out.finish_reasons == plain.finish_reasons
    assert out.stop_matched == plain.stop_matched
    assert out.lengths.tolist() == plain.lengths.tolist()
    for name in ("scores", "logits"):
        ours, theirs = getattr(out, name), getattr(plain, name)
        assert len(ours) == len(theirs)
        for mine, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine, other, atol=1e-3, rtol=1e-3)
    for name in ("logprobs", "top_logprobs"):
        if getattr(plain, name) is not None:
            mine, other = getattr(out, name), getattr(plain, name)
            torch.testing.assert_close(mine, other, atol=1e-3, rtol=1e-3, equal_nan=True)
    if plain.top_token_ids is not None:
        assert torch.equal(out.top_token_ids, plain.top_token_ids)
    assert getattr(out, "texts", None) == getattr(plain, "texts", None)


def assert_drafts_change_nothing(params: Any, seeds: int = 3, **keywords: Any) -> None:
    plain = written(params, **keywords)
    for seed in range(seeds):
        source = Scripted(plain.sequences[:, NEW], seed=seed)
        out = written(params, draft=source, num_draft_tokens=1 + (seed * 2) % 5, **keywords)
        assert_same(out, plain)
        assert source.starts == 1
        assert source.observed <= plain.lengths.tolist()  # the last step is not observed


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


def test_an_eos_inside_a_block_ends_the_row_there() -> None:
    free = written(requests(temperature=0), eos_token_id=None)
    for slot in range(3):
        for place in range(1, 6):
            eos = int(free.sequences[slot, NEW][place])
            params = requests(temperature=0)
            plain = written(params, eos_token_id=eos)
            assert "eos" in plain.finish_reasons
            source = Scripted(free.sequences[:, NEW], "right")
            out = written(params, draft=source, num_draft_tokens=4, eos_token_id=eos)
            assert_same(out, plain)
            drafted = [row.num_drafted for row in out.speculation.requests]
            assert all(d < n for d, n in zip(drafted, plain.lengths.tolist(), strict=True))


def test_stops_across_blocks_and_everything_shown_stay_as_in_plain_decoding() -> None:
    tokenizer = tiny_tokenizer()
    free = written(requests(temperature=0), tokenizer=tokenizer, eos_token_id=None)
    seen = 0
    for slot in range(3):
        text = free.texts[slot]
        for begin in range(0, 5):
            stop = text[begin : begin + 3]
            if not stop.strip():
                continue
            params = requests(temperature=0, stop=[stop], logprobs=2, logprob_mode="processed")
            plain = written(params, tokenizer=tokenizer, eos_token_id=None)
            seen += plain.finish_reasons.count("stop")
            for seed in range(2):
                source = Scripted(free.sequences[:, NEW], "until" if seed else "right", seed)
                out = written(
                    params, tokenizer=tokenizer, draft=source, num_draft_tokens=6,
                    eos_token_id=None,
                )  # fmt: skip
                assert_same(out, plain)
    assert seen >= 5


@pytest.mark.parametrize("mode", ["raw", "processed", "filtered"])
def test_logprobs_belong_to_the_row_that_chose(mode: str) -> None:
    params = requests(**EVERYTHING, logprobs=3, logprob_mode=mode)
    assert_drafts_change_nothing(params, seeds=5)


class Recorder:
    """A streamer that keeps what it is given."""

    def __init__(self) -> None:
        self.columns: list[list[int]] = []
        self.ends = 0

    def put(self, value: Tensor) -> None:
        self.columns.append(value.tolist())

    def end(self) -> None:
        self.ends += 1


def test_the_streamer_hears_the_same_columns() -> None:
    params = requests(**EVERYTHING)
    heard = []
    plain = written(params)
    for draft in (None, Scripted(plain.sequences[:, NEW])):
        recorder = Recorder()
        more = {} if draft is None else {"draft": draft, "num_draft_tokens": 4}
        written(params, streamer=recorder, **more)
        assert recorder.ends == 1
        heard.append(recorder.columns)
    assert heard[0] == heard[1]


def test_criteria_see_what_plain_decoding_shows_and_cut_rows_that_ran_ahead() -> None:
    tokenizer = tiny_tokenizer()
    params = requests(temperature=0.9, stop=["zq"], logprobs=1)
    free = written(params, tokenizer=tokenizer)

    def run(draft: Any) -> tuple[Any, list[Any]]:
        calls = []

        def criterion(input_ids: Tensor, scores: Any) -> Tensor:
            calls.append((input_ids.tolist(), len(scores)))
            return torch.tensor([input_ids.shape[1] == 9, False, input_ids.shape[1] == 12])

        more = {} if draft is None else {"draft": draft, "num_draft_tokens": 5}
        out = written(params, stopping_criteria=[criterion], tokenizer=tokenizer, **more)
        return out, calls

    plain, calls = run(None)
    assert plain.finish_reasons[0] == plain.finish_reasons[2] == "criteria"
    for mode in ("right", "mixed", "until"):
        out, again = run(Scripted(free.sequences[:, NEW], mode))
        assert_same(out, plain)
        assert again == calls


class CountsItsOwnWay(LogitsProcessor):
    """Depends on the length, on the last tokens and on the whole prefix."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        banned = (input_ids.sum(1) + input_ids.shape[1]) % scores.shape[1]
        scores[torch.arange(len(scores)), banned] = -torch.inf
        scores[:, 5] += 0.5 * (input_ids[:, -1] == 6)
        return scores


def test_the_callers_processors_run_with_each_rows_own_prefix() -> None:
    params = requests(temperature=0.9)
    assert_drafts_change_nothing(params, seeds=6, logits_processor=[CountsItsOwnWay()])


def test_a_row_behind_a_refused_token_never_raises() -> None:
    class NeverAfter(LogitsProcessor):
        """Empties every row that stands behind token 9."""

        def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
            scores[:, 9] = -torch.inf
            scores[input_ids[:, -1] == 9] = -torch.inf
            return scores

    params = requests(temperature=0.8)
    ids = {"input_ids": IDS.masked_fill(IDS == 9, 8)}
    plain = written(params, logits_processor=[NeverAfter()], **ids)
    nines = torch.full_like(plain.sequences[:, NEW], 9)
    out = written(
        params, logits_processor=[NeverAfter()], draft=Scripted(nines, "right"),
        num_draft_tokens=3, **ids,
    )  # fmt: skip
    assert_same(out, plain)


def test_a_reached_row_that_is_empty_ends_its_request_and_no_other() -> None:
    class Empties(LogitsProcessor):
        def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
            if input_ids.shape[1] == 9:
                scores[2] = -torch.inf
            return scores

    params = requests(temperature=0.8)
    free = written(params)
    errors = []
    for draft in (None, Scripted(free.sequences[:, NEW], "right")):
        more = {} if draft is None else {"draft": draft, "num_draft_tokens": 4}
        with pytest.raises(EmptyRowError, match=r"request 2, position 8: .*Transformers") as caught:
            written(params, logits_processor=[Empties()], **more)
        errors.append(caught.value)
    assert errors[0].slots == errors[1].slots == (2,)
    assert errors[1].output.finish_reasons[2] == "error"
    assert torch.equal(errors[0].output.sequences, errors[1].output.sequences)


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
