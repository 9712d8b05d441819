"""Text that holds no forbidden string and stops where a trigger ends: nodes of a `Graph`.

The automaton of Aho and Corasick over the bytes of all strings, run beside one that lets only UTF-8
through: a state is (node of the tree of strings, place within a character).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from logitkit.grammar.ebnf.graph import Fragment, Graph
from logitkit.grammar.strings.charset import ALL

# Places within a character: what may follow, and where that leads. 0 is between characters.
_UTF8: tuple[tuple[tuple[int, int, int], ...], ...] = (
    (
        (0x00, 0x7F, 0), (0xC2, 0xDF, 1), (0xE0, 0xE0, 4), (0xE1, 0xEC, 2), (0xED, 0xED, 5),
        (0xEE, 0xEF, 2), (0xF0, 0xF0, 6), (0xF1, 0xF3, 3), (0xF4, 0xF4, 7),
    ),
    ((0x80, 0xBF, 0),),
    ((0x80, 0xBF, 1),),
    ((0x80, 0xBF, 2),),
    ((0xA0, 0xBF, 1),),
    ((0x80, 0x9F, 1),),
    ((0x90, 0xBF, 2),),
    ((0x80, 0x8F, 2),),
)  # fmt: skip


class _State(NamedTuple):
    """A beginning of one of the strings."""

    read: bytes
    moves: dict[int, int]  # bytes that lead elsewhere than to the empty beginning
    ended: frozenset[bytes]  # the strings that the text just read ends with


class FreeText(NamedTuple):
    """`fragment` is the text; `places` are its nodes between characters, by the longest beginning
    of a string that was just read."""

    fragment: Fragment
    places: dict[int, bytes]


def free_text(
    graph: Graph, excludes: Sequence[str], triggers: Mapping[str, Sequence[int]]
) -> FreeText:
    """Add text without any of `excludes` that may end anywhere between two characters.

    The first trigger leads to each of its nodes instead, and no text goes beyond one; of two that
    end at the same byte, the longer counts.
    """
    if not excludes and not triggers:
        text = graph.repeat(graph.chars(ALL), 0, None)
        return FreeText(text, {text.start: b""})
    targets = {trigger.encode(): nodes for trigger, nodes in triggers.items()}
    forbidden = {text.encode() for text in excludes}
    states = _states([*forbidden, *targets])
    first = graph.add_node()
    end = graph.add_node()
    nodes = {(0, 0): first}
    work = [(0, 0)]
    while work:
        state, place = work.pop()
        node = nodes[state, place]
        if place == 0:
            graph.link(node, end)
        for low, high, after, following in _moves(states[state].moves, place):
            ended = states[after].ended
            if ended & forbidden:
                continue
            if ended:
                trigger = max(ended, key=len)  # the one that began first
                graph.spans[node] += tuple((low, high, to) for to in targets[trigger])
                continue
            if (after, following) not in nodes:
                nodes[after, following] = graph.add_node()
                work.append((after, following))
            graph.spans[node] += ((low, high, nodes[after, following]),)
    places = {node: states[state].read for (state, place), node in nodes.items() if place == 0}
    return FreeText(Fragment(first, len(graph.silent), first, end), places)


def _moves(moves: dict[int, int], place: int) -> Iterator[tuple[int, int, int, int]]:
    """The bytes that UTF-8 allows: (first, last, state, place)."""
    for low, high, following in _UTF8[place]:
        for byte in sorted(byte for byte in moves if low <= byte <= high):
            if low < byte:
                yield low, byte - 1, 0, following
            yield byte, byte, moves[byte], following
            low = byte + 1
        if low <= high:
            yield low, high, 0, following


def _states(strings: Sequence[bytes]) -> list[_State]:
    """The states of the automaton; state 0 is the empty beginning."""
    numbers = {b"": 0}
    for text in sorted(strings):
        for stop in range(1, len(text) + 1):
            numbers.setdefault(text[:stop], len(numbers))
    reads = list(numbers)
    children: list[dict[int, int]] = [{} for _ in reads]
    for read, number in numbers.items():
        if read:
            children[numbers[read[:-1]]][read[-1]] = number
    whole = set(strings)
    states: dict[int, _State] = {0: _State(b"", children[0], frozenset())}
    below = [0] * len(reads)  # the longest proper ending that is a beginning of some string
    for number in sorted(range(1, len(reads)), key=lambda number: len(reads[number])):
        read = reads[number]
        if len(read) > 1:
            below[number] = states[below[numbers[read[:-1]]]].moves.get(read[-1], 0)
        shorter = states[below[number]]
        moves = {**shorter.moves, **children[number]}
        states[number] = _State(read, moves, shorter.ended | ({read} & whole))
    return [states[number] for number in range(len(reads))]
