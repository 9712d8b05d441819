"""A list of texts as a `Machine`: `build`.

The texts are sorted; a state is the run of texts that begin with what was read, and how much that
was. Nothing is built ahead: a state finds its branches by bisection.
"""

from __future__ import annotations

from bisect import bisect_right

from logitkit.errors import GrammarError
from logitkit.grammar.machine import Context, Expansion, Key, Machine, Step
from logitkit.grammar.spec import Choice


class ChoiceMachine:
    """Exactly one of the texts; a state is (first, last + 1, bytes read)."""

    has_stack = False

    def __init__(self, texts: list[bytes]) -> None:
        self.texts = texts
        self.start: Key = (0, len(texts), 0)

    def expand(self, key: Key) -> Expansion:
        assert isinstance(key, tuple)
        first, stop, depth = key
        final = len(self.texts[first]) == depth
        moves = []
        at = first + final
        while at < stop:
            byte = self.texts[at][depth]
            after = bisect_right(self.texts, byte, at, stop, key=lambda text: text[depth])
            moves.append((byte, byte, Step((at, after, depth + 1))))
            at = after
        return Expansion(moves, final)

    def resume(self, site: Key, tag: Key) -> Key | None:
        raise AssertionError("a choice makes no calls")

    def land(self, key: Key, counter: int) -> tuple[Key, int]:
        raise AssertionError("a choice has no far states")


def build(spec: Choice, context: Context) -> Machine:
    """The machine of `spec.options`; duplicates count once, and one may begin with another.

    Raises `GrammarError` for an option with bytes that no token spells, and where the empty text
    is the only option.
    """
    texts = [option.encode() for option in spec.options]
    for number, text in enumerate(texts):
        missing = next((byte for byte in text if not context.alphabet[byte]), None)
        if missing is not None:
            raise GrammarError(
                f"Choice: the vocabulary cannot spell options[{number}]={spec.options[number]!r}: "
                f"no token holds the byte 0x{missing:02X}; leave the option out"
            )
    if not any(texts):
        raise GrammarError("Choice: the empty text is the only option; name one that is not empty")
    return ChoiceMachine(sorted(set(texts)))
