"""How a row of `lk.generate` ends: lengths, reasons, padding, criteria, streamers."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from recorder import Recorder
from tiny import (
    EOS,
    IDS,
    MIXED,
    PAD,
    PADDED,
    VOCAB,
    logits_edited,
    tiny_model,
    tiny_tokenizer,
    writing,
)
from torch import Tensor
from transformers import (
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    MaxLengthCriteria,
    StoppingCriteriaList,
    TextIteratorStreamer,
)

from logitkit import SamplingParams
from logitkit.generation.door import generate

MODEL = tiny_model()
TOKENIZER = tiny_tokenizer()


# -- how long


def test_the_length_is_the_requests_then_the_calls_then_the_model_files_then_the_context() -> None:
    call = {"params": SamplingParams(sampling_seed=1, ignore_eos=True)}
    own = SamplingParams(sampling_seed=1, ignore_eos=True, max_new_tokens=3)
    model = copy.copy(MODEL)
    model.generation_config = GenerationConfig(max_new_tokens=6, eos_token_id=EOS)
    assert generate(model, IDS, params=own, max_new_tokens=9).shape[1] == 5 + 3
    assert generate(model, IDS, **call, max_new_tokens=9).shape[1] == 5 + 9
    assert generate(model, IDS, **call).shape[1] == 5 + 6
    assert generate(model, IDS, **call, max_new_tokens=None).shape[1] == 5 + 6
    assert generate(MODEL, IDS, **call).shape[1] == 96


def test_the_context_limits_every_row_by_its_own_tokens() -> None:
    params = SamplingParams(sampling_seed=1, ignore_eos=True)
    out = generate(MODEL, **PADDED, params=params, return_dict_in_generate=True)
    assert out.lengths.tolist() == [93, 91, 92]
    assert out.finish_reasons == ["length"] * 3


def test_a_prompt_that_fills_the_context_is_an_error() -> None:
    full = torch.full((1, 96), 5)
    with pytest.raises(ValueError, match=r"`input_ids`.*96.*shorten"):
        generate(MODEL, full)


def test_max_length_and_min_length_count_the_padded_prompt_as_in_transformers() -> None:
    call = {**PADDED, "max_length": 12, "eos_token_id": 22, "min_length": 9}
    assert generate(MODEL, **call).equal(MODEL.generate(**call))
    with pytest.raises(ValueError, match=r"`max_length`=5"):
        generate(MODEL, IDS, max_length=5)


def test_a_model_with_a_table_of_positions_is_not_run_past_it() -> None:
    torch.manual_seed(0)
    sizes = {"vocab_size": VOCAB, "n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 16}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=1, eos_token_id=None))
    assert generate(model, IDS, max_new_tokens=11).shape == (3, 16)
    with pytest.raises(ValueError, match=r"`max_new_tokens`=12.*at most 11"):
        generate(model, IDS, max_new_tokens=12)


# -- how a row ends


def test_reasons_lengths_texts_and_padding_of_every_kind_of_end() -> None:
    spelled = TOKENIZER.convert_tokens_to_ids
    rows = [
        [*map(spelled, "abc"), EOS],
        [*map(spelled, "xstopy")],
        [*map(spelled, "qr")],
        [*map(spelled, "ab12z".replace("1", "x").replace("2", "y"))],
        [*map(spelled, "mno")],
    ]
    params = [
        SamplingParams(temperature=0.0),
        SamplingParams(temperature=0.0, stop="top"),
        SamplingParams(temperature=0.0, stop_token_ids=[spelled("r")]),
        SamplingParams(temperature=0.0, stop_regex="b.y"),
        SamplingParams(temperature=0.0, max_new_tokens=2),
    ]
    ids = IDS[1].expand(5, -1)
    with logits_edited(MODEL, writing(rows)) as steps:
        out = generate(
            MODEL, ids, params=params, tokenizer=TOKENIZER, max_new_tokens=9,
            return_dict_in_generate=True,
        )  # fmt: skip
    assert out.finish_reasons == ["eos", "stop", "stop", "stop", "length"]
    assert out.stop_matched == [None, "top", spelled("r"), "b.y", None]
    assert out.lengths.tolist() == [4, 5, 2, 4, 2]
    assert out.texts == ["abc", "xs", "q", "a", "mn"]
    assert len(steps) == 5  # stops computing when all are done
    assert out.sequences[:, 5:].tolist() == [
        row[:length] + [PAD] * (5 - length)
        for row, length in zip(rows, out.lengths.tolist(), strict=True)
    ]


def test_ignored_eos_ends_nothing_and_min_new_tokens_holds_it_back() -> None:
    params = [
        SamplingParams(temperature=0.0, ignore_eos=True),
        SamplingParams(temperature=0.0, min_new_tokens=3),
    ]
    with logits_edited(MODEL, writing([[EOS], [EOS]])):
        out = generate(
            MODEL, IDS[:2], params=params, max_new_tokens=6, return_dict_in_generate=True
        )
    assert out.lengths.tolist() == [6, 4]
    assert out.finish_reasons == ["length", "eos"]
    assert EOS not in out.sequences[1, 5:8].tolist()


def test_pad_is_the_configs_then_the_tokenizers_then_eos() -> None:
    model = tiny_model(pad_token_id=None)

    def behind(**call: Any) -> int:
        with logits_edited(model, writing([[EOS], [7]])):
            out = generate(model, IDS[:2], max_new_tokens=3, do_sample=False, **call)
        return int(out[0, -1])

    assert behind() == EOS
    assert behind(tokenizer=TOKENIZER) == PAD
    assert behind(tokenizer=TOKENIZER, pad_token_id=9) == 9


def test_a_pad_beyond_the_vocabulary_fills_rows_and_never_reaches_the_model() -> None:
    call = {**PADDED, "params": MIXED, "max_new_tokens": 9}
    with_pad = generate(MODEL, **call, pad_token_id=VOCAB + 5)
    assert (with_pad[1, 12:] == VOCAB + 5).all()
    assert with_pad.where(with_pad < VOCAB, PAD).equal(generate(MODEL, **call))


def test_padding_without_any_pad_or_eos_id_is_an_error_only_when_rows_may_differ() -> None:
    model = tiny_model(pad_token_id=None, eos_token_id=None)
    assert generate(model, IDS, max_new_tokens=3).shape == (3, 8)
    assert generate(model, IDS[:1], params=SamplingParams(stop_token_ids=[3])).shape[0] == 1
    with pytest.raises(ValueError, match="`pad_token_id`"):
        generate(model, IDS, params=SamplingParams(stop_token_ids=[3]), max_new_tokens=3)


def test_the_callers_criteria_stop_rows_and_see_what_transformers_shows() -> None:
    seen: list[tuple[tuple[int, ...], Any]] = []

    def wants_two(input_ids: Tensor, scores: Any, **_: Any) -> Tensor:
        seen.append((tuple(input_ids.shape), scores))
        return torch.tensor([input_ids.shape[1] >= 7, False, input_ids.shape[1] >= 8])

    out = generate(
        MODEL, **PADDED, params=SamplingParams(temperature=0.0), max_new_tokens=5,
        stopping_criteria=StoppingCriteriaList([wants_two]), return_dict_in_generate=True,
    )  # fmt: skip
    assert out.finish_reasons == ["criteria", "length", "criteria"]
    assert out.lengths.tolist() == [2, 5, 3]
    assert seen == [((3, 5 + i), None) for i in range(1, 6)]
    by_length = generate(MODEL, IDS, stopping_criteria=[MaxLengthCriteria(9)])
    assert by_length.shape[1] == 9


def test_max_time_ends_the_generation() -> None:
    out = generate(MODEL, IDS, max_time=0.0, return_dict_in_generate=True)
    assert out.finish_reasons == ["criteria"] * 3
    assert out.lengths.tolist() == [1, 1, 1]


# -- streamers


def test_a_streamer_gets_the_prompt_then_every_token_and_is_ended() -> None:
    streamer = Recorder()
    out = generate(MODEL, **PADDED, params=MIXED, max_new_tokens=9, streamer=streamer)
    prompt, *tokens = streamer.puts
    assert prompt.equal(IDS)
    assert torch.stack(tokens, 1).equal(out[:, 5:])
    assert streamer.ends == 1


@pytest.mark.parametrize("call", [{"num_beams": 3}, {"params": [SamplingParams()] * 2}])
def test_a_streamer_is_ended_once_when_the_call_is_refused(call: dict[str, Any]) -> None:
    streamer = Recorder()
    with pytest.raises(ValueError):
        generate(MODEL, **PADDED, **call, streamer=streamer)
    assert streamer.ends == 1


def test_an_interrupt_ends_the_streamer_and_breaks_nothing() -> None:
    streamer = Recorder(fails_at=4)
    call = {**PADDED, "params": MIXED, "max_new_tokens": 9}
    before = generate(MODEL, **call)
    with pytest.raises(KeyboardInterrupt):
        generate(MODEL, **call, streamer=streamer)
    assert streamer.ends == 1
    assert generate(MODEL, **call).equal(before)


def test_a_text_iterator_streamer_yields_the_text() -> None:
    streamer = TextIteratorStreamer(TOKENIZER, skip_prompt=True, skip_special_tokens=True)
    out = generate(
        MODEL, IDS[1:2], params=SamplingParams(sampling_seed=3), max_new_tokens=9,
        tokenizer=TOKENIZER, streamer=streamer, return_dict_in_generate=True,
    )  # fmt: skip
    assert "".join(streamer) == out.texts[0] != ""
