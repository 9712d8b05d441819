"""`Writer`: a text in the making that a grammar follows byte by byte, for `likely`."""

from __future__ import annotations

import math
import time
from collections import deque
from typing import NamedTuple

from logitkit.grammar.arena import Arena, Configuration

SEARCHED = 400  # configurations, for the end of a string


class Mark(NamedTuple):
    """A place in the text that `back` returns to."""

    at: Configuration
    size: int


class Writer:
    """`at` is where the grammar is after `text`. `until`: the thread's processor time at which
    nothing more is tried."""

    def __init__(self, arena: Arena, start: Configuration) -> None:
        self._arena = arena
        self._steps: dict[tuple[Configuration, bytes], Configuration | None] = {}
        self.at, self.text, self.until = start, bytearray(), math.inf

    def restart(self, at: Configuration) -> None:
        """Begin another text."""
        self.at = at
        self.text.clear()

    @property
    def late(self) -> bool:
        return time.thread_time() > self.until

    @property
    def mark(self) -> Mark:
        return Mark(self.at, len(self.text))

    def back(self, mark: Mark) -> None:
        """Take back what was written since."""
        self.at = mark.at
        del self.text[mark.size :]

    def put(self, piece: bytes) -> bool:
        """Write a piece if the grammar takes it here; whether it does."""
        key = (self.at, piece)
        if key in self._steps:
            after = self._steps[key]
        else:
            after = self._steps[key] = self._arena.spell(self.at, piece)
        if after is None:
            return False
        self.at = after
        self.text += piece
        return True

    def put_number(self, text: str) -> bool:
        """Write a number if it may be over then."""
        mark = self.mark
        if self.put(text.encode()):
            after = (self._arena.spell(self.at, byte) for byte in (b",", b"}", b"]"))
            if any(at is not None for at in after) or self._arena.is_final(self.at):
                return True
            self.back(mark)
        return False

    def put_any_string(self) -> bool:
        """Write the shortest string that the grammar takes here, where that is found soon."""
        mark = self.mark
        if self.put(b'"'):
            text = self._shortest()
            if text is not None and self.put(text):
                return True
            self.back(mark)
        return False

    def _shortest(self) -> bytes | None:
        """The rest of a string, closing quote included."""
        arena, inside = self._arena, self.at[1]
        seen = {self.at}
        queue = deque([(self.at, b"")])
        while queue and len(seen) < SEARCHED and not self.late:
            at, text = queue.popleft()
            for byte, after in arena.ways(at):
                if after[1] != inside:
                    return text + bytes([byte])
                if after not in seen:
                    seen.add(after)
                    queue.append((after, text + bytes([byte])))
        return None
