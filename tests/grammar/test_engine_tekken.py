"""The engine at full size: masks over the 131k tokens of Tekken equal brute force."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from test_engine import members
from toy import SlowMachine
from toy_machines import Counted, FreeText, Lists, ShortText, Tagged, parentheses

from logitkit.grammar.machine import JSON_TEXT, Budget, Machine
from logitkit.grammar.matcher import CompiledGrammar
from logitkit.grammar.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def tekken() -> Vocabulary:
    package = pytest.importorskip("mistral_common", reason="mistral-common is not installed")
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer

    found = sorted(Path(package.__file__).parent.glob("data/tekken_*.json"))
    if not found:
        pytest.skip("this mistral-common has no Tekken vocabulary")
    return Vocabulary.from_tokenizer(Tekkenizer.from_file(found[0]))


CASES: tuple[tuple[Callable[[int], Machine], bytes], ...] = (
    (lambda _: parentheses(), b"((()"),
    (lambda h: Lists(10**9, 10**9, h), b'[12,["a b",'),
    (lambda h: Lists(10**9, 10**9, h), b'["free text with a caf\xc3\xa9'),
    (lambda h: Lists(h + 3, h + 2, h), b'["' + b"x" * 70),
    (lambda h: Counted(2, 10**6, h), b"abc"),
    (lambda _: FreeText(JSON_TEXT), b"text"),
    (lambda _: ShortText(7), b"wor"),
    (lambda _: Tagged(), b"call: "),
)


@pytest.mark.parametrize("case", range(len(CASES)))
def test_a_mask_of_131k_tokens_equals_brute_force(tekken: Vocabulary, case: int) -> None:
    make, text = CASES[case]
    machine = make(tekken.horizon)
    slow = SlowMachine(machine)
    at = slow.run(text)
    assert at is not None
    want = {t for t in range(tekken.size) if (s := tekken.spell([t])) and slow.run(s, at)}
    for control, move in slow.expand(at.key).controls:
        want |= {t for t in tekken.controls.get(control, ()) if slow.move(at, move)}
    if slow.is_final(at):
        want |= set(tekken.eos_token_ids)
    matcher = CompiledGrammar(machine, tekken, Budget()).matcher()
    for token in tekken.tokenize(text):
        assert matcher.accept(token)
    got = members(matcher.mask().numpy(), matcher.grammar.arena.words)
    assert got == want
    tokens = np.random.default_rng(case).choice(tekken.size, 3000)
    for token in tokens.tolist():
        fork = matcher.fork()
        assert fork.accept(token) == (token in want)
