"""`lk.generate`: the door as transformers has it, rows as strangers, errors by name."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tiny import (
    EOS,
    IDS,
    MASK,
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
    BartConfig,
    BartForConditionalGeneration,
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LogitsProcessor,
    LogitsProcessorList,
    MaxLengthCriteria,
    StoppingCriteriaList,
    TextIteratorStreamer,
)
from transformers.generation.streamers import BaseStreamer

from logitkit import BadLogitsError, EmptyRowError, SamplingParams
from logitkit.generation import keywords as words
from logitkit.generation.door import generate
from logitkit.params.generation_config import LEFT_TO_THE_DOOR
from logitkit.pipeline.door import LogitsPipeline

MODEL = tiny_model()
TOKENIZER = tiny_tokenizer()
MIXED = [
    SamplingParams(temperature=0.8, top_p=0.9, repetition_penalty=1.2, sampling_seed=3),
    SamplingParams(temperature=0.0, presence_penalty=0.5, max_new_tokens=7),
    SamplingParams(top_k=9, min_p=0.02, xtc_probability=0.5, sampling_seed=4, max_new_tokens=12),
]


class Recorder(BaseStreamer):
    """A streamer that keeps what it gets; `fails_at` makes the put of that number raise."""

    def __init__(self, fails_at: int = -1) -> None:
        self.puts: list[Tensor] = []
        self.ends = 0
        self.fails_at = fails_at

    def put(self, value: Tensor) -> None:
        if len(self.puts) == self.fails_at:
            raise KeyboardInterrupt
        self.puts.append(value.clone())

    def end(self) -> None:
        self.ends += 1


def new_tokens(sequence: Tensor, width: int, length: int) -> list[int]:
    return sequence[width : width + length].tolist()


def unpadded(row: int) -> dict[str, Tensor]:
    """One prompt of `PADDED`, without its padding."""
    ids = IDS[row : row + 1, MASK[row] == 1]
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


# -- the same tokens as transformers, alone or in a batch, on every backend


@pytest.mark.parametrize("eos", [EOS, [22, 57], None])
def test_greedy_equals_transformers_token_for_token(eos: Any) -> None:
    call = {**PADDED, "do_sample": False, "max_new_tokens": 25, "eos_token_id": eos}
    assert generate(MODEL, **call).equal(MODEL.generate(**call))


def test_greedy_equals_transformers_with_its_edits_and_a_pad_that_is_the_eos() -> None:
    call = {
        **PADDED, "max_new_tokens": 25, "eos_token_id": 51, "pad_token_id": 51,
        "repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "bad_words_ids": [[57], [29, 38]],
        "min_new_tokens": 4, "suppress_tokens": [45], "sequence_bias": {(13,): 1.5},
    }  # fmt: skip
    ours = generate(MODEL, **call)
    assert ours.equal(MODEL.generate(**call))
    assert (ours[:, 5:] == 51).any()


def test_scores_and_logits_equal_those_of_transformers() -> None:
    call = {
        **PADDED, "max_new_tokens": 6, "repetition_penalty": 1.3, "eos_token_id": None,
        "return_dict_in_generate": True, "output_scores": True, "output_logits": True,
    }  # fmt: skip
    ours = generate(MODEL, **call)
    for row in range(3):
        # without padding, which its repetition penalty counts as text in some releases
        theirs = MODEL.generate(**{**call, **unpadded(row)})
        for name in ("scores", "logits"):
            assert len(ours[name]) == 6
            for mine, other in zip(ours[name], theirs[name], strict=True):
                torch.testing.assert_close(mine[row : row + 1], other, rtol=1e-4, atol=1e-4)


def test_sampled_scores_are_the_logits_behind_every_stage() -> None:
    call = {
        **PADDED, "max_new_tokens": 1, "return_dict_in_generate": True, "output_scores": True,
        "temperature": 0.7, "top_k": 5, "do_sample": True,
    }  # fmt: skip
    ours, theirs = generate(MODEL, **call), MODEL.generate(**call)
    torch.testing.assert_close(ours.scores[0], theirs.scores[0], rtol=1e-4, atol=1e-4)
    assert (ours.scores[0] > -torch.inf).sum(1).tolist() == [5, 5, 5]


@pytest.mark.parametrize("backend", ["torch", "numba"])
def test_each_row_of_a_batch_equals_the_request_alone_and_unpadded(backend: str) -> None:
    batch = generate(
        MODEL, **PADDED, params=MIXED, max_new_tokens=20, backend=backend,
        return_dict_in_generate=True,
    )  # fmt: skip
    assert batch.lengths.tolist() == [20, 7, 12]
    for row, p in enumerate(MIXED):
        alone = generate(
            MODEL, IDS[row : row + 1, MASK[row] == 1], params=p, max_new_tokens=20, backend=backend
        )
        length = int(batch.lengths[row])
        assert new_tokens(batch.sequences[row], 5, length) == new_tokens(
            alone[0], int(MASK[row].sum()), length
        )
        assert (batch.sequences[row, 5 + length :] == PAD).all()


def test_backends_and_kept_scores_do_not_change_a_token() -> None:
    chosen = [*MIXED[:2], SamplingParams(top_p=0.8, typical_p=0.9, n=2, sampling_seed=1)]
    call = {**PADDED, "params": chosen, "max_new_tokens": 15}
    first = generate(MODEL, **call, backend="numba")
    assert first.equal(generate(MODEL, **call, backend="torch"))
    for backend in ("numba", "torch"):
        shown = generate(
            MODEL, **call, backend=backend, return_dict_in_generate=True, output_scores=True
        )
        assert first.equal(shown.sequences)


def test_missing_seeds_come_from_the_global_generator_and_nothing_else_does() -> None:
    torch.manual_seed(5)
    first = generate(MODEL, **PADDED, params=SamplingParams(), max_new_tokens=12)
    after = torch.get_rng_state()
    torch.manual_seed(5)
    assert first.equal(generate(MODEL, **PADDED, params=SamplingParams(), max_new_tokens=12))
    assert not first.equal(generate(MODEL, **PADDED, params=SamplingParams(), max_new_tokens=12))
    torch.manual_seed(5)
    torch.randint(0, 2**32, (2,)), torch.randint(0, 2**32, (2,)), torch.randint(0, 2**32, (2,))
    assert after.equal(torch.get_rng_state())


def test_a_given_seed_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    generate(MODEL, **PADDED, params=SamplingParams(sampling_seed=1), max_new_tokens=3)
    assert before.equal(torch.get_rng_state())


def test_samples_of_one_prompt_follow_each_other_and_differ() -> None:
    params = [SamplingParams(n=3, sampling_seed=8), SamplingParams(sampling_seed=8)]
    out = generate(MODEL, IDS[:2], attention_mask=MASK[:2], params=params, max_new_tokens=10)
    assert out.shape == (4, 15)
    assert out[:, :5].equal(IDS[[0, 0, 0, 1]])
    assert len({tuple(row) for row in out[:3].tolist()}) == 3
    alone = generate(
        MODEL, IDS[:1], attention_mask=MASK[:1], max_new_tokens=10,
        params=SamplingParams(sampling_seed=8),
    )  # fmt: skip
    assert out[0].equal(alone[0])  # sample 0 keeps the seed


# -- transformers' spelling


def test_keywords_say_what_params_say() -> None:
    torch.manual_seed(1)
    by_words = generate(
        MODEL, **PADDED, max_new_tokens=12, do_sample=True, temperature=0.7, top_p=0.9,
        repetition_penalty=1.1, num_return_sequences=2,
    )  # fmt: skip
    params = SamplingParams(temperature=0.7, top_p=0.9, top_k=50, repetition_penalty=1.1, n=2)
    torch.manual_seed(1)
    assert by_words.equal(generate(MODEL, **PADDED, params=params, max_new_tokens=12))


def keyword_params(model: Any = MODEL, passed: Any = None, **keywords: Any) -> SamplingParams:
    read, _ = words.read_keywords(keywords, passed, model.generation_config, ())
    return read.sampling_params(5)


@pytest.mark.parametrize(
    "field", [{"temperature": 0.5}, {"top_p": 0.5}, {"top_k": 3}, {"min_p": 0.1}]
)
def test_a_sampling_keyword_alone_means_sampling(field: dict[str, Any]) -> None:
    assert keyword_params() == SamplingParams(temperature=0.0)
    assert keyword_params(**field) == SamplingParams(**{"top_k": 50, **field})
    assert keyword_params(do_sample=False, **field) == SamplingParams(temperature=0.0)


def test_keywords_beat_a_passed_config_and_that_beats_the_model_file() -> None:
    model = copy.copy(MODEL)
    model.generation_config = GenerationConfig(
        do_sample=True, temperature=0.3, top_p=0.4, typical_p=0.5, eos_token_id=EOS
    )
    passed = GenerationConfig(top_p=0.6, typical_p=0.7)
    found = keyword_params(model, passed, typical_p=0.8)
    assert found == SamplingParams(temperature=0.3, top_p=0.6, typical_p=0.8, top_k=50)


def test_an_explicit_none_takes_the_model_files_value_away() -> None:
    model = copy.copy(MODEL)
    model.generation_config = GenerationConfig(do_sample=True, top_k=7, temperature=0.5)
    assert keyword_params(model, top_k=None) == SamplingParams(temperature=0.5)
    assert keyword_params(model) == SamplingParams(temperature=0.5, top_k=7)


def test_the_model_files_sampling_is_not_for_params() -> None:
    model = copy.copy(MODEL)
    model.generation_config = GenerationConfig(repetition_penalty=5.0, eos_token_id=EOS)
    call = {**PADDED, "max_new_tokens": 10}
    plain = generate(MODEL, **call, params=SamplingParams(temperature=0.0))
    assert plain.equal(generate(model, **call, params=SamplingParams(temperature=0.0)))
    assert not plain.equal(generate(model, **call))


def test_the_models_configs_stay_as_they_are() -> None:
    model, passed = tiny_model(), GenerationConfig(top_p=0.5, max_new_tokens=3)
    before = [model.generation_config.to_dict(), model.config.to_dict(), passed.to_dict()]
    generate(model, **PADDED, generation_config=passed, eos_token_id=9, pad_token_id=8)
    with pytest.raises(ValueError, match="num_beams"):
        generate(model, **PADDED, generation_config=passed, num_beams=4)
    assert before == [model.generation_config.to_dict(), model.config.to_dict(), passed.to_dict()]
    assert not model.training


def test_every_field_left_to_the_door_is_honoured_idle_or_refused() -> None:
    kinds = [
        words.HONOURED, words.IDLE, set(words.MACHINERY), words.SPECULATION, set(words.SHOWN),
    ]  # fmt: skip
    assert set().union(*kinds) == LEFT_TO_THE_DOOR
    assert sum(map(len, kinds)) == len(LEFT_TO_THE_DOOR)


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


# -- processors


class Watch(LogitsProcessor):
    """Keeps what it is shown, and bans a token in place."""

    def __init__(self, banned: int = 22) -> None:
        self.banned = banned
        self.ids: list[Tensor] = []
        self.scores: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.ids.append(input_ids.clone())
        self.scores.append(scores.clone())
        scores[:, self.banned] = -torch.inf
        return scores


def test_processors_are_shown_what_transformers_shows_them() -> None:
    edits = {"sequence_bias": {(13,): 1.5}, "bad_words_ids": [[57], [29, 38]]}
    call = {**PADDED, **edits, "max_new_tokens": 8, "eos_token_id": None}
    mine, theirs = Watch(), Watch()
    ours = generate(MODEL, **call, logits_processor=[mine])
    assert ours.equal(MODEL.generate(**call, logits_processor=LogitsProcessorList([theirs])))
    assert 22 not in ours[:, 5:]
    assert all(a.equal(b) for a, b in zip(mine.ids, theirs.ids, strict=True))
    for a, b in zip(mine.scores, theirs.scores, strict=True):
        assert a.dtype == torch.float32
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_processors_run_before_the_temperature_and_leave_masked_tokens_masked() -> None:
    class Lifts(LogitsProcessor):
        def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
            return torch.zeros_like(scores).index_fill(1, torch.tensor([6]), 4.0)

    out = generate(
        MODEL, IDS[:1], params=SamplingParams(temperature=2.0, allowed_token_ids=[5, 6]),
        max_new_tokens=1, logits_processor=[Lifts()], output_scores=True,
        return_dict_in_generate=True,
    )  # fmt: skip
    assert out.scores[0][0, [4, 5, 6]].tolist() == [-torch.inf, 0.0, 2.0]


def test_each_row_beside_a_processor_equals_the_request_alone() -> None:
    call = {"max_new_tokens": 12, "logits_processor": [Watch()]}
    batch = generate(MODEL, **PADDED, params=MIXED, **call)
    for row, p in enumerate(MIXED):
        alone = generate(MODEL, IDS[row : row + 1, MASK[row] == 1], params=p, **call)
        new = alone.shape[1] - int(MASK[row].sum())
        assert batch[row, 5 : 5 + new].tolist() == alone[0, -new:].tolist()


def test_a_row_that_is_over_may_be_masked_by_a_processor_without_harm() -> None:
    class EmptiesRowOne(LogitsProcessor):
        def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
            if input_ids.shape[1] > 7:
                scores[1] = -torch.inf
            return scores

    params = [SamplingParams(temperature=0.0), SamplingParams(temperature=0.0, max_new_tokens=2)]
    out = generate(
        MODEL, IDS[:2], params=params, max_new_tokens=6, logits_processor=[EmptiesRowOne()]
    )
    assert out.shape == (2, 11)


def test_prefix_allowed_tokens_fn_is_asked_for_the_prompt_of_every_row() -> None:
    asked = []

    def allowed(prompt: int, ids: Tensor) -> list[int]:
        asked.append(prompt)
        return [10 + prompt]

    params = [SamplingParams(n=2), SamplingParams()]
    out = generate(
        MODEL, IDS[:2], params=params, max_new_tokens=2, prefix_allowed_tokens_fn=allowed
    )
    assert out[:, 5:].tolist() == [[10, 10], [10, 10], [11, 11]]
    assert asked[:3] == [0, 0, 1]


def test_a_processor_that_empties_a_row_is_blamed_with_its_request() -> None:
    class Empties(LogitsProcessor):
        def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
            assert len(input_ids) == len(scores) == 3  # all rows, whoever asks
            scores[2] = -torch.inf
            return scores

    with pytest.raises(EmptyRowError, match=r"request 2, position 4: .* stage TransformersList"):
        generate(MODEL, **PADDED, max_new_tokens=2, logits_processor=[Empties()])


def test_a_text_iterator_streamer_yields_the_text() -> None:
    streamer = TextIteratorStreamer(TOKENIZER, skip_prompt=True, skip_special_tokens=True)
    out = generate(
        MODEL, IDS[1:2], params=SamplingParams(sampling_seed=3), max_new_tokens=9,
        tokenizer=TOKENIZER, streamer=streamer, return_dict_in_generate=True,
    )  # fmt: skip
    assert "".join(streamer) == out.texts[0] != ""


def test_a_processor_that_returns_another_shape_is_named() -> None:
    class Cuts(LogitsProcessor):
        def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
            return scores[:, :3]

    with pytest.raises(ValueError, match=r"Cuts returned \(3, 3\)"):
        generate(MODEL, IDS, logits_processor=[Cuts()], max_new_tokens=1)


# -- rows that cannot be decided


def test_a_bad_row_stops_the_others_finish_and_the_error_brings_their_result() -> None:
    def edit(logits: Tensor, step: int) -> Tensor:
        if step == 3:
            logits = logits.clone()
            logits[1] = torch.nan
        return logits

    call = {**PADDED, "params": MIXED, "max_new_tokens": 9}
    healthy = generate(MODEL, **call)
    with logits_edited(MODEL, edit), pytest.raises(BadLogitsError, match="request 1") as caught:
        generate(MODEL, **call, return_dict_in_generate=True)
    out = caught.value.output
    assert caught.value.slots == (1,)
    assert out.finish_reasons == ["length", "error", "length"]
    assert out.lengths.tolist() == [9, 3, 12]
    assert out.sequences[[0, 2]].equal(healthy[[0, 2]])
    assert out.sequences[1].tolist() == [*healthy[1, :8].tolist(), *[PAD] * 9]


def test_a_later_failure_is_told_with_the_first() -> None:
    empties = [
        SamplingParams(bad_words_ids=[[t] for t in range(3)], allowed_token_ids=[0, 1, 2, 7]),
        SamplingParams(),
    ]

    def edit(logits: Tensor, step: int) -> Tensor:
        logits = logits.clone()
        logits[0, 7] = 0.0 if step == 0 else -torch.inf
        logits[1] = torch.inf if step == 2 else logits[1]
        return logits

    with (
        logits_edited(MODEL, edit),
        pytest.raises(EmptyRowError, match="request 0, position 6: no token left") as caught,
    ):
        generate(MODEL, IDS[:2], params=empties, max_new_tokens=9)
    assert caught.value.slots == (0, 1)
    assert "request 1" in caught.value.__notes__[0]
    assert caught.value.output.shape == (2, 5 + 2)


def test_bad_logits_behind_the_end_of_a_row_do_not_matter() -> None:
    def edit(logits: Tensor, step: int) -> Tensor:
        logits = logits.clone()
        if step >= 7:
            logits[1] = torch.nan
        return logits

    with logits_edited(MODEL, edit):
        assert generate(MODEL, **PADDED, params=MIXED, max_new_tokens=9).shape == (3, 17)


def test_a_stop_regex_out_of_time_concerns_its_own_request_only() -> None:
    letters = [3] * 60
    params = [
        SamplingParams(temperature=0.0, stop_regex="(a|aa)+!", min_new_tokens=50),
        SamplingParams(temperature=0.0, max_new_tokens=60),
    ]
    with logits_edited(MODEL, writing([letters, letters])), pytest.raises(RuntimeError) as caught:
        generate(
            MODEL, IDS[:2, :2], params=params, tokenizer=TOKENIZER, max_new_tokens=60,
            return_dict_in_generate=True,
        )  # fmt: skip
    assert "stop_regex" in str(caught.value)
    out = vars(caught.value)["output"]
    assert out.finish_reasons == ["error", "length"]


# -- errors by name


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"num_beams": 2}, "`num_beams` = 2"),
        ({"guidance_scale": 1.5}, "`guidance_scale`"),
        ({"watermarking_config": {"bias": 2.0}}, "`watermarking_config`"),
        ({"penalty_alpha": 0.6}, "`penalty_alpha`"),
        ({"forced_eos_token_id": 2}, "`forced_eos_token_id`"),
        ({"draft": object()}, "`draft`"),
        ({"num_draft_tokens": 4}, "`num_draft_tokens`=4 means nothing without `draft`"),
        ({"verify": "ratio", "num_draft_tokens": 2}, "means nothing without `draft`"),
        ({"verify": "block"}, "`verify`='block' needs an integer `num_draft_tokens`"),
        ({"assistant_model": MODEL}, "`assistant_model`.* here pass draft="),
        ({"prompt_lookup_num_tokens": 3}, "`prompt_lookup_num_tokens`.* here pass draft="),
        ({"num_assistant_tokens": 3}, "`num_assistant_tokens`.* here pass draft="),
        ({"temprature": 0.5}, "`temprature`.*did you mean `temperature`"),
        ({"foo": 1}, "`foo`"),
        ({"presence_penalty": 0.5}, r"`presence_penalty`.*params=SamplingParams"),
        ({"use_cache": False}, "`use_cache`=False"),
        ({"cache_implementation": "static"}, "`cache_implementation`='static'"),
        ({"output_attentions": True}, "`output_attentions`"),
        ({"synced_gpus": True}, "`synced_gpus`"),
        ({"custom_generate": print}, "`custom_generate`"),
        ({"temperature": -1.0}, "`temperature`"),
        ({"max_new_tokens": 0}, "`max_new_tokens`"),
        ({"stop_strings": "x"}, "`stop_strings`.*tokenizer"),
        ({"pad_token_id": -1}, "`pad_token_id` is -1"),
        ({"eos_token_id": VOCAB}, "`eos_token_ids`"),
        ({"logits_processor": [LogitsPipeline(SamplingParams())]}, "LogitsPipeline"),
        ({"logits_processor": [3]}, "`logits_processor` holds 3"),
        ({"min_new_tokens": 9, "max_new_tokens": 4}, "`min_new_tokens`=9"),
        ({"params": SamplingParams(), "temperature": 0.5}, "`temperature` beside `params`"),
        ({"params": SamplingParams(), "do_sample": True}, "`do_sample` beside `params`"),
        ({"params": SamplingParams(), "num_beams": 2}, "`num_beams`"),
        ({"params": SamplingParams(), "num_return_sequences": 2}, "`num_return_sequences`=2"),
        ({"params": SamplingParams(), "generation_config": GenerationConfig(top_p=0.5)}, "`top_p`"),
        ({"params": [SamplingParams()] * 2}, "2 entries for 3 prompts"),
        ({"params": "greedy"}, "`params` holds 'greedy'"),
        ({"params": 3}, "`params` holds 3"),
        ({"params": {"top_k": 3}}, "`params` holds {'top_k'"),
        ({"generation_config": SamplingParams(top_k=3)}, "`generation_config` is .*params="),
        ({"generation_config": MODEL.config}, "`generation_config` is "),
        ({"tokenizer": "gpt2"}, "`tokenizer` is a str without decode"),
        ({"input_ids": 3}, "`input_ids` is an int"),
        ({"input_ids": -IDS}, "`input_ids` has token id -12, outside 0..63 of"),
        ({"params": SamplingParams(logprobs=1)}, "return_dict_in_generate=True"),
        ({"params": SamplingParams(stop="x")}, "`stop`.*tokenizer"),
        ({"params": SamplingParams(extra={"n_sigma": 1.0})}, "n_sigma"),
        ({"generation_config": {"top_p": 0.5}}, "`generation_config`"),
        ({"input_ids": IDS[0]}, r"`input_ids` has shape \(5,\).*input_ids\[None\]"),
        ({"input_ids": IDS.tolist()}, "`input_ids` is a list"),
        ({"input_ids": None}, "`input_ids` is missing"),
        ({"inputs": IDS}, "`inputs` and `input_ids`"),
        ({"attention_mask": MASK.flip(1)}, "`attention_mask` of row 0 ends in padding"),
        ({"backend": "cuda"}, "`backend`"),
    ],
)  # fmt: skip
def test_what_cannot_be_honoured_is_an_error_that_names_it(
    keywords: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        generate(MODEL, **{"input_ids": IDS, **keywords})


@pytest.mark.parametrize(
    ("model", "words"), [("gpt2", "is a str"), (None, "is a NoneType"), (GPT2Config(), "is a GPT2"),
                         (GPT2LMHeadModel, "is the class GPT2LMHeadModel")],
)  # fmt: skip
def test_what_is_no_model_is_named(model: Any, words: str) -> None:
    with pytest.raises(ValueError, match=f"`model` {words}.*give a transformers model"):
        generate(model, IDS, max_new_tokens=1)


def test_a_refusal_says_where_the_field_was_set() -> None:
    model = copy.copy(MODEL)
    model.generation_config = GenerationConfig(guidance_scale=1.5)
    with pytest.raises(ValueError) as error:
        generate(
            model, IDS, max_new_tokens=1, num_beams=2, penalty_alpha=0.6,
            generation_config=GenerationConfig(token_healing=True),
        )  # fmt: skip
    message = str(error.value)
    assert "`num_beams` = 2, `penalty_alpha` = 0.6 as a keyword" in message
    assert "leave them out" in message
    assert "`token_healing` = True of the generation config cannot be honoured: unset" in message
    assert "`guidance_scale` = 1.5 of the model's generation config" in message
    with pytest.raises(ValueError, match=r"`num_beams` = 2 as a keyword [^.]*leave it out\.$"):
        generate(MODEL, IDS, max_new_tokens=1, num_beams=2, params=SamplingParams())


def test_a_mapping_in_the_place_of_ids_is_told_to_be_unpacked() -> None:
    with pytest.raises(ValueError, match=r"\*\*inputs"):
        generate(MODEL, PADDED)  # type: ignore[arg-type]


def test_encoder_decoder_models_are_refused_by_name() -> None:
    config = BartConfig(
        vocab_size=VOCAB, d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=16,
        decoder_ffn_dim=16, encoder_attention_heads=2, decoder_attention_heads=2,
    )  # fmt: skip
    with pytest.raises(ValueError, match="BartForConditionalGeneration is an encoder-decoder"):
        generate(
            BartForConditionalGeneration(config), IDS, params=SamplingParams(), max_new_tokens=2
        )


def test_padding_is_told_by_the_mask_and_never_by_the_ids() -> None:
    call = {"params": SamplingParams(temperature=0.0), "max_new_tokens": 6}
    as_tokens = generate(MODEL, IDS, **call)
    assert as_tokens.equal(generate(MODEL, IDS, attention_mask=torch.ones_like(IDS), **call))
    assert not as_tokens.equal(generate(MODEL, **PADDED, **call))


def test_model_inputs_are_repeated_with_the_prompts() -> None:
    positions = (MASK.cumsum(1) - 1).clamp_min(0) + 3
    call = {**PADDED, "position_ids": positions, "max_new_tokens": 5}
    once = generate(MODEL, **call, params=SamplingParams(temperature=0.0))
    twice = generate(MODEL, **call, params=SamplingParams(temperature=0.0, n=2))
    assert twice.equal(once.repeat_interleave(2, 0))


@pytest.mark.network
def test_smollm2_greedy_equals_transformers_and_batches_equal_single_rows(
    smollm2: tuple[Any, Any],
) -> None:
    model, tokenizer = smollm2
    texts = ["The capital of France is", "Once upon a time, in a small village,"]
    inputs = tokenizer(texts, return_tensors="pt", padding=True, padding_side="left")
    call = {"max_new_tokens": 8, "do_sample": False}
    assert generate(model, **inputs, **call).equal(model.generate(**inputs, **call))
    params = [SamplingParams(temperature=0.7, top_p=0.9, sampling_seed=i) for i in range(2)]
    both = generate(model, **inputs, params=params, max_new_tokens=8, tokenizer=tokenizer)
    for row, text in enumerate(texts):
        alone = generate(
            model, **tokenizer(text, return_tensors="pt"), params=params[row], max_new_tokens=8
        )
        assert both[row].tolist()[-8:] == alone[0].tolist()[-8:]
