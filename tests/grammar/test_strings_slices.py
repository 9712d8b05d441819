"""What machines of strings promise about whole slices of the vocabulary, against every token."""

from __future__ import annotations

import random

import numpy as np
from toy import Slow, SlowMachine, ToyVocabulary

from logitkit.errors import GrammarError
from logitkit.grammar import strings
from logitkit.grammar.machine import PLAIN_TEXT, Expansion, Key, Machine
from logitkit.grammar.spec import Regex
from logitkit.grammar.trie import Slices

ATOMS = (".", "[^\\n]", '[^"]', "[ab]", "(?:ab|.)", "a", "\\S", "[^x]", "(?:.b?)")
REPEATS = ("", "*", "+", "?", "{0,20}", "{3,}", "{20,}", "{17}", "{5,30}", "{16,19}")
LENGTHS = (1, 1, 2, 3, 4, 5, 6, 8, 12, 16, 17, 20, 24)


class Promise:
    """A string body as a whole machine, for the oracle: it returns nowhere."""

    has_stack = True

    def __init__(self, body: strings.StringBody) -> None:
        self.start, self.expand, self.land = body.start, body.expand, body.land

    def resume(self, site: Key, tag: Key) -> Key | None:
        raise AssertionError("nothing is called")


def _vocabulary(rng: random.Random) -> ToyVocabulary:
    words = [
        "".join(rng.choices('aab c dé日😀\n"\\x\x7f', k=rng.choice(LENGTHS))) for _ in range(150)
    ]
    closed = [word + '"' for word in words[:20]]
    single = [bytes([byte]) for byte in range(256)]
    return ToyVocabulary([b"", *single, *(word.encode() for word in words + closed)])


def _pattern(rng: random.Random) -> str:
    if rng.random() < 0.3:
        return rng.choice(ATOMS[:3]) + rng.choice(("{0,20}", "{5,30}", "{16,19}", "{17}"))
    return "".join(rng.choice(ATOMS) + rng.choice(REPEATS) for _ in range(rng.randint(1, 3)))


def _machine(rng: random.Random, vocabulary: ToyVocabulary) -> Machine:
    """A random regex, or a body of one or two bounded languages, some of them with a pattern."""
    context = vocabulary.context()
    if rng.random() < 0.5:
        return strings.build_regex(Regex(_pattern(rng)), context)
    languages: list[strings.Language] = []
    for _ in range(rng.choice((1, 1, 2))):
        language = strings.length(rng.randint(0, 20), rng.choice((None, 20, 25, 33, 60)))
        if rng.random() < 0.5:
            language &= strings.pattern(_pattern(rng))
        if rng.random() < 0.2:
            language -= strings.literals(("ab", "aaab"))
        if rng.random() < 0.1:
            language |= strings.pattern("^a*$")
        languages.append(language)
    return Promise(strings.StringBody(tuple(languages), context, rng.random() < 0.5))


def _check(slow: SlowMachine, at: Slow, vocabulary: ToyVocabulary, slices: Slices) -> Expansion:
    """Compare what a state promises with what becomes of every token of the slice."""
    expansion = slow.expand(at.key)
    slice_ = PLAIN_TEXT if expansion.slices & PLAIN_TEXT else expansion.slices
    for token in np.flatnonzero(slices.inside(slice_)).tolist():
        text = vocabulary.bytes_of(token)
        wanted = expansion.room is None or len(text.decode()) <= expansion.room
        assert (slow.run(text, at) is not None) == wanted, (text, expansion)
    return expansion


def test_of_a_promised_slice_exactly_the_tokens_within_the_room_are_taken() -> None:
    rng = random.Random(4)
    promised: list[Expansion] = []
    for _ in range(4):
        vocabulary = _vocabulary(rng)
        slices = Slices(vocabulary.data, vocabulary.offsets, (vocabulary.size + 31) // 32)
        for _ in range(10):
            try:
                slow = SlowMachine(_machine(rng, vocabulary))
            except GrammarError:
                continue  # the pattern and the bounds share no text
            at = slow.start
            for _ in range(12):
                promised.append(_check(slow, at, vocabulary, slices))
                tokens = [rng.randrange(1, vocabulary.size) for _ in range(20)]
                ways = (slow.run(vocabulary.bytes_of(token), at) for token in tokens)
                at = next((way for way in ways if way is not None), at)
    assert sum(expansion.slices == 0 for expansion in promised) > 20
    assert sum(expansion.slices != 0 and expansion.room is None for expansion in promised) > 20
    assert sum(expansion.room is not None for expansion in promised) > 20
