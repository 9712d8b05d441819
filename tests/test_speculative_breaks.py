"""Law 7 where it is easily broken: ends, errors and processors inside a block."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from drafted_rows import START, VOCAB, Knows, requests, written
from recorder import Recorder
from scripted import Scripted
from tiny import IDS, MASK, tiny_model
from torch import Tensor

from logitkit import Draft, RowError, SamplingParams
from logitkit import verify as rules

SMALL = tiny_model(seed=9, vocab_size=VOCAB, num_hidden_layers=1)


# -- ends and errors inside a block


def test_rows_that_ran_ahead_of_a_failing_one_are_shown_to_their_end() -> None:
    class Empties:
        def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
            scores[1] = -torch.inf if ids.shape[1] == START + 3 else scores[1]
            return scores

    params = requests(12, 12, 12)
    truth = written(params).sequences[:, START:]
    heard, seen = [], []
    for more in ({}, {"draft": Knows(truth, (0, 2)), "num_draft_tokens": 12}):
        recorder = Recorder()
        calls: list[Any] = []

        def criterion(ids: Tensor, scores: Any, calls: list[Any] = calls) -> Tensor:
            calls.append(ids.tolist())
            return torch.tensor([False, False, ids.shape[1] == START + 7])

        with pytest.raises(RowError) as caught:
            written(
                params, streamer=recorder, logits_processor=[Empties()],
                stopping_criteria=[criterion], **more,
            )  # fmt: skip
        assert caught.value.output.finish_reasons == ["length", "error", "criteria"]
        heard.append(recorder.columns)
        seen.append(calls)
    assert len(heard[0]) == 1 + 12
    assert heard[0] == heard[1] and seen[0] == seen[1]


def test_the_error_raised_is_that_of_the_earliest_token() -> None:
    for seed in range(8):
        chance = random.Random(seed)
        places = {(slot, chance.randint(1, 10)): chance.random() < 0.5 for slot in range(3)}

        class Spoils:
            def __init__(self, places: Any) -> None:
                self.places = places

            def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
                for (slot, column), is_nan in self.places.items():
                    if ids.shape[1] == START + column:
                        scores[slot] = torch.nan if is_nan else -torch.inf
                return scores

        params = requests(12, 12, 12)
        source = Scripted(written(params).sequences[:, START:], seed=seed)
        told = []
        for more in ({}, {"draft": source, "num_draft_tokens": 5}):
            with pytest.raises(RowError) as caught:
                written(params, logits_processor=[Spoils(places)], **more)
            e = caught.value
            told.append((type(e), str(e), e.slots, getattr(e, "__notes__", None)))
            assert torch.equal(e.output.lengths, torch.tensor([c for _, c in places]))
        assert told[0] == told[1]


def test_a_row_cut_back_by_a_criterion_stays_within_its_room() -> None:
    """The room is 69 columns.

    The first row takes 1 + 20 * 3 + 1 tokens while the other takes 22, is then cut back to 22, and
    the other goes on by 21: 5 + 43 columns are taken, and with another 21 there is still room.
    """
    params = requests(90, 90)
    prompt = {"input_ids": IDS[:2], "attention_mask": MASK[:2]}
    truth = written(params, **prompt).sequences[:, START:]

    class Ahead(Knows):
        def propose(self, batch: Any, k: int) -> Draft:
            first, second = (batch.history.head - batch.history.prompt_length).tolist()
            self.slots = (0,) if first < 61 else (1,) if second >= 22 else ()
            return super().propose(batch, 2 if first < 61 else k)

    def criterion(ids: Tensor, scores: Any) -> Tensor:
        return torch.tensor([ids.shape[1] == START + 22, False])

    plain = written(params, stopping_criteria=[criterion], **prompt)
    assert plain.lengths.tolist() == [22, 90]
    out = written(
        params, stopping_criteria=[criterion], draft=Ahead(truth, ()), num_draft_tokens=20, **prompt
    )
    assert torch.equal(out.sequences, plain.sequences)


def test_criteria_see_the_scores_of_plain_decoding() -> None:
    params = requests(14, 14, 14)
    truth = written(params).sequences[:, START:]
    seen: list[list[list[bool]]] = []
    for more in ({}, {"draft": Knows(truth, (0, 2)), "num_draft_tokens": 6}):
        told: list[list[bool]] = []

        def criterion(ids: Tensor, scores: Any, told: list[list[bool]] = told) -> Tensor:
            told.append((scores[-1] != 0).any(1).tolist())
            return torch.tensor([ids.shape[1] == START + 3, False, False])

        written(params, output_scores=True, stopping_criteria=[criterion], **more)
        seen.append(told)
    assert seen[0] == seen[1]
    assert seen[0][2:4] == [[True] * 3, [False, True, True]]


# -- the caller's processors


def test_no_processor_is_shown_a_text_that_plain_decoding_cannot_write() -> None:
    """Neither behind what it banned, nor behind an eos or a stop id, nor longer than was asked."""
    params = [
        SamplingParams(sampling_seed=i, max_new_tokens=n, min_new_tokens=2, stop_token_ids=(11,))
        for i, n in enumerate((16, 5, 9))
    ]
    prompt = {"input_ids": torch.tensor([[5, 7, 9, 8]]), "attention_mask": None}
    for p in params:
        limit = p.max_new_tokens

        def allowed(row: int, ids: Tensor, limit: Any = limit) -> list[int]:
            new = ids[4:].tolist()
            assert len(new) < limit
            assert not {5, 7, 9} & set(new)
            assert not {2, 11} & set(new[2:])
            return [token for token in range(VOCAB) if token not in (5, 7, 9)]

        plain = written(p, prefix_allowed_tokens_fn=allowed, **prompt)
        truth = torch.full((1, 40), 7)
        truth[:, : int(plain.lengths)] = plain.sequences[:, 4:]
        sources = [SMALL, "ngram", Scripted(torch.full((1, 40), 7), "right")]
        sources += [Scripted(truth, mode, 1) for mode in ("mixed", "eos", "long")]
        for source in sources:
            for k in (3, 12):
                out = written(
                    p, prefix_allowed_tokens_fn=allowed, draft=source, num_draft_tokens=k, **prompt
                )
                assert torch.equal(out.sequences, plain.sequences)


# -- the rules of research


@pytest.mark.parametrize("verify", ["ratio", "block"])
@pytest.mark.parametrize("draft", [SMALL, "ngram"], ids=["model", "ngram"])
def test_research_coins_do_not_depend_on_the_neighbours(verify: str, draft: Any) -> None:
    params = requests(9, 17, 6, temperature=1.2)
    keywords = {"draft": draft, "verify": verify, "num_draft_tokens": 3}
    together = written(params, **keywords)
    for slot, p in enumerate(params):
        own = IDS[slot : slot + 1][:, MASK[slot].bool()]
        alone = written(p, input_ids=own, attention_mask=None, **keywords)
        text = alone.sequences[0, own.shape[1] :]
        assert torch.equal(together.sequences[slot, START:][: len(text)], text)


def test_block_verification_keeps_what_stands_before_an_undecidable_row() -> None:
    """The draft (a, b), weight w = p(a) / q(a) = 1/2, and no distribution behind a.

    An error there is a token that no draft proposes: the chance of a is w, as in "ratio". (With
    nothing in its place Z = 0, a would never be kept.)
    """
    half = torch.tensor([0.5, 0.5], dtype=torch.float64)
    p = torch.stack([half, torch.zeros(2), half])[None]
    q = torch.tensor([[[1.0, 0.0], [0.5, 0.5]]], dtype=torch.float64)
    draft, lengths = torch.tensor([[0, 1]]), torch.tensor([2])
    for coin, kept in ((0.49, 1), (0.51, 0)):
        coins = torch.tensor([[coin, 0.0]], dtype=torch.float64)
        for rule in (rules.block, rules.ratio):
            assert rule(p, q, draft, lengths, coins).num_kept.tolist() == [kept]
