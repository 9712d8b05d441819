"""`LogitsPipeline` by hand: what a row gets for its ids, when a generation starts, and errors."""

from __future__ import annotations

import copy
import gc
import pickle
import random
import tracemalloc
from typing import Any

import pytest
import torch
from pipeline_models import EOS, PAD, prompt, tiny_tokenizer
from torch import Tensor

import logitkit as lk
from logitkit import LogitsPipeline, SamplingParams
from logitkit.stops import StopRegexTimeout, StopRules

V = 97
INF = float("inf")
FULL = SamplingParams(
    temperature=0.8, top_k=30, top_p=0.9, min_p=0.01, repetition_penalty=1.2, presence_penalty=0.3,
    frequency_penalty=0.2, no_repeat_ngram_size=3, dry_multiplier=0.5, dry_sequence_breakers=[[5]],
    xtc_probability=0.5, min_new_tokens=4, sampling_seed=11,
)  # fmt: skip


def logits(rows: int, seed: int = 0, width: int = V) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(8, width, generator=g)[:rows]


def ids(*rows: list[int]) -> Tensor:
    return torch.tensor(rows)


def pipeline(params: Any = FULL, **options: Any) -> LogitsPipeline:
    return LogitsPipeline(params, **{"eos_token_id": EOS, "pad_token_id": PAD} | options)


def drawn(row: Tensor) -> int:
    """The token of a selected row."""
    assert row.max() == 0.0
    assert int((row > -INF).sum()) == 1
    return int(row.argmax())


# -- what comes out


def test_a_selected_row_is_zero_at_the_token_that_sample_draws() -> None:
    x = ids(prompt(5), prompt(5, 1))
    tokens = pipeline().sample(x, logits(2))
    selected = pipeline()(x, logits(2))
    assert [drawn(row) for row in selected] == tokens.tolist()


def test_the_token_is_drawn_from_what_process_leaves() -> None:
    x = ids(prompt(6))
    pipe = pipeline(SamplingParams(top_k=3, sampling_seed=5))
    left = pipe.process(x, logits(1))
    assert int((left > -INF).sum()) == 3
    assert left[0, pipe.sample(x, logits(1))] > -INF


def test_select_false_gives_the_filtered_logits() -> None:
    x = ids(prompt(6))
    assert torch.equal(pipeline(select=False)(x, logits(1)), pipeline().process(x, logits(1)))


@pytest.mark.parametrize("select", [True, False])
def test_scores_are_not_modified(select: bool) -> None:
    scores = logits(2)
    before = scores.clone()
    for params in (FULL, SamplingParams()):
        out = pipeline(params, select=select)(ids(prompt(5), prompt(5, 1)), scores)
        assert torch.equal(scores, before)
        assert out.data_ptr() != scores.data_ptr()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_logits_give_the_token_of_the_same_numbers_in_float32(dtype: torch.dtype) -> None:
    x, half = ids(prompt(5)), logits(1).to(dtype)
    selected = pipeline()(x, half)
    assert selected.dtype == dtype
    assert drawn(selected[0]) == int(pipeline().sample(x, half.float()))
    assert pipeline().process(x, half).dtype == torch.float32


def test_neutral_params_process_to_the_same_bits() -> None:
    assert torch.equal(pipeline(SamplingParams()).process(ids(prompt(4)), logits(1)), logits(1))


# -- state is a function of the tokens


def walked(params: Any, x: Tensor, prompt_width: int, scores: Tensor, **options: Any) -> Tensor:
    """The logits of a pipeline that joins at `x`."""
    pipe = pipeline(params, **options)
    pipe.reset(prompt_lengths=prompt_width)
    return pipe.process(x, scores)


def test_any_way_to_the_same_ids_gives_the_same_logits() -> None:
    rng = random.Random(3)
    # few different tokens, so that penalties, n-grams and DRY have something to find
    first = [[rng.randrange(10, 16) for _ in range(6)] for _ in range(3)]
    pipe, rows = pipeline(select=False), [list(row) for row in first]
    for step in range(120):
        width = len(rows[0])
        move = rng.choice(["more", "more", "more", "again", "back", "other", "reorder"])
        if move == "back":
            width = rng.randint(6, width)
        rows = [row[:width] for row in rows]
        if move == "other" and width > 6:  # another branch of the same width
            rows = [[*row[:-1], rng.randrange(10, 16)] for row in rows]
        if move == "more":
            rows = [[*row, rng.randrange(10, 16)] for row in rows]
        expected = walked(FULL, ids(*rows), 6, logits(3, step), select=False)
        assert torch.equal(pipe.process(ids(*rows), logits(3, step)), expected), (step, move)


def test_rows_that_change_places_keep_their_own_tokens() -> None:
    x = ids([*prompt(5), 20, 21], [*prompt(5), 30, 31])
    pipe = pipeline(select=False)
    pipe(x[:, :5], logits(2))
    pipe(x[:, :6], logits(2, 1))
    there = pipe(x.flip(0), logits(2, 2))
    assert torch.equal(there, walked(FULL, x.flip(0), 5, logits(2, 2), select=False))


def test_padding_is_no_part_of_the_request() -> None:
    alone = pipeline().process(ids(prompt(4)), logits(1))
    for pad in (PAD, EOS):  # the pad may be the eos
        x = ids([pad] * 3 + prompt(4), prompt(7, 1))
        pipe = pipeline(pad_token_id=pad)
        assert torch.equal(pipe.process(x, logits(2))[:1], alone)
        more = torch.cat([x, torch.tensor([[40], [41]])], 1)
        stepped = pipeline()
        stepped.process(ids(prompt(4)), logits(1))
        after = stepped.process(ids([*prompt(4), 40]), logits(1, 1))
        assert torch.equal(pipe.process(more, logits(2, 1))[:1], after)


def test_a_pad_inside_a_prompt_is_a_token() -> None:
    inside = pipeline().process(ids([*prompt(2), PAD, *prompt(2, 1)]), logits(1))
    assert not torch.equal(inside, pipeline().process(ids(prompt(2) + prompt(2, 1)), logits(1)))


def test_int32_strided_and_foreign_ids_are_the_same_ids() -> None:
    x = ids([*prompt(5), 200, 31], [*prompt(5, 1), 22, 500])  # 200 and 500 lie beyond the logits
    wide = torch.stack([x, x + 1], 2)[:, :, 0]
    assert not wide.is_contiguous()
    expected = [pipeline().process(x[:, :6], logits(2)), walked(FULL, x, 6, logits(2, 1))]
    for same in (x.int(), wide, x.t().contiguous().t()):
        pipe = pipeline()
        assert torch.equal(pipe.process(same[:, :6], logits(2)), expected[0])
        assert torch.equal(pipe.process(same, logits(2, 1)), expected[1])


def test_a_buffer_that_the_caller_writes_into_is_not_remembered_by_reference() -> None:
    buffer = ids([*prompt(5), 20, 21])
    pipe = pipeline()
    pipe.process(buffer[:, :5], logits(1))
    pipe.process(buffer[:, :6], logits(1))
    buffer[0, 5] = 33
    assert torch.equal(pipe.process(buffer, logits(1)), walked(FULL, buffer, 5, logits(1)))


def test_inference_mode_may_begin_and_end_at_any_step() -> None:
    x = ids([*prompt(5), *prompt(90, 1)])
    pipe, plain = pipeline(), pipeline()
    for width in range(5, 95):
        with torch.inference_mode(width % 3 == 2):
            token = pipe.sample(x[:, :width], logits(1, width)).tolist()
        assert token == plain.sample(x[:, :width], logits(1, width)).tolist()
    with torch.inference_mode():
        pipe.sample(x[:, :5], logits(1))
    assert pipe.sample(x[:, :7], logits(1)).tolist() == [
        int(walked_pipe(x[:, :7], 5).sample(x[:, :7], logits(1)))
    ]


def walked_pipe(x: Tensor, prompt_width: int) -> LogitsPipeline:
    pipe = pipeline()
    pipe.reset(prompt_lengths=prompt_width)
    return pipe


def test_rows_of_different_length_grow_together() -> None:
    long, short = prompt(60), [PAD] * 57 + prompt(3, 1)
    x = torch.cat([ids(short, long), torch.randint(10, 16, (2, 300))], 1)
    pipe = pipeline()
    for width in range(60, 360):
        pipe.sample(x[:, :width], logits(2, width))
    expected = walked(FULL, x[:1, 57:], 3, logits(2, 9)[:1])
    assert torch.equal(pipe.process(x, logits(2, 9))[:1], expected)


def test_no_rows_and_empty_prompts_are_fine() -> None:
    none = torch.zeros(0, 4, dtype=torch.int64)
    assert pipeline()(none, logits(0)).shape == (0, V)
    assert pipeline().process(none, logits(0)).shape == (0, V)
    pipe = pipeline()
    first = pipe.sample(torch.zeros(2, 0, dtype=torch.int64), logits(2))
    second = pipe.sample(first[:, None], logits(2, 1))
    pads = pipeline()  # nothing but pads is an empty prompt, too
    assert pads.sample(torch.full((2, 3), PAD), logits(2)).tolist() == first.tolist()
    x = torch.cat([torch.full((2, 3), PAD), first[:, None]], 1)
    assert pads.sample(x, logits(2, 1)).tolist() == second.tolist()


def test_a_thousand_steps_allocate_no_more_than_their_tokens() -> None:
    pipe, x = pipeline(SamplingParams(top_k=5, sampling_seed=1)), torch.randint(10, V, (2, 1100))
    scores = logits(2)

    def go(first: int, last: int) -> int:
        for width in range(first, last):
            pipe.sample(x[:, :width], scores)
        gc.collect()
        return sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())

    before = go(8, 300)
    tracemalloc.start()
    assert go(300, 1008) <= before
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 2 * 2 * 1100 * 8 + 30_000  # the ids, doubled, in 8 bytes each, and small change
    assert pipe._prefixes is not None
    assert pipe._prefixes.batch.history.tokens.shape[1] <= 2 * 1100


# -- when a generation starts


def test_the_first_ids_are_the_prompt_until_another_generation_starts() -> None:
    params = SamplingParams(presence_penalty=5.0, sampling_seed=1)

    def generated(pipe: LogitsPipeline, x: list[int]) -> set[int]:
        """The tokens that are penalised: those that count as output."""
        out = pipe.process(ids(x), logits(1))
        return set((out != logits(1)).nonzero()[:, 1].tolist())

    a, b = prompt(5), prompt(5, 1)
    pipe = pipeline(params)
    assert generated(pipe, a) == set()
    assert generated(pipe, [*a, 20]) == {20}
    assert generated(pipe, [*a, 20, 21]) == {20, 21}
    assert generated(pipe, [*a, 30, 31]) == {30, 31}  # back, and on with other tokens
    assert generated(pipe, b) == set()  # another prompt
    assert generated(pipe, [*b, 20]) == {20}
    assert generated(pipe, b[:4]) == set()  # shorter than the prompt
    assert generated(pipe, [*b[:4], 20]) == {20}
    assert generated(pipe, [*b[:4], 20, 21, 22]) == set()  # longer than the longest plus one
    assert generated(pipe, [*b[:4], 20, 21, 22, 23]) == {23}
    pipe.reset()
    assert generated(pipe, [*b[:4], 20, 21, 22, 23]) == set()
    pipe.reset(prompt_lengths=3)
    assert generated(pipe, [*b[:4], 20]) == {b[3], 20}
    both = pipe.process(ids(a, a), logits(2))  # another row count
    assert torch.equal(both, logits(2))


def test_prompt_lengths_are_counted_per_row_and_without_padding() -> None:
    pipe = pipeline(SamplingParams(presence_penalty=5.0, sampling_seed=1))
    x = ids([PAD, PAD, 20, 21, 22], [30, 31, 32, 33, 34])
    pipe.reset(prompt_lengths=[1, 4])
    changed = (pipe.process(x, logits(2)) != logits(2)).nonzero().tolist()
    assert changed == [[0, 21], [0, 22], [1, 34]]
    longer = torch.cat([x, torch.tensor([[50], [51]])], 1)
    changed = (pipe.process(longer, logits(2)) != logits(2)).nonzero().tolist()
    assert changed == [[0, 21], [0, 22], [0, 50], [1, 34], [1, 51]]
    other = x.clone()
    other[0, 3] = 60  # behind row 0's prompt, but not behind row 1's
    changed = (pipe.process(other, logits(2)) != logits(2)).nonzero().tolist()
    assert changed == [[0, 22], [0, 60], [1, 34]]
    pipe.reset(prompt_lengths=torch.tensor([1, 5]))
    assert (pipe.process(x, logits(2)) != logits(2)).nonzero().tolist() == [[0, 21], [0, 22]]
    shorter = x[:, :4]  # row 1 is shorter than its prompt: a new generation
    assert torch.equal(pipe.process(shorter, logits(2)), logits(2))


def many(pipe: LogitsPipeline, rows: int = 1, count: int = 12) -> list[list[int]]:
    """The first tokens for `count` steps of the same prompts."""
    x, out = torch.tensor([prompt(4)] * rows), []
    for step in range(count):
        out.append(pipe.sample(x, logits(1, step).expand(rows, V)).tolist())
        x = torch.cat([x, torch.full((rows, 1), 20)], 1)
    return out


def test_a_given_seed_serves_every_prompt_and_every_generation() -> None:
    pipe = pipeline(SamplingParams(sampling_seed=4))
    first = many(pipe, rows=2)
    assert all(a == b for a, b in first)
    assert many(pipe, rows=2) == first


def test_requests_without_a_seed_get_a_fresh_one_per_row_and_generation() -> None:
    pipe = pipeline([SamplingParams(), SamplingParams(), SamplingParams(sampling_seed=4)])
    first = many(pipe, rows=3)
    second = many(pipe, rows=3)
    assert [row[2] for row in first] == [row[2] for row in second]
    columns = {tuple(row[i] for row in run) for run in (first, second) for i in (0, 1)}
    assert len(columns) == 4
    torch.manual_seed(9)
    again = many(pipe, rows=3)
    torch.manual_seed(9)
    assert many(pipeline(pipe.params), rows=3) == again


def test_samples_of_one_request_have_derived_seeds() -> None:
    pipe = pipeline(SamplingParams(n=3, sampling_seed=4))
    tokens = [tuple(column) for column in zip(*many(pipe, rows=6), strict=True)]
    assert len(set(tokens)) == 3
    assert tokens[:3] == tokens[3:]
    assert list(tokens[0]) == [row[0] for row in many(pipeline(SamplingParams(sampling_seed=4)))]


# -- rows that cannot be decided, and rows that are over

ORDINARY = SamplingParams(sampling_seed=1)


def test_a_bad_row_raises_with_its_neighbours_tokens_and_the_pipeline_goes_on() -> None:
    x, scores = ids(prompt(5), prompt(5, 1), prompt(5, 2)), logits(3)
    healthy = pipeline(ORDINARY).sample(x, scores).tolist()
    for poison, kind in ((float("nan"), lk.BadLogitsError), (-INF, lk.EmptyRowError)):
        wrong = scores.clone()
        wrong[1] = poison
        pipe = pipeline(ORDINARY)
        for call in (pipe, pipe.process, pipe.sample):
            with pytest.raises(kind, match="request 1, position 5") as caught:
                call(x, wrong)
            assert caught.value.slots == (1,)
        assert caught.value.tokens is not None
        assert caught.value.tokens.tolist() == [healthy[0], -1, healthy[2]]
        assert pipe.sample(x, scores).tolist() == healthy
        more = torch.cat([x, torch.tensor([[20], [21], [22]])], 1)
        other = pipeline(ORDINARY)
        other.sample(x, scores)
        assert pipe.sample(more, scores).tolist() == other.sample(more, scores).tolist()


def test_the_stage_that_emptied_a_row_is_named() -> None:
    params = SamplingParams(allowed_token_ids=[7], no_repeat_ngram_size=1, sampling_seed=1)
    with pytest.raises(lk.EmptyRowError, match="NoRepeatNgram"):
        pipeline(params).sample(ids([7, 8]), logits(1))


@pytest.mark.parametrize("pad", [PAD, EOS])
@pytest.mark.parametrize("select", [True, False])
@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("poison", [float("nan"), -INF])
def test_finished_rows_never_raise(pad: int, select: bool, joined: bool, poison: float) -> None:
    pipe = pipeline(ORDINARY, pad_token_id=pad, select=select)
    x = ids([*prompt(5), EOS, pad, pad], [*prompt(5, 1), 20, 21, 22])
    if joined:
        pipe.reset(prompt_lengths=5)
    for width in range(7 if joined else 5, 9):
        scores = logits(2, width)
        if width > 5:
            scores[0] = poison
        assert not pipe(x[:, :width], scores).isnan().any()
    scores[1] = poison
    with pytest.raises(lk.RowError) as caught:
        pipe(x, scores)
    assert caught.value.slots == (1,)


def test_a_row_that_the_callers_criteria_ended_never_raises() -> None:
    pipe = pipeline(ORDINARY)
    token = int(pipe.sample(ids(prompt(5)), logits(1)))
    pipe.sample(ids([*prompt(5), token]), logits(1))
    pipe.sample(ids([*prompt(5), token, PAD]), torch.full((1, V), -INF))  # a pad nobody drew


def test_a_pad_that_was_drawn_is_a_token_like_others() -> None:
    only_pad = torch.full((1, V), -INF)
    only_pad[0, PAD] = 0.0
    pipe = pipeline(ORDINARY)
    assert pipe.sample(ids(prompt(5)), only_pad).tolist() == [PAD]
    with pytest.raises(lk.EmptyRowError):
        pipe.sample(ids([*prompt(5), PAD]), torch.full((1, V), -INF))


# -- stops without criteria


def run(pipe: LogitsPipeline, tokens: list[int]) -> list[int]:
    """What the pipeline answers behind the prompt and after each of `tokens`."""
    x, out = prompt(5), []
    for step, token in enumerate([None, *tokens]):
        x = x if token is None else [*x, token]
        out.append(int(pipe.sample(ids(x), logits(1, step))))
    return out


@pytest.mark.parametrize(
    ("fields", "over_after"),
    [
        ({"max_new_tokens": 3}, 3),
        ({"stop_token_ids": [21]}, 2),
        ({"stop": ["0c1"]}, 2),  # the texts of 20, 21, 22: "c0c1c2"
        ({"stop_regex": ["c[12]+"]}, 2),
        ({"stop": ["c1"], "min_new_tokens": 2}, None),
        ({"stop": ["c2"], "min_new_tokens": 2}, 3),
        ({"stop_regex": ["c1c2"], "min_new_tokens": 2}, 3),
    ],
)
def test_a_row_that_is_over_gets_eos_next(fields: dict[str, Any], over_after: int | None) -> None:
    params = SamplingParams(sampling_seed=1, logit_bias={EOS: -INF}, **fields)
    pipe = LogitsPipeline(params, tokenizer=tiny_tokenizer())
    answers = run(pipe, [20, 21, 22, 30])
    end = 5 if over_after is None else over_after
    assert EOS not in answers[:end]
    assert set(answers[end:]) <= {EOS}
    selected = pipe(ids([*prompt(5), 20, 21, 22, 30]), logits(1))
    assert (drawn(selected[0]) == EOS) == (over_after is not None)
    left = pipe.process(ids([*prompt(5), 20, 21, 22, 30]), logits(1))
    assert (int((left > -INF).sum()) == 1) == (over_after is not None)


def test_eos_and_stop_ids_are_masked_before_min_new_tokens() -> None:
    params = SamplingParams(min_new_tokens=2, stop_token_ids=[21], sampling_seed=1)
    pipe = LogitsPipeline(params, tokenizer=tiny_tokenizer())
    for tokens, masked in (([], True), ([20], True), ([20, 22], False)):
        out = pipe.process(ids([*prompt(5), *tokens]), logits(1))
        assert [float(out[0, t]) == -INF for t in (EOS, 21)] == [masked, masked]


def test_each_row_has_its_own_stops() -> None:
    several = [SamplingParams(max_new_tokens=1, sampling_seed=1), ORDINARY]
    pipe = pipeline(several)
    x = ids([*prompt(5), 20], [*prompt(5, 1), 20])
    pipe.sample(x[:, :5], logits(2))
    selected = pipe(x, logits(2))
    assert drawn(selected[0]) == EOS
    assert drawn(selected[1]) == int(walked_sample([ORDINARY], x[1:], 5, logits(2)[1:]))


def walked_sample(params: Any, x: Tensor, prompt_width: int, scores: Tensor) -> Tensor:
    pipe = pipeline(params)
    pipe.reset(prompt_lengths=prompt_width)
    return pipe.sample(x, scores)


def test_criteria_tell_rows_that_are_over_also_of_beam_candidates() -> None:
    several = [SamplingParams(max_new_tokens=2), SamplingParams(stop_token_ids=[21])]
    pipe = pipeline(several, select=False)
    criteria = pipe.stopping_criteria()
    x = ids([*prompt(5), 20], [*prompt(5, 1), 20])
    pipe(x[:, :5], logits(2))
    assert criteria(x, None).tolist() == [False, False]
    pipe(x, logits(2))
    longer = [[*row, token] for row in x.tolist() for token in (21, 22)]
    assert criteria(ids(*longer), None).tolist() == [True, True, True, False]  # two a row
    assert criteria(ids(longer[1], longer[3]), None).tolist() == [True, False]


def test_criteria_without_the_pipeline_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"logits_processor=\[pipe\]"):
        pipeline(SamplingParams(stop_token_ids=[3])).stopping_criteria()(ids(prompt(5)), None)


def test_a_regex_that_runs_out_of_time_leaves_the_pipeline_usable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(StopRules.__init__, "__kwdefaults__", {"regex_time_limit": 0.02})
    params = SamplingParams(stop_regex=["(?:c|[0-9]|c[0-9])+[yz]"], sampling_seed=1)
    pipe = LogitsPipeline(params, tokenizer=tiny_tokenizer())
    fresh = LogitsPipeline(params, tokenizer=tiny_tokenizer())
    x = [*prompt(5), *[20, 21, 22, 23] * 12]
    with pytest.raises(StopRegexTimeout):
        for width in range(5, len(x)):
            pipe.sample(ids(x[:width]), logits(1))
    for width in (5, 6, 7):
        expected = fresh.sample(ids(x[:width]), logits(1)).tolist()
        assert pipe.sample(ids(x[:width]), logits(1)).tolist() == expected


def test_an_interrupted_step_is_not_half_done(monkeypatch: pytest.MonkeyPatch) -> None:
    params = SamplingParams(max_new_tokens=2, presence_penalty=1.0, sampling_seed=1)
    pipe, x = pipeline(params), ids([*prompt(5), 20])
    pipe.process(x[:, :5], logits(1))

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(lk.Batch, "commit", interrupt)
        pipe.process(x, logits(1))
    for _ in range(2):
        assert torch.equal(pipe.process(x, logits(1)), walked(params, x, 5, logits(1)))


# -- errors at the door


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"params": SamplingParams(ignore_eos=True)}, r"`ignore_eos`=True.*lk\.generate"),
        ({"params": SamplingParams(logprobs=3)}, r"`logprobs`=3.*lk\.generate"),
        ({"params": []}, "`params` is empty"),
        ({"params": None}, "`params` must be SamplingParams"),
        ({"params": {"top_k": 3}}, "`params` must be SamplingParams"),
        ({"params": [ORDINARY, 3]}, "`params` must hold SamplingParams, got 3"),
        ({"params": SamplingParams(stop=["x"])}, "`stop`.*tokenizer="),
        ({"params": SamplingParams(bad_words=["x"])}, "`bad_words`.*tokenizer="),
        ({"params": SamplingParams(min_new_tokens=2), "eos_token_id": None}, "`min_new_tokens`=2"),
        ({"params": ORDINARY, "eos_token_id": -1}, "`eos_token_id`.*-1"),
        ({"params": ORDINARY, "eos_token_id": True}, "`eos_token_id`.*True"),
        ({"params": ORDINARY, "eos_token_id": []}, r"`eos_token_id`.*\[\]"),
        ({"params": ORDINARY, "eos_token_id": 2.0}, r"`eos_token_id`.*2\.0"),
        ({"params": ORDINARY, "pad_token_id": [1, 2]}, "`pad_token_id`"),
        ({"params": ORDINARY, "backend": "cuda"}, "`backend`.*'cuda'"),
        ({"params": SamplingParams(extra={"x": 1})}, "`extra`.*x"),
    ],
)
def test_what_cannot_be_honoured_is_refused_when_the_object_is_built(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        LogitsPipeline(**{"eos_token_id": EOS} | arguments)


@pytest.mark.parametrize(
    ("params", "x", "scores", "message"),
    [
        (ORDINARY, torch.ones(5, dtype=torch.int64), logits(1), r"`input_ids` \[B, L\]"),
        (ORDINARY, ids(prompt(5)), logits(2), r"\(1, 5\) and \(2, 97\)"),
        (ORDINARY, ids(prompt(5)), logits(1)[0], r"`scores` \[B, V\]"),
        (ORDINARY, ids(prompt(5)).float(), logits(1), "`input_ids` must hold integers"),
        (ORDINARY, ids(prompt(5)), logits(1).double(), "`scores` must be float32.*float64"),
        (SamplingParams(n=2), ids(prompt(5)), logits(1), "`n`=2 needs a multiple of 2 rows"),
        ([ORDINARY, ORDINARY], ids(prompt(5)), logits(1), "let num_return_sequences equal `n`"),
        (SamplingParams(n=2), ids(prompt(5), prompt(5, 1)), logits(2), "`n`=2.*different prompts"),
        (SamplingParams(stop_token_ids=[500]), ids(prompt(5)), logits(1), "`stop_token_ids`.*500"),
    ],
)
def test_a_call_that_does_not_fit_is_refused_and_the_next_one_served(
    params: Any, x: Tensor, scores: Tensor, message: str
) -> None:
    pipe = pipeline(params)
    for _ in range(2):  # the same answer when asked again
        with pytest.raises(ValueError, match=message):
            pipe(x, scores)
    good = pipe.params[0].n * len(pipe.params)
    if not pipe.params[0].stop_token_ids:
        pipe(torch.tensor([prompt(5)] * good), logits(good))


def test_a_failed_start_does_not_leave_the_old_generation_in_place() -> None:
    pipe = pipeline([ORDINARY, ORDINARY])
    pipe(ids(prompt(5), prompt(5, 1)), logits(2))
    for _ in range(2):
        with pytest.raises(ValueError, match="`n`"):
            pipe(ids(prompt(5), prompt(5, 1), prompt(5, 2)), logits(3))


def test_beams_need_equal_prompts_in_every_run() -> None:
    several = [ORDINARY, ORDINARY]
    x = ids(prompt(5), prompt(5), prompt(5, 1), prompt(5, 1))
    pipeline(several, select=False)(x, logits(4))
    with pytest.raises(ValueError, match="`n`"):
        pipeline(several)(x, logits(4))  # selected rows are no beams
    with pytest.raises(ValueError, match="different prompts"):
        pipeline(several, select=False)(x[[0, 2, 1, 3]], logits(4))


@pytest.mark.parametrize("lengths", [[1, 2, 3], 9, -1, 1.5, [1, 9], "two"])
def test_wrong_prompt_lengths_are_refused(lengths: Any) -> None:
    pipe = pipeline(ORDINARY)
    pipe.reset(prompt_lengths=lengths)
    with pytest.raises(ValueError, match="`prompt_lengths`"):
        pipe(ids(prompt(5), prompt(5, 1)), logits(2))


def test_scores_of_another_width_need_a_reset() -> None:
    pipe = pipeline(ORDINARY)
    pipe(ids(prompt(5)), logits(1))
    with pytest.raises(ValueError, match=r"`scores` are 98 wide.*97.*pipe\.reset\(\)"):
        pipe(ids([*prompt(5), 20]), logits(1, width=98))
    pipe(ids(prompt(5, 1)), logits(1, width=98))  # another prompt is another generation anyway


def test_stops_without_eos_need_criteria() -> None:
    params = SamplingParams(max_new_tokens=2, sampling_seed=1)
    pipe = LogitsPipeline(params)
    with pytest.raises(ValueError, match=r"eos_token_id=.*stopping_criteria\(\)"):
        pipe(ids(prompt(5)), logits(1))
    criteria = pipe.stopping_criteria()
    x = ids([*prompt(5), 20, 21])
    pipe(x[:, :5], logits(1))
    pipe(x[:, :6], logits(1))
    assert criteria(x, None).tolist() == [True]


# -- the plan


def test_the_plan_can_be_printed_before_and_after_the_first_call() -> None:
    params = SamplingParams(temperature=0.7, top_p=0.9, bad_words=["c1"], sampling_seed=1)
    pipe = LogitsPipeline(params, tokenizer=tiny_tokenizer())
    before = str(pipe.plan)
    for name in ("bad_words", "temperature", "top_p", "numba"):
        assert name in before
    assert "top_k" not in before
    pipe(ids(prompt(5)), logits(1))
    assert str(pipe.plan) == before
    assert "torch" in str(pipeline(params=ORDINARY, backend="torch").plan)


def test_a_copy_has_the_same_arguments_and_has_seen_nothing() -> None:
    pipe = LogitsPipeline(SamplingParams(top_k=3, sampling_seed=4), eos_token_id=[2, 3])
    ids, logits = torch.tensor([[5, 6]]), torch.randn(1, 9)
    drawn = pipe.sample(ids, logits)
    for copied in (copy.deepcopy(pipe), pickle.loads(pickle.dumps(pipe))):
        assert copied.eos_token_ids == (2, 3)
        assert torch.equal(copied.sample(ids, logits), drawn)


def test_negative_ids_are_refused_at_the_start_and_later() -> None:
    pipe = LogitsPipeline(SamplingParams(repetition_penalty=2.0))
    with pytest.raises(ValueError, match="`input_ids` holds -100"):
        pipe.sample(torch.tensor([[-100, 2]]), torch.zeros(1, 8))
    pipe.sample(torch.tensor([[1, 2]]), torch.zeros(1, 8))
    with pytest.raises(ValueError, match="`input_ids` holds -3"):
        pipe.sample(torch.tensor([[1, 2, -3]]), torch.zeros(1, 8))
