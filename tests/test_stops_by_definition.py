"""Stop rules on random ids against their definition, which decodes and searches all anew."""

from __future__ import annotations

import random
from typing import Any

import pytest
import regex
from stop_tokenizers import BYTES, END, TOKENIZERS, ended, ids_of, params, walk

from logitkit.stops import Finish, StopRules


def by_definition(ids: list[int], rule: Any, tokenizer: Any) -> tuple[int, Finish | None, str]:
    """Decodes and searches everything after every token."""
    past = -1
    for count in range(1, len(ids) + 1):
        text = tokenizer.decode(ids[:count], skip_special_tokens=True)
        seen = text.rstrip("\ufffd")
        if count == rule.min_new_tokens:
            past = len(seen)
        if count > rule.min_new_tokens:
            found = []
            for stop in rule.stop:
                starts = [i for i in range(len(seen)) if seen.startswith(stop, i)]
                found += [(i, i + len(stop), stop) for i in starts if i + len(stop) > past]
            for pattern in rule.stop_regex:
                spans = [m.span() for m in regex.finditer(pattern, seen, overlapped=True)]
                found += [(*span, pattern) for span in spans if span[1] > past]
            if found:
                start, _, matched = min(found, key=lambda match: match[:2])
                return count, Finish("stop", matched), text[:start]
    return len(ids), None, tokenizer.decode(ids, skip_special_tokens=True)


def random_ids(tokenizer: Any, length: int, draw: random.Random) -> list[int]:
    """Ids of all kinds: any id (two the tokenizer lacks), long pieces, runs, whole characters."""
    size = len(tokenizer) + 2
    whole = ids_of("é€😀") if tokenizer is BYTES else []
    if tokenizer is TOKENIZERS["byte_fallback"]:
        whole = [1 + byte for byte in "é€😀".encode()]
    ids: list[int] = []
    while len(ids) < length:
        kind = draw.random()
        if kind < 0.3:
            ids += whole
        elif kind < 0.6:
            ids.append(draw.randrange(max(0, size - 16), size))
        else:
            ids += [draw.randrange(size)] * draw.choice([1, 1, 1, draw.randrange(1, 20)])
    return ids[:length]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_any_ids_end_where_the_definition_says(name: str) -> None:
    tokenizer, draw = TOKENIZERS[name], random.Random(1)
    reasons = set()
    for _ in range(120):
        ids = random_ids(tokenizer, draw.choice([3, 20, 90]), draw)
        text = tokenizer.decode(ids, skip_special_tokens=True)
        stops = []
        for _ in range(draw.randrange(1, 3)):
            start = draw.randrange(len(text) or 1)
            stops.append(text[start : start + draw.randrange(1, 6)].strip("\ufffd") or "zz")
        rule = params(
            stop=tuple(stops),
            stop_regex=draw.choice([(), (r"\s\S\.$", "STO|€+😀")]),
            min_new_tokens=draw.choice([0, 0, 1, 7, 40]),
        )
        got = ended(StopRules(rule, tokenizer), ids)
        assert got == by_definition(ids, rule, tokenizer), (ids, rule)
        reasons.add(got[1] is None)
    assert reasons == {True, False}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_uncut_text_of_any_ids_is_the_plain_decode(name: str) -> None:
    tokenizer, draw = TOKENIZERS[name], random.Random(2)
    for length in (1, 15, 16, 17, 200):
        ids = random_ids(tokenizer, length, draw)
        rules = StopRules(params(stop=("no such text",)), tokenizer)
        assert ended(rules, ids) == (
            length,
            None,
            tokenizer.decode(ids, skip_special_tokens=True),
        )
        assert rules._new.since(None)[1] == rules.text.rstrip("\ufffd")


@pytest.mark.parametrize("text", ["the cat sat€ on a mat. ", "\n", "  ", END, "日本語", "'"])
def test_the_cost_of_a_token_does_not_grow_with_the_text(text: str) -> None:
    decoded = 0

    class Counting:
        added_tokens_decoder = BYTES.added_tokens_decoder

        def decode(self, token_ids: list[int], skip_special_tokens: bool = False) -> str:
            nonlocal decoded
            decoded += len(token_ids)
            text: str = BYTES.decode(token_ids, skip_special_tokens=skip_special_tokens)
            return text

    ids = (ids_of(text) * 2_000)[:2_000]
    walk(StopRules(params(stop=("no such text",)), Counting()), ids)
    assert decoded < 20 * 2_000  # a window has 8 to 16 ids, and 8 more when it is shortened
