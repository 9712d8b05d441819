"""Law 7 for what is shown: ends, stops, scores, streamers, criteria, processors, errors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from drafted import EVERYTHING, NEW, assert_drafts_change_nothing, assert_same, requests, written
from recorder import Recorder
from scripted import Scripted
from tiny import IDS, tiny_tokenizer
from torch import Tensor
from transformers import LogitsProcessor

from logitkit import EmptyRowError


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
