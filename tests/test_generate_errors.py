"""What `lk.generate` cannot do: rows that cannot be decided, and calls refused by name."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tiny import (
    IDS,
    MASK,
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
    BartConfig,
    BartForConditionalGeneration,
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
)

from logitkit import BadLogitsError, EmptyRowError, SamplingParams
from logitkit.generation.door import generate
from logitkit.pipeline.door import LogitsPipeline

MODEL = tiny_model()
TOKENIZER = tiny_tokenizer()


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
