"""Hand-made normal forms, and random documents of a machine, for the tests of `json_schema`."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random

from logitkit.grammar.json_schema import types as t
from logitkit.grammar.json_schema.machine import JsonMachine
from logitkit.grammar.machine import Budget, Context
from logitkit.grammar.spec import JsonSchema, Whitespace
from tests.grammar.toy import Slow, SlowMachine

ALL_BYTES = (True,) * 256
HORIZON = 20


def context(alphabet: tuple[bool, ...] = ALL_BYTES, horizon: int = HORIZON) -> Context:
    return Context(horizon, alphabet, Budget())


@dataclass
class HandMade:
    """A normal form written down: `nodes` from 2 on, and what `both` gives."""

    nodes: dict[int, tuple[t.Type, ...]]
    joined: dict[tuple[int, int], int] = field(default_factory=dict)
    options: JsonSchema = field(default_factory=lambda: JsonSchema(True))
    root: t.Node = 2

    def alternatives(self, node: t.Node) -> tuple[t.Type, ...]:
        return self.nodes.get(node, ())

    def is_empty(self, node: t.Node) -> bool:
        return not self.alternatives(node)

    def other(self, obj: t.Object, matched: frozenset[int]) -> t.Node:
        nodes = {obj.patterns[index][1] for index in matched}
        if not nodes:
            return obj.additional
        return t.NEVER if t.NEVER in nodes or len(nodes) > 1 else nodes.pop()

    def both(self, first: t.Node, second: t.Node) -> t.Node:
        return self.joined[first, second]


def machine_of(
    *root: t.Type,
    joined: dict[tuple[int, int], int] | None = None,
    whitespace: Whitespace = "default",
    alphabet: tuple[bool, ...] = ALL_BYTES,
    horizon: int = HORIZON,
    **nodes: t.Type | tuple[t.Type, ...],
) -> SlowMachine:
    """The machine of `root`; other nodes are given as n3=..., n4=... (n1 is any value)."""
    every = {
        int(name[1:]): one if isinstance(one, tuple) else (one,) for name, one in nodes.items()
    }
    form = HandMade({2: root, **every}, joined or {}, JsonSchema(True, whitespace=whitespace))
    return SlowMachine(JsonMachine(form, context(alphabet, horizon)))


def finish(slow: SlowMachine, at: Slow, most: int = 20_000) -> bytes | None:
    """A short way to a whole document; None if `most` configurations do not hold one.

    Frames that are open are closed before others are opened.
    """
    seen = {at}
    tried = 0
    heap = [(len(at.stack), 0, tried, at, b"")]
    while heap and tried < most:
        _, length, _, here, text = heappop(heap)
        if slow.is_final(here):
            return text
        for low, high, _ in slow.expand(here.key).moves:
            for byte in {low, high}:
                after = slow.step(here, byte)
                if after is not None and after not in seen:
                    seen.add(after)
                    tried += 1
                    entry = (len(after.stack), length + 1, tried, after, text + bytes([byte]))
                    heappush(heap, entry)
    return None


def wander(slow: SlowMachine, random: Random, length: int) -> tuple[Slow, bytes]:
    """A configuration after about `length` random bytes; every state on the way offers one.

    Moves to whitespace are rarer than others, and so are bytes that are not letters.
    """
    at, text = slow.start, bytearray()
    while len(text) < length:
        moves = slow.expand(at.key).moves
        if slow.is_final(at) and (not moves or random.random() < 0.2):
            break
        assert moves, f"nothing may follow {bytes(text)!r}"
        dark = [move for move in moves if move[0] > 0x20]
        low, high, _ = random.choice(dark if dark and random.random() < 0.8 else moves)
        if low <= 0x61 and high >= 0x7A and random.random() < 0.7:
            low, high = 0x61, 0x66
        byte = random.randint(low, high)
        after = slow.step(at, byte)
        assert after is not None, (
            f"the byte {byte:#x} was offered and refused after {bytes(text)!r}"
        )
        at = after
        text.append(byte)
    return at, bytes(text)


def document(slow: SlowMachine, random: Random, length: int) -> str:
    """A random document that is finished the shortest way after about `length` bytes."""
    at, text = wander(slow, random, length)
    rest = finish(slow, at)
    assert rest is not None, f"no way to finish {text!r} was found"
    return (text + rest).decode()
