"""The three rules of verification: by hand, and by enumerating every outcome in float64."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from logitkit import randomness, verify

V = 4
Table = dict[tuple[int, ...], Tensor]  # prefix -> distribution of the next token
REFUSES, ACCEPTS = 1e9, -1.0  # coins that settle a draft token, whatever its chance


def test_exact_keeps_drafts_while_they_equal_the_draws() -> None:
    draws = torch.tensor([[5, 6, 7], [5, 9, 7], [4, 6, 7], [5, 6, 7]])
    draft = torch.tensor([[5, 6], [5, 6], [5, 6], [5, 6]])
    lengths = torch.tensor([2, 2, 2, 1])  # the last row's second token is padding
    assert verify.exact(draws, draft, lengths).tolist() == [3, 2, 1, 2]
    assert verify.exact(draws[:, :1], draft[:, :0], lengths * 0).tolist() == [1, 1, 1, 1]


def test_a_token_that_could_not_be_drawn_ends_the_kept_part() -> None:
    draws = torch.tensor([[5, -1, 7]])
    assert verify.exact(draws, torch.tensor([[5, 0]]), torch.tensor([2])).tolist() == [2]


def test_the_textbook_block_keeps_eleven_ninths() -> None:
    """p = (1/3, 2/3), q = (2/3, 1/3) twice: ratio keeps 10/9 tokens on average, block 11/9."""
    p = torch.tensor([[1 / 3, 2 / 3]], dtype=torch.float64).expand(3, 2)
    q = torch.tensor([[2 / 3, 1 / 3]], dtype=torch.float64).expand(2, 2)
    means = {}
    for name, rule in verify.RULES.items():
        mean = 0.0
        for draft in itertools.product(range(2), repeat=2):
            chance = float(q[0, draft[0]] * q[1, draft[1]])
            for kept, share, _ in outcomes(name, p, q, draft):
                mean += chance * share * kept
        means[rule.__name__] = mean
    assert means == {"ratio": pytest.approx(10 / 9, 1e-12), "block": pytest.approx(11 / 9, 1e-12)}


@pytest.mark.parametrize("name", verify.RULES)
@pytest.mark.parametrize("with_zeros", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_every_outcome_together_is_the_targets_distribution(
    name: str, with_zeros: bool, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    p_of, q_of = tables(generator, with_zeros)
    joint: dict[tuple[int, ...], float] = {}
    for draft in itertools.product(range(V), repeat=2):
        proposed = float(q_of[()][draft[0]] * q_of[draft[:1]][draft[1]])
        if proposed == 0:
            continue
        p = torch.stack([p_of[draft[:i]] for i in range(3)])
        q = torch.stack([q_of[draft[:i]] for i in range(2)])
        for kept, share, residual in outcomes(name, p, q, draft):
            for last in range(V):
                key = (*draft[:kept], last)
                joint[key] = joint.get(key, 0.0) + proposed * share * float(residual[last])
    whole = dict.fromkeys(itertools.product(range(V), repeat=3), 0.0)
    for key, chance in joint.items():  # what plain decoding writes behind a short outcome
        for rest in itertools.product(range(V), repeat=3 - len(key)):
            text = key + rest
            tail = [float(p_of[text[:i]][text[i]]) for i in range(len(key), 3)]
            whole[text] += chance * float(torch.tensor(tail, dtype=torch.float64).prod())
    for text, chance in whole.items():
        wanted = float(torch.stack([p_of[text[:i]][text[i]] for i in range(3)]).prod())
        assert abs(chance - wanted) < 1e-12, (text, chance, wanted)


@pytest.mark.parametrize("name", verify.RULES)
def test_a_masked_token_is_never_kept_even_by_a_coin_of_zero(name: str) -> None:
    p = torch.tensor([[[0.0, 0.5, 0.5], [0.2, 0.3, 0.5]]], dtype=torch.float64)
    q = torch.tensor([[[1.0, 0.0, 0.0]]], dtype=torch.float64)
    coins = torch.zeros(1, 1, dtype=torch.float64)
    kept = verify.RULES[name](p, q, torch.tensor([[0]]), torch.tensor([1]), coins)
    assert kept.num_kept.tolist() == [0]
    assert kept.residual.tolist() == [[0.0, 0.5, 0.5]]


@pytest.mark.parametrize("name", verify.RULES)
def test_a_residual_that_rounds_to_nothing_falls_back_to_the_target(name: str) -> None:
    p = torch.tensor([[[0.25, 0.75], [0.5, 0.5]]], dtype=torch.float64)
    kept = verify.RULES[name](
        p, p[:, :1], torch.tensor([[0]]), torch.tensor([1]), torch.full((1, 1), REFUSES)
    )
    assert kept.num_kept.tolist() == [0]
    assert kept.residual.tolist() == [[0.25, 0.75]]


@pytest.mark.parametrize("name", verify.RULES)
def test_rows_with_shorter_drafts_answer_as_alone(name: str) -> None:
    generator = torch.Generator().manual_seed(5)
    p = torch.rand(3, 4, V, dtype=torch.float64, generator=generator)
    q = torch.rand(3, 3, V, dtype=torch.float64, generator=generator)
    p, q = p / p.sum(-1, keepdim=True), q / q.sum(-1, keepdim=True)
    draft = torch.randint(0, V, (3, 3), generator=generator)
    lengths = torch.tensor([3, 1, 0])
    coins = torch.rand(3, 3, dtype=torch.float64, generator=generator)
    together = verify.RULES[name](p, q, draft, lengths, coins)
    for b, n in enumerate(lengths.tolist()):
        alone = verify.RULES[name](
            p[b : b + 1, : n + 1], q[b : b + 1, :n], draft[b : b + 1, :n],
            lengths[b : b + 1], coins[b : b + 1, :n],
        )  # fmt: skip
        assert torch.equal(alone.num_kept[0], together.num_kept[b])
        assert torch.equal(alone.residual[0], together.residual[b])


CHAINS, LENGTH, DRAFTED = 150_000, 4, 2


@pytest.mark.parametrize("name", verify.RULES)
def test_many_rounds_together_write_the_targets_distribution(name: str) -> None:
    """150,000 texts in rounds of 2 drafts, against the exact joint; false alarm below 1e-6.

    A chi-square variate exceeds its mean by 6 deviations less often than that. Coins keyed by
    position alone, the same in every round, exceed it by hundreds with the rule "block".
    """
    assert excess(name) < 6.0


def test_coins_that_come_again_in_the_next_round_are_seen_by_that_test() -> None:
    assert excess("block", fresh=False) > 20.0


def excess(name: str, fresh: bool = True) -> float:
    """By how many deviations the chi-square of written texts exceeds its mean."""
    generator = torch.Generator().manual_seed(3)
    p_of = torch.rand(LENGTH, 3**LENGTH, 3, dtype=torch.float64, generator=generator)
    q_of = torch.rand(LENGTH, 3**LENGTH, 3, dtype=torch.float64, generator=generator)
    p_of += 0.2  # no rare texts
    p_of, q_of = p_of / p_of.sum(-1, keepdim=True), q_of / q_of.sum(-1, keepdim=True)
    texts = torch.zeros(CHAINS, LENGTH + DRAFTED + 1, dtype=torch.int64)
    done = torch.zeros(CHAINS, dtype=torch.int64)
    seed = torch.arange(CHAINS) * 7919

    def given(table: Tensor, place: Tensor) -> Tensor:
        """The distribution of the token at `place`, which the last text before it decides."""
        powers = 3 ** torch.arange(LENGTH)
        before = torch.arange(LENGTH) < place[:, None]
        key = (texts[:, :LENGTH] * powers * before).sum(1)
        return table[place.clamp_max(LENGTH - 1), key]

    for round in range(1, LENGTH + 1):
        number = round if fresh else 0
        p, q = [], []
        for depth in range(DRAFTED):
            place = done + depth
            q.append(given(q_of, place))
            p.append(given(p_of, place))
            noise = randomness.noise(
                seed[:, None], torch.arange(3), place[:, None], randomness.DRAFT_STREAM, number
            )
            token = (q[-1].log() - noise).argmax(-1)
            texts.scatter_(1, place[:, None], token[:, None])
        p.append(given(p_of, done + DRAFTED))
        ahead = done[:, None] + torch.arange(DRAFTED + 1)
        tokens, count = verify.judge(
            name, torch.stack(p, 1), torch.stack(q, 1), texts.gather(1, ahead[:, :-1]),
            torch.full_like(done, DRAFTED), seed, ahead, number,
        )  # fmt: skip
        texts.scatter_(1, ahead, tokens)
        done = (done + count).clamp_max(LENGTH)
    assert (done == LENGTH).all()
    key = (texts[:, :LENGTH] * 3 ** torch.arange(LENGTH)).sum(1)
    observed = torch.bincount(key, minlength=3**LENGTH).double()
    chances = torch.ones(3**LENGTH, dtype=torch.float64)
    every = torch.arange(3**LENGTH)
    for place in range(LENGTH):
        before, token = every % 3**place, every // 3**place % 3
        chances *= p_of[place, before, token]
    expected = chances * CHAINS
    assert float(expected.min()) > 5
    freedom = 3**LENGTH - 1
    chi = float(((observed - expected) ** 2 / expected).sum())
    return (chi - freedom) / (2 * freedom) ** 0.5


def tables(generator: torch.Generator, with_zeros: bool) -> tuple[Table, Table]:
    """Random conditional distributions of a target and a draft, some of them with zeros."""

    def some() -> Tensor:
        weights = torch.rand(V, dtype=torch.float64, generator=generator)
        if with_zeros:
            weights[torch.rand(V, generator=generator) < 0.4] = 0.0
            weights[int(torch.randint(0, V, (1,), generator=generator))] += 0.1
        return weights / weights.sum()

    prefixes = [p for n in range(3) for p in itertools.product(range(V), repeat=n)]
    return {p: some() for p in prefixes}, {p: some() for p in prefixes if len(p) < 2}


def outcomes(
    name: str, p: Tensor, q: Tensor, draft: tuple[int, ...]
) -> Iterator[tuple[int, float, Tensor]]:
    """Each possible number of kept tokens, its chance, and the next token's distribution.

    The chances come from the rule itself: where its answer turns, by bisection of one coin.
    """

    def judge(coins: list[float]) -> verify.Kept:
        return verify.RULES[name](
            p[None], q[None], torch.tensor([draft]), torch.tensor([2]),
            torch.tensor([coins], dtype=torch.float64),
        )  # fmt: skip

    chances = []
    for i in range(2):
        low, high = 0.0, 1.0
        for _ in range(60):
            coins = [ACCEPTS if name == "ratio" and j < i else REFUSES for j in range(2)]
            coins[i] = (low + high) / 2
            kept = int(judge(coins).num_kept)
            low, high = (coins[i], high) if kept == i + 1 else (low, coins[i])
        chances.append(low)
    first, second = chances
    shares = {2: first * second, 1: first * (1 - second), 0: 1 - first}
    if name == "block":
        shares = {2: second, 1: (1 - second) * first, 0: (1 - second) * (1 - first)}
    for kept, share in shares.items():
        if share < 1e-15:
            continue
        decided = judge([ACCEPTS if i < kept else REFUSES for i in range(2)])
        assert int(decided.num_kept) == kept
        yield kept, share, decided.residual[0] / decided.residual[0].sum()
