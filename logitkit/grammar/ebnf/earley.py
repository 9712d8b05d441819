"""`EarleyMachine`: any context-free grammar as a `Machine`, by Earley's sets made lazily.

An *item* is (node, return): where a rule is being read, and what happens when it ends. A return
stands for a set of items, those where the callers of the rule go on. The state after some bytes is
the set of its items that can still read; rules that ended were carried to their callers before the
set is interned, so states repeat. Returns are interned by content, which is what makes tail calls
free and keeps right recursion finite; those of left-recursive rules, which lead back to themselves,
are merged when they are found to behave alike, which keeps left recursion and ambiguity finite.

Some returns are given: TOP, where ending the rule ends the text, and a few places for the callers
of a state that was entered by a `Call` of the engine. A self-embedding grammar calls whenever all
items after a byte are in rules that the state before it entered, so the states of a bracketed value
are the same at every depth. A grammar that is not self-embedding never calls.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from logitkit.grammar.ebnf.embedding import is_self_embedding
from logitkit.grammar.ebnf.plans import Plans
from logitkit.grammar.ebnf.returns import CALLERS, TOP, Item, Items, Returns
from logitkit.grammar.ebnf.tables import Tables
from logitkit.grammar.machine import Call, Expansion, Key, Move, Return, Step


class Frame(NamedTuple):
    """Where the grammar goes on after a body of an embedded machine: its configuration as a node
    of the tables, less the body's own state."""

    node: int
    ret: int


class Body(NamedTuple):
    """A state (or a call site) of an embedded machine that the engine runs as it is."""

    machine: int
    key: Key


class EarleyMachine:
    """The texts that rule `root` of the tables' graph derives."""

    def __init__(self, tables: Tables, root: int) -> None:
        graph = tables.graph
        self.tables = tables
        self.plans = Plans(tables)
        self.returns = Returns(tables, self.plans)
        self.sets: list[Items] = []
        self._numbers: dict[Items, int] = {}
        self.calls = is_self_embedding(tables, root)
        self.has_stack = self.calls or any(machine.has_stack for machine in graph.machines)
        start = tables.resolve(graph.rules[root][0])
        self.start: Key = self._intern(self.returns.reduce([(start, TOP)]))

    def _intern(self, items: Iterable[Item]) -> int:
        key = tuple(sorted(items))
        number = self._numbers.get(key)
        if number is None:
            number = len(self.sets)
            self.sets.append(key)
            self._numbers[key] = number
        return number

    def expand(self, key: Key) -> Expansion:
        if isinstance(key, Body):
            return self._expand_body(key)
        assert isinstance(key, int)
        items = self.sets[key]
        final = bool(items) and items[0] == (-1, TOP)
        if final:
            items = items[1:]
        plan = self.plans.of(tuple([node for node, _ in items]))
        returns = self.returns.of(items, plan)
        entered = {ret for ret in returns[len(items) :] if ret > CALLERS}
        moves = [
            self._move([(node, returns[source]) for source, node in group], entered)
            for group in plan.groups
        ]
        return Expansion(
            [(low, high, moves[group]) for low, high, group in plan.cells],
            final,
            slices=plan.slices,
            controls=[(text, moves[group]) for text, group in plan.controls],
        )

    def _move(self, raw: list[Item], entered: set[int]) -> Move:
        items = self.returns.reduce(raw)
        if self.has_stack:
            ended = sorted(ret for node, ret in items if node < 0 and ret != TOP)
            if ended:
                rest = tuple(sorted(item for item in items if item[0] >= 0))
                return Return((tuple(ended), rest))
            if self.calls and entered and (call := self._call(items, entered)):
                return call
            if len(items) == 1 and (call := self._call_body(*next(iter(items)))):
                return call
        return Step(self._intern(items))

    def _call(self, items: set[Item], entered: set[int]) -> Call | None:
        """A call, if all items are in rules that this state enters, and none of those rules ends
        together with a caller of this state. (A tail call returns to a caller: none is made.)"""
        used = sorted({ret for _, ret in items})
        if len(used) > CALLERS or not entered.issuperset(used):
            return None
        if any(self.returns.ends_caller(ret) for ret in used):
            return None
        place = {ret: 1 + number for number, ret in enumerate(used)}
        return Call(tuple(used), self._intern((node, place[ret]) for node, ret in items))

    def _call_body(self, node: int, ret: int) -> Call | None:
        at = self.tables.embedded.get(node)
        if at is None or not at.stack or at.counter:
            return None
        return Call(Frame(node, ret), Body(at.machine, at.key))

    def resume(self, site: Key, tag: Key) -> Key | None:
        if isinstance(site, Body):
            key = self.tables.graph.machines[site.machine].resume(site.key, tag)
            return None if key is None else Body(site.machine, key)
        if isinstance(site, Frame):
            node = self.tables.resumed(self.tables.embedded[site.node], tag)
            return None if node is None else self._intern(self.returns.reduce([(node, site.ret)]))
        assert isinstance(site, tuple) and isinstance(tag, tuple)
        ended, rest = tag
        place = {1 + number: ret for number, ret in enumerate(site)}
        items = [(node, self.returns.replaced(ret, place)) for node, ret in rest]
        for ret in ended:
            items += self.returns.items[place[ret]]
        return self._intern(self.returns.reduce(items))

    def land(self, key: Key, counter: int) -> tuple[Key, int]:
        assert isinstance(key, Body)
        landed, counter = self.tables.graph.machines[key.machine].land(key.key, counter)
        return Body(key.machine, landed), counter

    def _expand_body(self, body: Body) -> Expansion:
        machine = body.machine

        def wrap(move: Move) -> Move:
            if isinstance(move, Step):
                return move._replace(key=Body(machine, move.key))
            if isinstance(move, Call):
                return Call(Body(machine, move.site), Body(machine, move.key))
            return move

        expansion = self.tables.graph.machines[machine].expand(body.key)
        return expansion._replace(
            moves=[(low, high, wrap(move)) for low, high, move in expansion.moves],
            final=False,
            controls=[(text, wrap(move)) for text, move in expansion.controls],
        )
