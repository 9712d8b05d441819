"""`CostTable`, `Acceptance`, `Ledger`: tables by hand, and drafts that do their worst."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from logitkit.draft.acceptance import PRIORS, Acceptance
from logitkit.draft.costs import CostTable
from logitkit.draft.ledger import ALLOWANCE, MOST_SAVINGS, SHARE, Ledger
from logitkit.draft.source import Draft, DraftSource

FLAT = {1: 1.0, 2: 1.0, 17: 1.15, 65: 2.0}
STEEP = {1: 1.0, 2: 1.6, 3: 2.0, 4: 1.55, 9: 2.0, 17: 2.4, 65: 6.4}


def draft_of(*chains: list[int], label: str = "x", strength: int = 0) -> Draft:
    width = max(map(len, chains))
    return Draft(
        torch.tensor([chain + [0] * (width - len(chain)) for chain in chains]).view(-1, width),
        torch.tensor([len(chain) for chain in chains]),
        label=label,
        strength=torch.full((len(chains),), strength),
    )


# -- costs


def test_between_the_given_sizes_a_cost_is_a_straight_line() -> None:
    table = CostTable({1: 1.0, 5: 1.2, 9: 2.0})
    assert [table(n) for n in (1, 3, 5, 7, 9, 11)] == pytest.approx([1, 1.1, 1.2, 1.6, 2.0, 2.4])


def test_the_stored_costs_grow_much_faster_for_a_large_batch() -> None:
    one, eight = (CostTable.stored("cpu", True, size) for size in (1, 8))
    assert one(5) == pytest.approx(1.09)
    assert one(17) == pytest.approx(1.36 + (1.82 - 1.36) / 16)
    assert eight(5) > 1.4
    for device in ("cpu", "cuda"):
        for is_half in (True, False):
            for size in (1, 3, 64):
                table = CostTable.stored(device, is_half, size)
                assert table(1) == 1.0
                assert all(table(n) >= 1.0 for n in range(2, 66))


def test_the_run_corrects_the_stored_costs() -> None:
    table = CostTable({1: 1.0, 2: 1.0, 5: 1.1, 9: 1.2})
    for _ in range(30):
        table.measured(1, 0.010)
        table.measured(5, 0.020)  # twice a plain step, not 1.1 times
    # 15 measurements in the window against a trust of 4: (4 + 15 * 2 / 1.1) / 19 of the stored one.
    assert table(5) == pytest.approx(1.1 * (4 + 15 * 2 / 1.1) / 19)
    assert 1.0 < table(3) < table(5)  # its neighbours are corrected on the way
    assert table(9) / 1.2 == pytest.approx(table(5) / 1.1)
    assert table(1) == 1.0


def test_stalls_do_not_move_the_costs() -> None:
    calm, stalled = CostTable(FLAT), CostTable(FLAT)
    for i in range(40):
        for n in (1, 5):
            calm.measured(n, 0.01)
            stalled.measured(n, 2.0 if (i + n) % 4 == 0 else 0.01)
    assert calm.values() == stalled.values()
    fresh = CostTable(FLAT)
    for seconds in (0.01, 0.01, 0.01, 0.01):
        fresh.measured(1, seconds)
    for seconds in (5.0, 0.01):  # the first call compiles something
        fresh.measured(5, seconds)
        fresh.drafted("x", 1, seconds)
        assert fresh(5) == CostTable(FLAT)(5)
        assert fresh.price("x", 0.2) == 0.2


def test_a_frozen_table_learns_nothing_and_comes_back_from_its_own_values() -> None:
    live = CostTable.stored("cpu", False, 2)
    live.price("model", 0.3)
    for _ in range(5):
        live.measured(1, 0.01)
        live.measured(4, 0.02)
        live.drafted("model", 4, 0.02)
    # 5 measurements of half a step a token against the guess of .3 with a weight of 4.
    assert live.price("model", 0.3) == pytest.approx((4 * 0.3 + 5 * 0.5) / 9)
    frozen = CostTable.given(live.values())
    before = frozen.values()
    assert [frozen(n) for n in (1, 2, 3, 4, 5, 9, 17)] == [live(n) for n in (1, 2, 3, 4, 5, 9, 17)]
    for _ in range(9):
        frozen.measured(1, 1.0)
        frozen.measured(4, 9.0)
        frozen.drafted("model", 4, 9.0)
    assert frozen.values() == before == live.values()
    assert CostTable.given((1.0, 1.5, 2.5))(3) == 2.5


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        (3, "`cost` is 3"),
        ("fast", "`cost` is 'fast'"),
        ({1: 1.0}, "some n > 1"),
        ((2.0, 3.0), r"v\(1\) is 1"),
        ({1: 1.0, 2: -1.0}, r"`cost`\[2\]=-1.0"),
        ({1: 1.0, 2: float("nan")}, r"`cost`\[2\]=nan"),
        ({1: 1.0, 2: True}, r"`cost`\[2\]=True"),
        ({1: 1.0, 2.5: 2.0}, r"`cost`\[2.5\]=2.0"),
    ],
)
def test_costs_without_a_meaning_are_refused(cost: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CostTable.given(cost)


# -- acceptance


def test_what_is_unknown_is_right_half_of_the_time() -> None:
    assert Acceptance().expected("x", 0, 3) == [0, 0.5, 0.75, 0.875]
    first, later = (values[2] for values in PRIORS["ngram"])
    assert Acceptance().expected("ngram", 2, 2) == pytest.approx([0, first, first + first * later])


def test_tokens_behind_the_first_wrong_one_are_not_judged() -> None:
    seen, same = Acceptance(), Acceptance()
    assert seen.judge("x", 0, [1, 2, 3, 4], [1, 9]) == 1
    assert same.judge("x", 0, [1, 2], [1, 9, 3, 4]) == 1
    assert seen.expected("x", 0, 5) == same.expected("x", 0, 5)
    assert seen.judge("x", 0, [1, 2], [1]) == 1  # what was not emitted yet says nothing
    assert seen.judge("x", 0, [], [1]) == 0


def test_a_source_is_known_by_its_strengths_and_a_new_one_inherits() -> None:
    seen = Acceptance()
    for _ in range(60):
        seen.judge("x", 1, [1], [2])
        seen.judge("x", 7, [1], [1])
    weak, strong, new = (seen.expected("x", strength, 1)[1] for strength in (1, 7, 3))
    assert weak < 0.1
    assert strong > 0.9
    assert 0.4 < new < 0.6  # half of the source's tokens were right
    for _ in range(60):
        seen.judge("x", 7, [1], [2])
    assert seen.expected("x", 7, 1)[1] < 0.15  # the past counts less and less
    assert seen.expected("x", 3, 1)[1] < 0.15
    assert seen.expected("other", 1, 1)[1] == 0.5


def test_what_was_seen_fades_as_tokens_pass() -> None:
    seen = Acceptance()
    for _ in range(60):
        seen.judge("x", 0, [1], [2])
    low = seen.expected("x", 0, 1)[1]
    seen.passed(300)
    later = seen.expected("x", 0, 1)[1]
    seen.passed(3000)
    assert low < later < seen.expected("x", 0, 1)[1] == pytest.approx(0.5, abs=1e-3)


# -- ledger


def simulate(
    values: dict[int, float],
    is_right: Callable[[int], bool],
    num_tokens: int = 400,
    price: float = 0.0,
    length: int = 16,
    rows: int = 1,
) -> tuple[list[int], list[tuple[float, int]]]:
    """Decode by the ledger: the lengths verified, and what is owed after so many tokens.

    Owed is the modelled cost less that of plain decoding, which is one a token.
    """
    table = CostTable.given(values | {"x": price})
    ledger, source = Ledger(table), DraftSource()
    source.label, source.cost = "x", price
    lengths, owed, at, debt = [], [], 0, 0.0
    while at < num_tokens:
        asked = ledger.ask(source, length)
        draft, k, emitted = None, 0, [1]
        if asked:
            guesses = [1 if is_right(at + i) else 2 for i in range(asked)]
            draft = draft_of(*[guesses] * rows)
            k = ledger.choose(draft, spent=price * asked)
            right = 0
            while right < k and guesses[right] == 1:
                right += 1
            emitted = [1] * (right + 1)
        spent = price * asked
        ledger.enter(draft, k, [emitted] * rows, spent=spent)
        lengths.append(k)
        debt += table(k + 1) + spent - len(emitted)
        at += len(emitted)
        owed.append((debt, at))
    return lengths, owed


ADVERSARIES: dict[str, Callable[[int], bool]] = {
    "always wrong": lambda i: False,
    "every other": lambda i: i % 2 == 0,
    "every third": lambda i: i % 3 == 0,
    "right, then wrong": lambda i: i < 100,
    "in turns": lambda i: (i // 40) % 2 == 0,
    "wrong, then right": lambda i: i > 200,
}


@pytest.mark.parametrize("adversary", ADVERSARIES)
@pytest.mark.parametrize("values", [FLAT, STEEP], ids=["flat", "steep"])
@pytest.mark.parametrize("price", [0.0, 0.3])
@pytest.mark.parametrize("rows", [1, 3])
def test_the_modelled_cost_stays_within_the_allowance_whatever_the_draft_does(
    adversary: str, values: dict[int, float], price: float, rows: int
) -> None:
    _, owed = simulate(values, ADVERSARIES[adversary], price=price, rows=rows)
    assert all(debt <= ALLOWANCE + SHARE * emitted for debt, emitted in owed)
    assert all(debt <= 0.03 * emitted for debt, emitted in owed if emitted >= 30)


def test_a_draft_that_is_always_wrong_is_hardly_verified_and_one_that_is_right_always() -> None:
    wrong, _ = simulate(STEEP, lambda i: False)
    assert sum(k > 0 for k in wrong) < 12
    right, owed = simulate(STEEP, lambda i: True)
    assert right[-5:] == [16] * 5
    assert owed[-1][0] < -300  # 400 tokens in the time of fewer than 100


@pytest.mark.parametrize("price", [0.0, 0.2])
def test_probing_comes_back_by_itself(price: float) -> None:
    costs = {1: 1.0, 2: 1.05, 17: 1.3}
    lengths, _ = simulate(costs, lambda i: i > 500, num_tokens=2500, price=price)
    # What costs nothing is judged unverified; what costs something has to be tried now and then.
    assert (sum(k > 0 for k in lengths[100:500]) > 0) == (price > 0)
    assert sum(k > 0 for k in lengths[:500]) < 40
    assert min(lengths[-5:-1]) >= 8


def test_a_costly_source_is_left_alone_when_it_does_not_pay() -> None:
    ledger, source = Ledger(CostTable.given(FLAT)), DraftSource()
    source.label, source.cost = "x", 2.0
    assert ledger.ask(source, 8) == 0
    source.cost = 0.1
    ledger.balance = 4.0
    assert ledger.ask(source, 8) > 0


def test_the_length_with_the_most_tokens_per_cost_is_chosen() -> None:
    ledger = Ledger(CostTable.given({1: 1.0, 2: 1.1, 3: 1.2, 4: 2.4}))
    ledger.balance = 10.0
    # Expected tokens 1.5, 1.75, 1.875: per cost 1.36, 1.46, 0.78.
    assert ledger.choose(draft_of([1, 1, 1])) == 2
    ledger.balance = -0.15  # .15 may be spent: two tokens cost .2
    assert ledger.choose(draft_of([1, 1, 1])) == 1
    ledger.balance = -0.25
    assert ledger.choose(draft_of([1, 1, 1])) == 0


def test_rows_that_are_over_do_not_count() -> None:
    ledger = Ledger(CostTable.given({1: 1.0, 2: 1.3, 3: 1.6}))
    ledger.balance = 10.0
    draft = draft_of([1, 1], [], [])
    assert ledger.choose(draft, [True, False, False]) > 0  # 1.5 tokens for 1.3
    assert ledger.choose(draft, [True, True, True]) == 0  # 1.17 tokens for 1.3
    ledger = Ledger(CostTable.given({1: 1.0, 2: 1.3}))
    ledger.enter(draft, 1, [[1, 1], [], [5]])
    assert ledger.balance == pytest.approx(-0.3)  # of two rows one got a token more, the other not
    assert ledger.emitted == 1
    ledger.enter(draft, 1, [[], [], []])
    assert ledger.emitted == 1


def test_only_what_shortens_the_longest_way_counts() -> None:
    ledger = Ledger(CostTable.given({1: 1.0, 2: 1.2, 3: 1.3}))
    ledger.balance = 10.0
    draft = draft_of([1, 1], [], [1])
    assert ledger.choose(draft) == 0  # the second row would wait for the others
    assert ledger.choose(draft, slack=[0, 5, 0]) == 1  # 1.5 tokens for 1.2; the third has one only
    assert ledger.choose(draft, slack=[0, 5, 1]) == 2  # 1.75 tokens for 1.3
    ledger.balance = 0.0
    ledger.enter(draft, 2, [[1, 1, 3], [4], [1, 5]], slack=[0, 5, 0])
    assert ledger.balance == pytest.approx(2 - 1.3)


def test_savings_are_kept_only_so_far() -> None:
    ledger = Ledger(CostTable.given(FLAT))
    for _ in range(20):
        ledger.enter(None, 0, [[1, 1, 1]])
    assert ledger.balance == MOST_SAVINGS == 4.0
    assert ledger.budget == pytest.approx(4.0 + 0.3 + 0.02 * 60)


def test_measured_steps_reach_the_costs() -> None:
    ledger = Ledger(CostTable(FLAT))
    for _ in range(9):
        ledger.enter(None, 0, [[1]], seconds=0.01)
        ledger.enter(draft_of([1]), 1, [[1, 2]], seconds=0.03)
    assert ledger.cost(2) > 2.0
