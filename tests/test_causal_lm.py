"""`CausalLM` against the models: whole unpadded rows, in one forward without a cache."""

from __future__ import annotations

import pytest
import torch
from model_families import (
    CONFIGS,
    RECURRENT,
    VOCAB,
    alone,
    assert_close,
    left_padded,
    prompts,
    tiny,
)
from model_families import one_thread as one_thread  # a fixture of every test here

from logitkit.causal_lm import CausalLM

# -- rows are strangers


@pytest.mark.parametrize("name", [*CONFIGS, *RECURRENT])
def test_a_padded_row_equals_the_row_alone(name: str) -> None:
    model = tiny(name)
    # A recurrence is summed in another order when it is run over the whole prompt.
    tolerance = 1e-4 if name in RECURRENT else 1e-5
    rows = prompts([3, 14, 1, 9])
    lm = CausalLM(model, *left_padded(rows))
    logits = lm.prefill()
    for row, got in zip(rows, logits, strict=True):
        assert_close(got, alone(model, row)[0], tolerance)
    for step in range(12):
        new = [5 + step, 40 - step, 7, 63 - 2 * step]
        logits = lm(torch.tensor(new)[:, None])
        for row, token, got in zip(rows, new, logits, strict=True):
            row.append(token)
            assert_close(got[0], alone(model, row)[0], tolerance)
    assert lm.lengths.tolist() == [15, 26, 13, 21]


@pytest.mark.parametrize("name", [*CONFIGS, *RECURRENT])
def test_padding_ids_change_nothing(name: str) -> None:
    rows = prompts([2, 6])
    a, b = (CausalLM(tiny(name), *left_padded(rows, pad)) for pad in (0, 33))
    assert_close(a.prefill(), b.prefill())


def test_pad_ids_inside_a_prompt_are_tokens() -> None:
    row = [0, 0, 5, 0]
    lm = CausalLM(tiny("llama"), torch.tensor([row]))
    assert lm.lengths.tolist() == [4]
    assert_close(lm.prefill()[0], alone(tiny("llama"), row)[0])


def test_greedy_tokens_equal_those_of_generate() -> None:
    model = tiny("llama")
    ids, mask = left_padded(prompts([4, 11, 7]))
    theirs = model.generate(
        ids, attention_mask=mask, max_new_tokens=12, do_sample=False, eos_token_id=None
    )
    lm = CausalLM(model, ids, mask)
    tokens = [lm.prefill().argmax(-1)]
    for _ in range(11):
        tokens.append(lm(tokens[-1][:, None])[:, 0].argmax(-1))
    assert torch.equal(torch.stack(tokens, 1), theirs[:, ids.shape[1] :])


# -- several tokens at once, and forgetting some of them


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("batch", [1, 3])
def test_refused_tokens_leave_no_trace(name: str, batch: int) -> None:
    model = tiny(name)
    rows = prompts([4, 12, 9][:batch])
    lm = CausalLM(model, *left_padded(rows))
    lm.prefill()
    assert lm.croppable
    generator = torch.Generator().manual_seed(3)
    for step in range(10):
        fed = torch.randint(3, VOCAB, (batch, 4), generator=generator)
        # Uneven, all kept, even, and one row that refuses all but the first again and again.
        kept = [[1, 4, 2], [4, 4, 4], [2, 2, 2], [1, 3, 4]][step % 4][:batch]
        logits = lm(fed)
        for i, row in enumerate(rows):
            assert_close(logits[i], alone(model, row + fed[i].tolist(), 4))
            row += fed[i, : kept[i]].tolist()
        lm.keep(torch.tensor(kept))
        assert lm.lengths.tolist() == [len(row) for row in rows]
    last = lm(torch.full((batch, 1), 9))
    for i, row in enumerate(rows):
        assert_close(last[i, 0], alone(model, [*row, 9])[0])


def test_the_cache_stays_near_the_longest_row() -> None:
    lm = CausalLM(tiny("llama"), *left_padded(prompts([8, 8])))
    lm.prefill()
    for step in range(12):
        lm(torch.full((2, 5), 7))
        lm.keep(torch.tensor([5, 1] if step % 2 else [1, 5]))
        width = lm.cache.get_seq_length()
        assert width <= 1.25 * int(lm.lengths.max())
    assert width < 8 + 12 * 5


def test_keeping_all_does_no_work() -> None:
    lm = CausalLM(tiny("llama"), *left_padded(prompts([3, 5])))
    lm.prefill()
    lm(torch.full((2, 3), 7))
    before = [layer.keys for layer in lm.cache.layers]
    lm.keep(torch.tensor([3, 3]))
    assert all(a is layer.keys for a, layer in zip(before, lm.cache.layers, strict=True))


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_models_are_not_croppable(name: str) -> None:
    lm = CausalLM(tiny(name), torch.tensor(prompts([5])))
    lm.prefill()
    assert not lm.croppable


def test_a_recurrent_model_that_must_forget_is_refused_by_name() -> None:
    lm = CausalLM(tiny("qwen3_next"), torch.tensor(prompts([5])))
    lm.prefill()
    lm(torch.tensor([[5, 6, 7]]))
    lm.keep(torch.tensor([3]))
    lm(torch.tensor([[5, 6, 7]]))
    with pytest.raises(ValueError, match=r"cannot forget.*LinearAttentionLayer"):
        lm.keep(torch.tensor([2]))


def test_a_block_as_long_as_the_window_cannot_be_refused() -> None:
    lm = CausalLM(tiny("mistral"), torch.tensor(prompts([5])))
    lm.prefill()
    lm(torch.tensor([[5] * 8]))
    with pytest.raises(ValueError, match="window is 8"):
        lm.keep(torch.tensor([2]))


# -- positions


def test_rows_past_the_table_of_positions_do_not_crash_their_neighbours() -> None:
    model = tiny("gpt2")
    rows = prompts([96, 5])
    lm = CausalLM(model, *left_padded(rows))
    lm.prefill()
    assert (lm.context_length, lm.position_limit) == (96, 96)
    for token in (9, 10, 11):
        logits = lm(torch.tensor([[token], [token]]))
        rows[1].append(token)
        assert_close(logits[1, 0], alone(model, rows[1])[0])


def test_rotary_models_have_no_position_limit() -> None:
    lm = CausalLM(tiny("llama"), torch.tensor([[5]]))
    assert (lm.context_length, lm.position_limit) == (96, None)


def test_a_prompt_longer_than_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`input_ids` reach position 96.*96 positions"):
        CausalLM(tiny("gpt2"), torch.full((1, 97), 5))


def test_given_positions_go_on_from_the_last_one() -> None:
    model, row = tiny("gpt2"), [5, 6, 7, 8]
    lm = CausalLM(model, torch.tensor([row]), position_ids=torch.tensor([[10, 11, 12, 13]]))
    lm.prefill()
    got = lm(torch.tensor([[9, 10]]))
    with torch.no_grad():
        want = model(
            input_ids=torch.tensor([[*row, 9, 10]]), position_ids=torch.arange(10, 16)[None]
        )
    assert_close(got, want.logits[:, -2:])
