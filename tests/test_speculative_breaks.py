"""Law 7 where it is easily broken: odd sources, odd models, ends and errors inside a block."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from scripted import Scripted
from tiny import IDS, MASK, PAD, PADDED, tiny_model
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPTNeoConfig,
    MistralConfig,
    MptConfig,
    TrOCRConfig,
    TrOCRForCausalLM,
)

import logitkit as lk
from logitkit import Draft, DraftSource, RowError, SamplingParams
from logitkit import verify as rules

VOCAB = 67
MODEL = tiny_model(vocab_size=VOCAB)
SMALL = tiny_model(seed=9, vocab_size=VOCAB, num_hidden_layers=1)
START = IDS.shape[1]


def written(params: Any, model: Any = MODEL, **keywords: Any) -> Any:
    shows = {"return_dict_in_generate": True, "pad_token_id": PAD}
    return lk.generate(model, params=params, **{**PADDED, **shows, **keywords})


def requests(*lengths: int, **fields: Any) -> list[SamplingParams]:
    return [
        SamplingParams(**{"sampling_seed": i, "max_new_tokens": n, "ignore_eos": True, **fields})
        for i, n in enumerate(lengths)
    ]


class Knows(DraftSource):
    """Proposes the `truth` [B, T] for the rows named, nothing for the others."""

    label = "knows"

    def __init__(self, truth: Tensor, slots: Sequence[int]) -> None:
        self.truth, self.slots = truth, slots

    def propose(self, batch: Any, k: int) -> Draft:
        written = (batch.history.head - batch.history.prompt_length).tolist()
        tokens = torch.zeros(len(batch), k, dtype=torch.int64)
        lengths = torch.zeros(len(batch), dtype=torch.int64)
        for slot in self.slots:
            known = self.truth[slot, written[slot] : written[slot] + k]
            tokens[slot, : len(known)], lengths[slot] = known, len(known)
        return Draft(tokens, lengths)


class Answers(DraftSource):
    """Gives the answer that it was made with."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def propose(self, batch: Any, k: int) -> Draft:
        answer: Draft = self.answer
        return answer


class Recorder:
    def __init__(self) -> None:
        self.columns: list[list[int]] = []

    def put(self, value: Tensor) -> None:
        self.columns.append(value.tolist())

    def end(self) -> None:
        pass


# -- what a source may answer

_TOKENS, _LENGTHS = torch.zeros(3, 2, dtype=torch.int64), torch.full((3,), 2)


@pytest.mark.parametrize("source", [lambda s: s, lambda s: lk.Cascade(lk.NgramDraft(), s)])
@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "returned a NoneType: return an lk.Draft"),
        ((_TOKENS, _LENGTHS), "returned a tuple"),
        (Draft([[1]] * 3, _LENGTHS), "`tokens` as a list"),  # type: ignore[arg-type]
        (Draft(_TOKENS.float(), _LENGTHS), "`tokens` as torch.float32"),
        (Draft(_TOKENS, _LENGTHS.double()), "`lengths` as torch.float64"),
        (Draft(_TOKENS[:2], _LENGTHS[:2]), r"tokens of shape \(2, 2\)"),
        (Draft(_TOKENS.repeat(2, 1), _LENGTHS.repeat(2)), r"tokens of shape \(6, 2\)"),
        (Draft(_TOKENS, _LENGTHS, strength=_LENGTHS[:1]), r"`strength` of shape \(1,\)"),
        (Draft(_TOKENS, _LENGTHS, strength=_LENGTHS.float()), "`strength` as torch.float32"),
        (Draft(_TOKENS, _LENGTHS, label=("a",)), "`label`"),
        (Draft(_TOKENS, _LENGTHS, label=["a"] * 3), "`label`"),  # type: ignore[arg-type]
    ],
)
def test_an_answer_that_is_no_draft_is_refused_by_name(
    answer: Any, message: str, source: Any
) -> None:
    for k in (2, "auto"):
        with pytest.raises(ValueError, match=f"`draft`: .*{message}"):
            written(requests(9, 9, 9), draft=source(Answers(answer)), num_draft_tokens=k)


def test_odd_but_clear_answers_are_taken() -> None:
    params = requests(9, 9, 9)
    plain = written(params)
    for dtype in (torch.uint8, torch.int16, torch.int32):
        for lengths in (_LENGTHS, torch.tensor([-3, 0, 99])):
            answer = Draft(_TOKENS.to(dtype), lengths.to(torch.int32))
            for source in (Answers(answer), lk.Cascade(Answers(answer), lk.NgramDraft())):
                for k in (2, "auto"):
                    out = written(params, draft=source, num_draft_tokens=k)
                    assert torch.equal(out.sequences, plain.sequences)


def test_logits_of_another_width_are_refused_where_they_count() -> None:
    answer = Draft(_TOKENS, _LENGTHS, torch.zeros(3, 2, 5))
    with pytest.raises(ValueError, match=r"`logits` of shape \(3, 2, 5\): .*\(3, 2, 67\)"):
        written(requests(9, 9, 9), draft=Answers(answer), num_draft_tokens=2, verify="ratio")


@pytest.mark.parametrize("cost", [-1.0, float("nan"), float("inf"), "much", None, True])
def test_a_cost_that_is_no_price_is_refused_by_name(cost: Any) -> None:
    source = Answers(None)
    source.cost = cost
    with pytest.raises(ValueError, match="`draft`: the `cost` of Answers"):
        written(requests(9, 9, 9), draft=source)


def test_a_cascade_in_a_cascade_pays_for_its_sources() -> None:
    model = lk.ModelDraft(SMALL)
    outer = lk.Cascade(lk.Cascade(model, lk.NgramDraft()), lk.AdjacencyDraft())
    assert [source.label for source in outer.sources] == ["ngram", "adjacency", "model"]


@pytest.mark.parametrize("worst", [-torch.inf, -3e38])
def test_an_infinite_lead_is_no_error(worst: float) -> None:
    model = tiny_model(vocab_size=VOCAB)

    def only_one(module: Any, inputs: Any, output: Any) -> Any:
        best = output.logits.argmax(-1, keepdim=True)
        output.logits = torch.full_like(output.logits, worst).scatter(-1, best, 3e38)
        return output

    model.register_forward_hook(only_one)
    params = requests(20, 20, 20, temperature=0)
    plain = written(params, model)
    for k in (3, "auto"):
        out = written(params, model, draft="adjacency", num_draft_tokens=k)
        assert torch.equal(out.sequences, plain.sequences)


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


# -- models


def made(config: Any) -> Any:
    torch.manual_seed(11)
    config.initializer_range = config.init_std = 0.3
    auto: Any = AutoModelForCausalLM
    return auto.from_config(config).eval()


def neo(positions: int) -> Any:
    return made(
        GPTNeoConfig(
            vocab_size=VOCAB, hidden_size=32, num_layers=2, num_heads=4, window_size=6,
            attention_types=[[["global", "local"], 1]], max_position_embeddings=positions,
            bos_token_id=1, eos_token_id=2,
        )
    )  # fmt: skip


def mpt(positions: int) -> Any:
    return made(
        MptConfig(
            vocab_size=VOCAB, d_model=32, n_layers=2, n_heads=4, max_seq_len=positions,
            expansion_ratio=2,
        )
    )  # fmt: skip


def gpt2(positions: int) -> Any:
    return made(
        GPT2Config(
            vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=positions,
            bos_token_id=1, eos_token_id=2,
        )
    )  # fmt: skip


@pytest.mark.parametrize("make", [neo, mpt, gpt2])
def test_rows_far_apart_fit_a_table_that_is_just_long_enough(make: Any) -> None:
    """One row runs to the end of the table while the other still begins, and the other way."""
    model, params = make(48), requests(32, 32)
    prompt = {"input_ids": torch.arange(5, 37).view(2, 16), "attention_mask": None}
    plain = written(params, model, **prompt)
    truth = plain.sequences[:, 16:]
    for slots in ((0,), (1,), (0, 1)):
        for k in (3, 30):
            source = Knows(truth, slots)
            out = written(params, model, draft=source, num_draft_tokens=k, **prompt)
            assert torch.equal(out.sequences, plain.sequences)
    out = written(params, model, draft=Scripted(truth, seed=3), num_draft_tokens=5, **prompt)
    assert torch.equal(out.sequences, plain.sequences)


@pytest.mark.parametrize("make", [neo, mpt, gpt2])
def test_a_draft_model_with_a_short_table_gives_up_in_silence(make: Any) -> None:
    params = requests(30, 20, 24)
    plain = written(params)
    for positions, ks in ((START, (1, 5)), (START + 1, (4,)), (12, (5,))):
        for k in ks:
            out = written(params, draft=make(positions), num_draft_tokens=k)
            assert torch.equal(out.sequences, plain.sequences)
    with pytest.raises(ValueError, match=r"`draft`: .* has 4 positions, and a prompt has 5"):
        written(params, draft=make(4))


@pytest.mark.parametrize("window", [1, 2, 3])
def test_the_shortest_windows_draft_little_or_are_refused(window: int) -> None:
    model = made(
        MistralConfig(
            vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=2, head_dim=16, sliding_window=window,
        )
    )  # fmt: skip
    params = requests(14, 9, 12)
    plain, other = written(params, model), written(params)
    for k in (4, "auto"):
        out = written(params, model, draft="ngram", num_draft_tokens=k)
        assert torch.equal(out.sequences, plain.sequences)
        if window == 1:
            with pytest.raises(ValueError, match="`draft`: MistralForCausalLM cannot forget"):
                written(params, draft=model, num_draft_tokens=k)
            continue
        out = written(params, draft=model, num_draft_tokens=k)
        assert torch.equal(out.sequences, other.sequences)


def test_a_model_that_counts_the_columns_of_a_table_drafts_for_one_row_only() -> None:
    torch.manual_seed(11)
    trocr: Any = TrOCRForCausalLM
    model = trocr(
        TrOCRConfig(
            vocab_size=VOCAB, d_model=32, decoder_layers=2, decoder_attention_heads=4,
            decoder_ffn_dim=48, init_std=0.3,
        )
    ).eval()  # fmt: skip
    prompt = {"input_ids": IDS[1:2], "attention_mask": None}
    plain = written(requests(12), model, **prompt)
    source = Scripted(plain.sequences[:, START:])
    out = written(requests(12), model, draft=source, num_draft_tokens=3, **prompt)
    assert torch.equal(out.sequences, plain.sequences)
    two = {"input_ids": IDS[1:2].repeat(2, 1), "attention_mask": None}
    with pytest.raises(ValueError, match="TrOCRForCausalLM takes no `position_ids`"):
        written(requests(12, 12), model, draft="ngram", **two)


def test_a_draft_token_without_an_embedding_never_reaches_the_target() -> None:
    model = tiny_model(seed=3, vocab_size=VOCAB)
    model.lm_head = torch.nn.Linear(32, 80, bias=False)
    torch.nn.init.normal_(model.lm_head.weight, std=0.3)
    params = requests(12, 12, 12, allowed_token_ids=list(range(3, 60)))
    plain = written(params, model)
    for ids in (75, VOCAB):
        source = Scripted(torch.full((3, 12), ids), "right")
        out = written(params, model, draft=source, num_draft_tokens=3)
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
