"""A slow oracle for context-free grammars, and random grammars to try it on.

It knows no items and no sets: tables of "this expression matches from here to there" are filled
again and again until nothing changes, which is right for every left recursion and ambiguity.
"""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Lit:
    text: str


@dataclass(frozen=True)
class OneOf:
    chars: str


@dataclass(frozen=True)
class Ref:
    rule: str


@dataclass(frozen=True)
class Seq:
    parts: tuple[Expression, ...]


@dataclass(frozen=True)
class Alt:
    parts: tuple[Expression, ...]


@dataclass(frozen=True)
class Rep:
    part: Expression
    least: int
    most: int | None


Expression = Lit | OneOf | Ref | Seq | Alt | Rep
Rules = dict[str, Expression]


def render(expression: Expression) -> str:
    """The expression as EBNF, with every group in parentheses."""
    match expression:
        case Lit(text):
            return f'"{text}"'
        case OneOf(chars):
            return f"[{chars}]"
        case Ref(rule):
            return rule
        case Seq(parts):
            return f"({' '.join(map(render, parts))})"
        case Alt(parts):
            return f"({' | '.join(map(render, parts))})"
        case Rep(part, 0, None):
            return f"{render(part)}*"
        case Rep(part, 1, None):
            return f"{render(part)}+"
        case Rep(part, 0, 1):
            return f"{render(part)}?"
        case Rep(part, least, most):
            return f"{render(part)}{{{least},{'' if most is None else most}}}"


def grammar_text(rules: Rules) -> str:
    return "\n".join(f"{name} ::= {render(body)}" for name, body in rules.items())


class Oracle:
    """Answers for one text: does the root match all of it, and is it the beginning of a match?"""

    def __init__(self, rules: Rules, data: bytes) -> None:
        self.rules = rules
        self.data = data
        everywhere = range(len(data) + 1)
        self.ends = {(name, at): frozenset[int]() for name in rules for at in everywhere}
        self.begun = {(name, at): False for name in rules for at in everywhere}
        self.finishes = dict.fromkeys(rules, False)
        while self._grow():
            pass

    def _grow(self) -> bool:
        before = (dict(self.ends), dict(self.begun), dict(self.finishes))
        for name, body in self.rules.items():
            self.finishes[name] = self.can_finish(body)
            for at in range(len(self.data) + 1):
                self.ends[name, at] = self.match(body, at)
                self.begun[name, at] = self.begins(body, at)
        return before != (self.ends, self.begun, self.finishes)

    def can_finish(self, e: Expression) -> bool:
        match e:
            case Ref(rule):
                return self.finishes[rule]
            case Seq(parts):
                return all(map(self.can_finish, parts))
            case Alt(parts):
                return any(map(self.can_finish, parts))
            case Rep(part, least, _):
                return least == 0 or self.can_finish(part)
        return True

    def match(self, e: Expression, at: int) -> frozenset[int]:
        """Every index where a match of the expression that starts at `at` may end."""
        match e:
            case Lit(text):
                data = text.encode()
                return frozenset({at + len(data)} if self.data.startswith(data, at) else ())
            case OneOf(chars):
                return frozenset().union(*(self.match(Lit(char), at) for char in chars))
            case Ref(rule):
                return self.ends[rule, at]
            case Seq(parts):
                found = frozenset({at})
                for part in parts:
                    found = frozenset().union(*(self.match(part, i) for i in found))
                return found
            case Alt(parts):
                return frozenset().union(*(self.match(part, at) for part in parts))
            case Rep(part, least, most):
                return frozenset().union(*self._turns(part, at, least, most))
        raise AssertionError(e)

    def _turns(self, part: Expression, at: int, least: int, most: int | None):
        """Where `least`, `least` + 1, ... turns may end."""
        found = frozenset({at})
        bound = least + len(self.data) + 1 if most is None else most
        for turn in range(bound + 1):
            if turn >= least:
                yield found
            found = frozenset().union(*(self.match(part, i) for i in found))

    def begins(self, e: Expression, at: int) -> bool:
        """Whether the data from `at` on is the beginning of some match of the expression."""
        match e:
            case Lit(text):
                return text.encode().startswith(self.data[at:])
            case OneOf(chars):
                return any(self.begins(Lit(char), at) for char in chars)
            case Ref(rule):
                return self.begun[rule, at]
            case Seq(parts):
                found = frozenset({at})
                for i, part in enumerate(parts):
                    if not all(map(self.can_finish, parts[i:])):
                        return False
                    if any(self.begins(part, j) for j in found):
                        return True
                    found = frozenset().union(*(self.match(part, j) for j in found))
                return len(self.data) in found
            case Alt(parts):
                return any(self.begins(part, at) for part in parts)
            case Rep(part, least, most):
                copies = least + len(self.data) + 1 if most is None else most
                if least == 0 and at == len(self.data):
                    return True
                if copies == 0 or not self.can_finish(part):
                    return False
                found = frozenset({at})
                for _ in range(copies):
                    if any(self.begins(part, j) for j in found):
                        return True
                    found = frozenset().union(*(self.match(part, j) for j in found))
                return least == 0 and at == len(self.data)
        raise AssertionError(e)

    def accepts(self) -> bool:
        return len(self.data) in self.ends["root", 0]

    def prefix_alive(self) -> bool:
        return self.begun["root", 0]


def random_rules(random_: random.Random, count: int) -> Rules:
    """Rules that call each other freely, the root first."""
    names = ["root", *(f"r{i}" for i in range(1, count))]
    return {name: _expression(random_, names, 3) for name in names}


def _expression(random_: random.Random, names: list[str], depth: int) -> Expression:
    kind = random_.random()
    if depth == 0 or kind < 0.25:
        if random_.random() < 0.5:
            return Ref(random_.choice(names))
        return random_.choice(
            [Lit("a"), Lit("b"), Lit("ab"), Lit(""), Lit("é"), OneOf("ab"), OneOf("aéè"), Lit("a")]
        )
    parts = tuple(_expression(random_, names, depth - 1) for _ in range(random_.randint(1, 3)))
    if kind < 0.6:
        return Seq(parts)
    if kind < 0.88:
        return Alt(parts)
    least = random_.randint(0, 2)
    return Rep(parts[0], least, random_.choice([None, least, least + 1]))
