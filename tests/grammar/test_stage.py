"""Grammars in the loop as a user has them: every door, every kind, beside everything else."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from helpers import letters, start
from torch import Tensor
from writers import EOS, IDS, KINDS, MASK, PAD, VOCAB, encode, model, request, tokenizer

import logitkit as lk
from logitkit import SamplingParams
from logitkit.params import resolve

PLAIN = SamplingParams(sampling_seed=9, max_new_tokens=12)
EVERYTHING: dict[str, Any] = {
    "logit_bias": {EOS: 2.0, 40: -1.0}, "repetition_penalty": 1.1, "presence_penalty": 0.4,
    "frequency_penalty": 0.1, "temperature": 0.9, "top_k": 60, "top_p": 0.98, "min_p": 0.001,
    "no_repeat_ngram_size": 9, "typical_p": 0.99, "xtc_probability": 0.2,
}  # fmt: skip


def written(requests: list[SamplingParams], rows: int = 3, **options: Any) -> Any:
    """What `lk.generate` writes for as many prompts."""
    return lk.generate(
        model(), input_ids=IDS[:rows], attention_mask=MASK[:rows], params=requests,
        tokenizer=tokenizer(), return_dict_in_generate=True, **options,
    )  # fmt: skip


def piped(requests: list[SamplingParams], **options: Any) -> tuple[list[str], Tensor]:
    """What `model.generate` writes with a `LogitsPipeline`: the texts and all ids."""
    pipe = lk.LogitsPipeline(requests, tokenizer=tokenizer(), **options)
    rows = len(requests)
    ids = model().generate(
        input_ids=IDS[:rows], attention_mask=MASK[:rows], max_new_tokens=40, do_sample=True,
        logits_processor=[pipe], stopping_criteria=pipe.stopping_criteria(),
    )  # fmt: skip
    new = [row[IDS.shape[1] :] for row in ids]
    return [tokenizer().decode(row, skip_special_tokens=True) for row in new], ids


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("kind", KINDS)
def test_every_text_follows_its_grammar_at_every_door(kind: str, temperature: float) -> None:
    fits = KINDS[kind][1]
    requests = [request(kind, seed, temperature=temperature) for seed in (1, 2)]
    requests.insert(1, PLAIN)
    out = written(requests)
    assert [out.finish_reasons[i] for i in (0, 2)] == ["eos", "eos"]
    assert fits(out.texts[0]), out.texts[0]
    assert fits(out.texts[2]), out.texts[2]
    assert (out.sequences[[0, 2], IDS.shape[1] :] < VOCAB - 7).all()
    texts, ids = piped(requests)
    assert texts == out.texts
    assert torch.equal(ids[:, : out.sequences.shape[1]], out.sequences)


def test_a_loop_by_hand_writes_the_same() -> None:
    requests = [request("json_schema", 4), PLAIN, request("ebnf", 5)]
    out = written(requests)
    pipe = lk.LogitsPipeline(requests, tokenizer=tokenizer())
    ids, mask = IDS, MASK
    for _ in range(out.sequences.shape[1] - IDS.shape[1]):
        with torch.no_grad():
            logits = model()(
                input_ids=ids, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp_min(0)
            ).logits[:, -1]
        ids = torch.cat([ids, pipe.sample(ids, logits)[:, None]], 1)
        mask = torch.cat([mask, torch.ones_like(mask[:, :1])], 1)
    for row, length in enumerate(out.lengths.tolist()):
        end = IDS.shape[1] + length
        assert torch.equal(ids[row, :end], out.sequences[row, :end])
    assert "grammar[host]" in str(pipe.plan)


def test_a_neighbour_without_grammar_writes_what_it_would_alone() -> None:
    beside = written([request("regex", 1), PLAIN, request("choice", 2)])
    among = written([PLAIN, PLAIN, PLAIN])
    assert torch.equal(beside.sequences[1, :17], among.sequences[1, :17])
    alone = lk.generate(
        model(), input_ids=IDS[:1], attention_mask=MASK[:1], params=request("regex", 1),
        tokenizer=tokenizer(),
    )  # fmt: skip
    assert torch.equal(beside.sequences[0, : alone.shape[1]], alone[0])


def test_the_scores_hold_what_the_matcher_allows_and_nothing_else() -> None:
    requests = [request("json_schema", 1), request("ebnf", 2), PLAIN]
    out = written(requests, output_scores=True, output_logits=True)
    vocabulary = lk.Vocabulary.from_tokenizer(tokenizer(), size=VOCAB, eos_token_id=[EOS])
    specs = [requests[0].json_schema, requests[1].ebnf]
    for row, spec in enumerate(specs):
        matcher = lk.compile_grammar(spec, vocabulary).matcher()
        for step in range(int(out.lengths[row])):
            words = matcher.mask()
            allowed = (words[torch.arange(VOCAB) // 32] >> (torch.arange(VOCAB) % 32)) & 1 != 0
            scores, logits = out.scores[step][row], out.logits[step][row]
            assert torch.equal(scores > -torch.inf, allowed)
            assert torch.equal(scores[allowed], logits[allowed])
            assert matcher.accept(int(out.sequences[row, IDS.shape[1] + step]))
        assert matcher.is_stopped
    assert all((scores[2] > -torch.inf).all() for scores in out.scores[:12])


@pytest.mark.parametrize("kind", KINDS)
def test_a_grammar_goes_with_every_other_parameter(kind: str) -> None:
    requests = [request(kind, seed, **EVERYTHING, min_new_tokens=1) for seed in (3, 5)]
    out = written([*requests, PLAIN])
    fits = KINDS[kind][1]
    assert fits(out.texts[0]), out.texts[0]
    assert fits(out.texts[1]), out.texts[1]
    assert piped([*requests, PLAIN])[0] == out.texts


def test_samples_of_one_request_follow_it_and_differ() -> None:
    params = request("regex", 6, n=4, temperature=3.0)
    out = lk.generate(
        model(), input_ids=IDS[:1], params=params, tokenizer=tokenizer(),
        return_dict_in_generate=True,
    )  # fmt: skip
    assert all(map(KINDS["regex"][1], out.texts))
    assert len(set(out.texts)) > 1


def test_logprobs_rank_only_what_the_grammar_allows() -> None:
    params = request("choice", 1, logprobs=5, logprob_mode="processed")
    out = written([params], rows=1)
    first = {encode(text)[0] for text in ("a", "t")} | {
        tokenizer().convert_tokens_to_ids(piece) for piece in ("ab", "abc", "tr", "true")
    }
    best = out.top_token_ids[0][0].tolist()
    assert set(best) - {-1} <= first
    assert len(set(best) - {-1}) == 5
    raw = written([request("choice", 1, logprobs=5)], rows=1)
    assert not set(raw.top_token_ids[0][0].tolist()) <= first


def test_a_stop_string_ends_the_text_before_the_grammar_does() -> None:
    out = written([request("json_schema", 1, stop='"b"')], rows=1)
    assert out.finish_reasons == ["stop"]
    assert '"a"' in out.texts[0]
    assert '"b"' not in out.texts[0]


def test_eos_waits_for_the_end_and_is_taken_there_whatever_ignore_eos_says() -> None:
    fields: dict[str, Any] = {"logit_bias": {EOS: 50.0}, "choice": ["abcabc"], "regex": None}
    for ignore in (False, True):
        out = written([request("regex", 1, ignore_eos=ignore, **fields)], rows=1)
        assert out.texts == ["abcabc"]
        assert out.finish_reasons == ["eos"]


@pytest.mark.parametrize("ignore_eos", [False, True])
def test_min_new_tokens_beyond_the_language_is_an_error_with_its_stage(ignore_eos: bool) -> None:
    long = request("choice", 1, min_new_tokens=30, ignore_eos=ignore_eos)
    with pytest.raises(lk.EmptyRowError, match=r"request 1.*stage Grammar: all tokens") as error:
        written([PLAIN, long, request("regex", 2)])
    assert error.value.slots == (1,)
    assert KINDS["regex"][1](error.value.output.texts[2])
    assert error.value.output.finish_reasons == ["length", "error", "eos"]


def test_bans_that_leave_nothing_of_the_grammar_are_named() -> None:
    banned = [*encode("at"), *map(tokenizer().convert_tokens_to_ids, ("ab", "abc", "true", "tr"))]
    with pytest.raises(lk.EmptyRowError, match=r"stage Grammar: all tokens"):
        written([request("choice", 1, bad_words_ids=[[token] for token in banned])], rows=1)


def test_a_committed_token_that_the_grammar_refuses_is_an_error_of_the_next_step() -> None:
    pipe = lk.LogitsPipeline([request("regex", 1), request("choice", 2)], tokenizer=tokenizer())
    logits = torch.zeros(2, VOCAB)
    pipe.sample(IDS[:2], logits)
    wrong = torch.tensor([encode("a"), encode("z")])
    with pytest.raises(lk.EmptyRowError, match=r"request 1.*stage Grammar: the grammar does not"):
        pipe.sample(torch.cat([IDS[:2], wrong], 1), logits)


def test_rows_that_ended_stay_quiet_and_pads_behind_them_are_no_error() -> None:
    requests = [request("choice", 1), request("json_schema", 2)]
    pipe = lk.LogitsPipeline(requests, tokenizer=tokenizer())
    ids = model().generate(
        input_ids=IDS[:2], attention_mask=MASK[:2], max_new_tokens=30, do_sample=True,
        logits_processor=[pipe],
    )  # fmt: skip
    assert (ids[0] == PAD).sum() > 5
    assert KINDS["json_schema"][1](tokenizer().decode(ids[1, 5:], skip_special_tokens=True))


def test_an_eos_that_transformers_does_not_know_ends_the_row_too() -> None:
    other = VOCAB - 1
    pipe = lk.LogitsPipeline(request("choice", 1), tokenizer=tokenizer(), eos_token_id=[other])
    ids = model().generate(
        input_ids=IDS[:1], attention_mask=MASK[:1], max_new_tokens=12, do_sample=True,
        logits_processor=[pipe],
    )[0, 5:].tolist()  # fmt: skip
    end = ids.index(other)
    assert tokenizer().decode(ids[:end]) in ("abc", "abd", "true")
    assert set(ids[end:]) == {other}


def test_beams_choose_among_what_the_grammar_allows() -> None:
    pipe = lk.LogitsPipeline(request("regex", 1), tokenizer=tokenizer(), select=False)
    ids = model().generate(
        input_ids=IDS[:1], attention_mask=MASK[:1], max_new_tokens=15, num_beams=3,
        num_return_sequences=3, logits_processor=[pipe],
    )  # fmt: skip
    texts = [tokenizer().decode(row[5:], skip_special_tokens=True) for row in ids]
    assert all(map(KINDS["regex"][1], texts)), texts


def test_the_callers_processors_see_the_logits_before_the_grammar() -> None:
    seen: list[int] = []

    def look(ids: Tensor, scores: Tensor) -> Tensor:
        seen.append(int((scores > -torch.inf).sum()))
        return scores

    out = written([request("choice", 1)], rows=1, logits_processor=[look])
    assert seen == [VOCAB] * int(out.lengths[0])


@pytest.mark.parametrize("draft", ["ngram", "grammar"])
def test_speculation_writes_what_plain_decoding_writes(draft: str) -> None:
    requests = [request("json_schema", 1), PLAIN, request("ebnf", 3, temperature=0.0)]
    out = written(requests, draft=draft, num_draft_tokens=4)
    assert torch.equal(out.sequences, written(requests).sequences)
    assert out.speculation.num_drafted > 0


class Wild(lk.DraftSource):
    """Proposes tokens that no grammar of these tests takes in a row."""

    label = "wild"

    def propose(self, batch: lk.Batch, k: int) -> lk.Draft:
        tokens = torch.full((len(batch), k), 5)
        tokens[:, 1::2] = EOS
        return lk.Draft(tokens, torch.full((len(batch),), k), label=self.label)


def test_drafts_that_the_grammar_refuses_are_dropped_without_an_error() -> None:
    requests = [request("json_schema", 1), PLAIN, request("regex", 3)]
    out = written(requests, draft=Wild(), num_draft_tokens=4)
    assert torch.equal(out.sequences, written(requests).sequences)


def test_a_grammar_that_does_not_compile_is_refused_before_the_first_forward() -> None:
    with pytest.raises(lk.GrammarError, match="`regex`"):
        written([SamplingParams(regex="(?=a)b")], rows=1)
    pipe = lk.LogitsPipeline(SamplingParams(regex="(?=a)b"), tokenizer=tokenizer())
    with pytest.raises(lk.GrammarError, match="`regex`"):
        pipe.sample(IDS[:1], torch.zeros(1, VOCAB))


def test_both_doors_ask_for_the_tokenizer_by_the_fields_name() -> None:
    params = SamplingParams(choice=["a"], max_new_tokens=3)
    with pytest.raises(ValueError, match="`choice` needs"):
        lk.LogitsPipeline(params, eos_token_id=EOS)
    with pytest.raises(ValueError, match="`choice` needs"):
        lk.generate(model(), input_ids=IDS[:1], params=params)


def test_a_grammar_that_exceeds_its_budget_on_the_way_fails_alone() -> None:
    vocabulary = letters(30)
    spec = lk.Regex("abcd(e|f)gh|b*")
    small = lk.compile_grammar(spec, vocabulary, lk.Budget(states=3))
    params = [SamplingParams(regex=spec.pattern, sampling_seed=i) for i in range(3)]
    resolved = [resolve(p, vocab_size=30, vocabulary=vocabulary) for p in params]
    resolved[1] = dataclasses.replace(resolved[1], grammar=small)
    batch = lk.Batch.start(resolved, [[0]] * 3, vocab_size=30)
    logits = torch.zeros(3, 30)
    for token in (0, 1, 2, 3):  # a, b, c, d
        try:
            batch.plan.sample(logits, batch.rows())
        except lk.EmptyRowError as error:
            assert error.slots == (1,)
            assert "request 1" in str(error) and "more than `states`=3" in str(error)
            assert error.tokens is not None and (error.tokens[[0, 2]] >= 0).all()
            break
        batch.commit(torch.full((3,), token))
    else:
        pytest.fail("the budget of three states was enough")


def test_output_that_a_batch_starts_with_has_moved_the_grammar() -> None:
    words = {"regex": "ab|bc|c"}
    params = [SamplingParams(**words, sampling_seed=1), PLAIN, SamplingParams(**words)]
    batch = start(params, [[5, 0], [7], [9, 9]], 30, prompt_lengths=[1, 1, 2])
    whole = start(params, [[5], [7], [9, 9]], 30)
    whole.commit(torch.tensor([0, 0, 0]), torch.tensor([1, 0, 0]))
    logits = torch.zeros(3, 30)
    found = batch.plan(logits, batch.rows())
    assert torch.equal(found, whole.plan(logits, whole.rows()))
    assert (found[0] > -torch.inf).nonzero().flatten().tolist() == [1]
    assert (found[1] > -torch.inf).all()
    assert (found[2] > -torch.inf).nonzero().flatten().tolist() == [0, 1, 2, 27]  # a, b, c, ab


@pytest.mark.parametrize("chain", ["HF", "VLLM", "SGLANG", "LLAMA_CPP"])
def test_every_chain_serves_grammars(chain: str) -> None:
    out = written([request("regex", 1, top_k=9)], rows=1, stages=getattr(lk.chains, chain))
    assert KINDS["regex"][1](out.texts[0])


def test_a_chain_without_the_stage_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"`regex`=.* needs a stage.*stages\.Grammar"):
        lk.LogitsPipeline(
            SamplingParams(regex="a"), tokenizer=tokenizer(), stages=[lk.stages.TopK()]
        )
