"""`LogitsPipeline` called by hand: what comes out, and a state that is a function of the tokens."""

from __future__ import annotations

import gc
import random
import tracemalloc

import pytest
import torch
from pipeline_by_hand import FULL, INF, ORDINARY, V, drawn, ids, logits, pipeline, walked
from pipeline_models import EOS, PAD, prompt, tiny_tokenizer
from torch import Tensor

from logitkit import LogitsPipeline, SamplingParams

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
