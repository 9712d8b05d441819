"""Small hand-written machines for the tests of the engine: each shows one thing that it must do."""

from __future__ import annotations

import random
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from logitkit.grammar.machine import (
    JSON_TEXT,
    PLAIN_TEXT,
    Call,
    Expansion,
    Key,
    Move,
    Return,
    Step,
)


class Table:
    """A machine from a dictionary: key -> (moves, final), moves (bytes, move)."""

    has_stack = False

    def __init__(
        self,
        start: Key,
        rows: Mapping[Hashable, tuple[Sequence[tuple[bytes, Move]], bool]],
        resumes: Mapping[tuple[Key, Key], Key] | None = None,
    ) -> None:
        self.start, self.rows, self.resumes = start, rows, resumes or {}
        self.has_stack = resumes is not None

    def expand(self, key: Key) -> Expansion:
        moves, final = self.rows[key]
        ranges = [(byte, byte, move) for data, move in moves for byte in data]
        return Expansion(sorted(ranges, key=lambda r: r[0]), final)

    def resume(self, site: Key, tag: Key) -> Key | None:
        return self.resumes.get((site, tag))

    def land(self, key: Key, counter: int) -> tuple[Key, int]:
        raise AssertionError("no far state")


def words(*texts: bytes) -> Table:
    """Exactly one of these texts."""
    rows: dict[Hashable, Any] = {b"": ([], b"" in texts)}
    for text in texts:
        for end in range(len(text) + 1):
            rows.setdefault(text[:end], ([], text[:end] in texts))
    for key in rows:
        assert isinstance(key, bytes)
        if key:
            rows[key[:-1]][0].append((key[-1:], Step(key)))
    return Table(b"", rows)


def parentheses() -> Table:
    """Any number of balanced `(...)`, at least one; between them, at the top only, commas."""
    inner = ([(b"(", Call("in", "body")), (b")", Return("close"))], False)
    return Table(
        "start",
        {
            "start": ([(b"(", Call("top", "body"))], False),
            "body": inner,
            "more": ([(b"(", Call("top", "body")), (b",", Step("start"))], True),
        },
        {("in", "close"): "body", ("top", "close"): "more"},
    )


class Counted:
    """`[abc]` between `low` and `high` times, then `x` or the end; far where nothing is near."""

    has_stack = False

    def __init__(self, low: int, high: int, horizon: int) -> None:
        self.low, self.high, self.horizon = low, high, horizon
        self.start = self.place(0)

    def place(self, count: int) -> Key:
        if self.low <= count < self.high - self.horizon:
            return "far"
        return ("near", count)

    def expand(self, key: Key) -> Expansion:
        x = (120, 120, Step("end", put=0))
        if key == "end":
            return Expansion((), final=True)
        if key == "far":
            return Expansion(
                [(97, 99, Step("far", add=1)), x], final=True, limit=self.high - self.horizon
            )
        assert isinstance(key, tuple)
        count = key[1]
        moves: list[tuple[int, int, Move]] = []
        if count < self.high:
            after = self.place(count + 1)
            put = count + 1 if after == "far" else None
            moves.append((97, 99, Step(after, put=put)))
        if count < self.low:
            return Expansion(moves)
        return Expansion([*moves, x], final=True)

    def resume(self, site: Key, tag: Key) -> Key | None:
        raise AssertionError("no stack")

    def land(self, key: Key, counter: int) -> tuple[Key, int]:
        assert key == "far" and counter < self.high, "the far state was left too late"
        return ("near", counter), 0


class Marked:
    """Up to `most` times `a`, with `()` anywhere between, which is called: a token may push a frame
    whose counter is far beyond the limit, and the next one may return to it."""

    has_stack = True

    def __init__(self, most: int, horizon: int) -> None:
        self.most, self.horizon = most, horizon
        self.start: Key = "far" if most > horizon else 0

    def expand(self, key: Key) -> Expansion:
        if key == "body":
            return Expansion([(41, 41, Return("mark"))])
        moves: list[tuple[int, int, Move]] = [(40, 40, Call(key, "body"))]
        if key == "far":
            moves.append((97, 97, Step("far", add=1)))
            return Expansion(moves, final=True, limit=self.most - self.horizon)
        assert isinstance(key, int)
        if key < self.most:
            moves.append((97, 97, Step(key + 1)))
        return Expansion(moves, final=True)

    def resume(self, site: Key, tag: Key) -> Key | None:
        return site

    def land(self, key: Key, counter: int) -> tuple[Key, int]:
        assert key == "far" and counter < self.most, "the far state was left too late"
        return counter, 0


class Lists:
    """JSON-like: a string, a number, or a list of up to `most` of them; strings of up to `length`.

    Strings and lists are called bodies; both have a far state where the bounds allow one. A list
    of exactly one empty string is refused at its end by a dead resumption of the outermost site.
    """

    has_stack = True

    def __init__(self, most: int, length: int, horizon: int) -> None:
        self.most, self.length, self.horizon = most, length, horizon
        self.start = ("value", "root")

    def item(self, count: int) -> tuple[Key, int]:
        """The state after `count` items, and its counter."""
        return ("after", count), 0

    def value(self, site: Key) -> list[tuple[int, int, Move]]:
        digits = Step(("number", site), put=None)
        return [
            (34, 34, Call(("string", site), ("text", 0))),
            (48, 57, digits),
            (91, 91, Call(("list", site), ("open",))),
        ]

    def text(self, count: int) -> Step:
        if count < self.length - self.horizon:
            return Step("far text", put=count)
        return Step(("text", count), put=0)

    def list_far(self) -> int:
        return self.most - self.horizon

    def expand(self, key: Key) -> Expansion:
        if key == "far text":
            moves = [
                (32, 33, Step("far text", add=1)),
                (34, 34, Return("string")),
                (35, 91, Step("far text", add=1)),
                (93, 126, Step("far text", add=1)),
                (0xC3, 0xC3, Step("far lead")),
            ]
            return Expansion(moves, limit=self.length - self.horizon)
        if key == "far lead":
            return Expansion(
                [(0x80, 0xBF, Step("far text", add=1))], limit=self.length - self.horizon
            )
        assert isinstance(key, tuple)
        kind = key[0]
        if kind == "value":
            return Expansion(self.value(key[1]))
        if kind == "text":
            count = key[1]
            tag = "empty" if count == 0 else "string"
            moves = [(34, 34, Return(tag))]
            if count < self.length:
                step = self.text(count + 1)
                moves = [(32, 33, step), *moves, (35, 91, step), (93, 126, step)]
                moves += [(0xC3, 0xC3, Step(("lead", count)))]
            return Expansion(moves)
        if kind == "lead":
            return Expansion([(0x80, 0xBF, self.text(key[1] + 1))])
        if kind == "number":
            return self.number(key)
        if kind == "open":
            return Expansion([*self.value(("item", 0))[:2], *self.value(("item", 0))[2:],
                              (93, 93, Return("list"))])  # fmt: skip
        assert kind in ("after", "end", "far after", "far value")
        if kind == "end":
            return Expansion((), final=True)
        limit = self.list_far() if kind.startswith("far") else None
        if kind == "far value":
            return Expansion(self.value("far item"), limit=limit)
        if kind == "far after":
            go = Step(("far value",), add=1)
            return Expansion([(44, 44, go), (93, 93, Return("list"))], limit=limit)
        count = key[1]
        close = (93, 93, Return("single" if count == 1 and key[2] == "empty" else "list"))
        if count < self.most:
            go = Step(("value", ("item", count)))
            if count == 3 < self.list_far():
                go = Step(("far value",), put=3)
            return Expansion([(44, 44, go), close])
        return Expansion([close])

    def number(self, key: Any) -> Expansion:
        """A number has no end of its own: what may follow it follows its digits."""
        site = key[1]
        more = (48, 57, Step(key))
        if site == "root":
            return Expansion([more], final=True)
        after = self.after(site, "number")
        below = self.expand(after)
        moves = sorted([*below.moves, more], key=lambda move: move[0])
        return Expansion(moves, limit=below.limit)

    def after(self, site: Key, tag: Key) -> Key:
        if site == "root":
            return ("end",)
        if site == "far item":
            return ("far after",)
        assert isinstance(site, tuple)
        return ("after", site[1] + 1, tag)

    def resume(self, site: Key, tag: Key) -> Key | None:
        assert isinstance(site, tuple)
        if site == ("list", "root") and tag == "single":
            return None
        return self.after(site[1], tag)

    def land(self, key: Key, counter: int) -> tuple[Key, int]:
        if key == "far text":
            assert counter < self.length
            return ("text", counter), 0
        if key == "far lead":
            assert counter < self.length
            return ("lead", counter), 0
        assert isinstance(key, tuple) and counter < self.most, (key, counter)
        if key[0] == "far after":
            return ("after", counter + 1, "string"), 0
        if key[0] == "far value":
            return ("value", ("item", counter)), 0
        assert key[0] == "number" and key[1] == "far item"
        return ("number", ("item", counter)), 0


class Tagged:
    """Free text with tool calls: `<tool_call>` as one control token, `(...)`, `</tool_call>`."""

    has_stack = True
    start = "text"

    def expand(self, key: Key) -> Expansion:
        if key == "text":
            return Expansion(
                [(32, 126, Step("text")), (0xC3, 0xC3, Step("lead"))],
                final=True,
                controls=[("<tool_call>", Call("call", "open")), ("<none>", Step("text"))],
            )
        if key == "lead":
            return Expansion([(0x80, 0xBF, Step("text"))])
        if key == "open":
            return Expansion([(40, 40, Call("inner", "body"))])
        if key == "body":
            return Expansion([(40, 40, Call("inner", "body")), (41, 41, Return("close"))])
        if key == "nested":
            return Expansion([(40, 40, Call("inner", "body")), (41, 41, Return("close"))])
        return Expansion((), controls=[("</tool_call>", Return("called"))])

    def resume(self, site: Key, tag: Key) -> Key | None:
        if site == "call":
            return "text"
        return "closed"

    def land(self, key: Key, counter: int) -> tuple[Key, int]:
        raise AssertionError("no far state")


class FreeText:
    """Any complete UTF-8 of the slice (the quotes and backslash too for PLAIN_TEXT), then a newline
    and again; promises the slice."""

    has_stack = False
    start = "text"

    def __init__(self, slices: int) -> None:
        self.slices = slices

    def expand(self, key: Key) -> Expansion:
        if isinstance(key, int):
            return Expansion([(0x80, 0xBF, Step(key - 1 if key > 1 else "text"))])
        if isinstance(key, tuple):
            low, high, left = key
            return Expansion([(low, high, Step(left if left else "text"))])
        step = Step("text")
        moves: list[tuple[int, int, Move]] = [(10, 10, step)]
        if self.slices & PLAIN_TEXT:
            moves.append((32, 126, step))
        else:
            assert self.slices == JSON_TEXT
            moves += [(32, 33, step), (35, 91, step), (93, 126, step)]
        moves += [
            (0xC2, 0xDF, Step(1)),
            (0xE0, 0xE0, Step((0xA0, 0xBF, 1))),
            (0xE1, 0xEC, Step(2)),
            (0xED, 0xED, Step((0x80, 0x9F, 1))),
            (0xEE, 0xEF, Step(2)),
            (0xF0, 0xF0, Step((0x90, 0xBF, 2))),
            (0xF1, 0xF3, Step(3)),
            (0xF4, 0xF4, Step((0x80, 0x8F, 2))),
        ]
        return Expansion(moves, final=True, slices=self.slices)

    def resume(self, site: Key, tag: Key) -> Key | None:
        raise AssertionError("no stack")

    def land(self, key: Key, counter: int) -> tuple[Key, int]:
        raise AssertionError("no far state")


class ShortText:
    """Up to `most` characters of JSON text, each counted; promises the room that is left."""

    has_stack = False

    def __init__(self, most: int) -> None:
        self.start: Key = ("text", most)

    def expand(self, key: Key) -> Expansion:
        assert isinstance(key, tuple)
        kind, left = key
        free = FreeText(JSON_TEXT).expand("text" if kind == "text" else kind)
        inner = [
            (low, high, Step(("text", left - 1) if move.key == "text" else (move.key, left)))
            for low, high, move in free.moves
            if low != 10 and isinstance(move, Step)
        ]
        if kind != "text":
            return Expansion(inner)
        if not left:
            return Expansion((), final=True, slices=JSON_TEXT, room=0)
        return Expansion(inner, final=True, slices=JSON_TEXT, room=left)

    def resume(self, site: Key, tag: Key) -> Key | None:
        raise AssertionError("no stack")

    def land(self, key: Key, counter: int) -> tuple[Key, int]:
        raise AssertionError("no far state")


def random_machine(seed: int, stack: bool = True) -> Table:
    """Up to 12 states over a handful of bytes, with calls that return one of two tags."""
    dice = random.Random(seed)
    names = [f"s{i}" for i in range(dice.randint(2, 12))]
    sites = [f"c{i}" for i in range(dice.randint(1, 4))]
    alphabet = b'ab"{}:,()12 \xc3\xa9'
    rows: dict[Hashable, Any] = {}
    for name in names:
        moves: list[tuple[bytes, Move]] = []
        for byte in alphabet:
            kind = dice.random() if stack else dice.random() * 0.6
            if kind < 0.55:
                moves.append((bytes([byte]), Step(dice.choice(names))))
            elif kind > 0.8:
                moves.append((bytes([byte]), Call(dice.choice(sites), dice.choice(names))))
            elif kind > 0.65:
                moves.append((bytes([byte]), Return(dice.choice("xy"))))
        rows[name] = (moves, dice.random() < 0.4)
    resumes = {(s, t): dice.choice(names) for s in sites for t in "xy" if dice.random() < 0.8}
    return Table("s0", rows, resumes if stack else None)
