"""When a generation starts for `LogitsPipeline`, and the seeds that it starts with."""

from __future__ import annotations

import copy
import pickle

import torch
from pipeline_by_hand import V, ids, logits, pipeline
from pipeline_models import PAD, prompt

from logitkit import LogitsPipeline, SamplingParams


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


def test_a_copy_has_the_same_arguments_and_has_seen_nothing() -> None:
    pipe = LogitsPipeline(SamplingParams(top_k=3, sampling_seed=4), eos_token_id=[2, 3])
    ids, logits = torch.tensor([[5, 6]]), torch.randn(1, 9)
    drawn = pipe.sample(ids, logits)
    for copied in (copy.deepcopy(pipe), pickle.loads(pickle.dumps(pipe))):
        assert copied.eos_token_ids == (2, 3)
        assert torch.equal(copied.sample(ids, logits), drawn)
