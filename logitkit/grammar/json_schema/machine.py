"""`JsonMachine`: the normal form of a schema as a byte machine.

A frame is the root, an object, an array or a string; `{`, `[` and `"` call. A state of a frame is
the set of everything that may be going on in it, so the machine is deterministic: a callee runs
all bodies that are wanted where it was called and returns which of them are complete; the call
site then knows where each of them leads. A body knows nothing of its callers.
"""

from __future__ import annotations

from collections.abc import Iterable

from logitkit.errors import GrammarError
from logitkit.grammar import strings
from logitkit.grammar.json_schema.bodies import Bodies
from logitkit.grammar.json_schema.machine_items import Items
from logitkit.grammar.json_schema.machine_members import Members
from logitkit.grammar.json_schema.machine_strings import Inside
from logitkit.grammar.json_schema.shapes import Shape, Shapes
from logitkit.grammar.json_schema.spelling import spelling_of
from logitkit.grammar.json_schema.states import (
    ARRAY,
    COLON,
    ENDED,
    ITEMS,
    KEY,
    KEY_SITE,
    MEMBERS,
    OBJECT,
    ROOT,
    SCALAR,
    SITE,
    VALUE,
    Base,
    Interned,
    Ints,
    Moves,
    Pairs,
    first,
)
from logitkit.grammar.json_schema.types import Schema
from logitkit.grammar.json_schema.whitespace import (
    AFTER,
    AFTER_COLON,
    BEFORE_COLON,
    NEXT,
    OPEN,
    whitespace,
)
from logitkit.grammar.json_schema.words import QUOTE
from logitkit.grammar.machine import Call, Context, Expansion, Key, Kin, Move, Return, Step
from logitkit.grammar.strings import Language
from logitkit.grammar.strings.automaton import Place
from logitkit.grammar.strings.body import Middle

COMMA, COLON_BYTE = 0x2C, 0x3A
OPEN_BRACKET, CLOSE_BRACKET, OPEN_BRACE, CLOSE_BRACE = 0x5B, 0x5D, 0x7B, 0x7D
ANY_TAG = -1  # in a site's pairs: whatever the callee returns


class JsonMachine:
    """The machine of a normalised schema."""

    has_stack = True

    def __init__(self, schema: Schema, context: Context) -> None:
        spelling = spelling_of(context.alphabet)
        self._space = whitespace(schema.options.whitespace, context.alphabet)
        self._deeper = int(self._space.deep)
        self._bodies = Bodies(context)
        self._shapes = Shapes(schema, self._bodies)
        self._scalars = self._shapes.scalars
        self._items = Items(self._shapes.arrays, context.horizon)
        self._members = Members(self._shapes.objects, spelling, self._bodies)
        self._inside = Inside(self._bodies, self._members, spelling, self._allows)
        self._pairs: Interned[Pairs] = Interned()
        self._sets: Interned[tuple[int, ...]] = Interned()  # of threads
        self._bases: dict[Ints, Base] = {}
        wants = self._pairs.id(((schema.root, 0),))
        self.start: Key = (VALUE, ROOT, -self._deeper, 0, wants, 0)
        if not self.expand(self.start).moves:
            raise GrammarError("the schema has no value that the vocabulary can spell")

    def expand(self, key: Key) -> Expansion:
        if isinstance(key, Place | Middle):
            return self._bodies.expand(key)
        assert isinstance(key, tuple)
        if key[0] <= ENDED:
            return self._expand_gap(key)
        if key[0] == SCALAR:
            return self._expand_scalar(key)
        return self._inside.expand(key)

    def resume(self, site: Key, tag: Key) -> Key | None:
        assert isinstance(site, tuple)
        if site[0] == KEY_SITE:
            _, depth, threads = site
            wants = self._members.after_key(self._sets[threads], tag)
            return (COLON, depth, self._pairs.id(wants), 0) if wants else None
        _, frame, depth, n, pairs = site
        assert isinstance(tag, frozenset)
        after = {thread for body, thread in self._pairs[pairs] if body < 0 or body in tag}
        return self._ended(frame, depth, n, after) if after else None

    def land(self, key: Key, counter: int) -> tuple[Key, int]:
        if isinstance(key, Place | Middle):
            return self._bodies.land(key, counter)
        assert isinstance(key, tuple)
        if key[0] == ITEMS:
            return (*key[:2], counter, *key[3:]), 0
        if key[0] in (VALUE, SCALAR, ENDED):
            return (*key[:3], counter, *key[4:]), 0
        return self._inside.land(key, counter)

    def _allows(self, threads: int, tag: Key) -> bool:
        return bool(self._members.after_key(self._sets[threads], tag))

    # Between tokens -----------------------------------------------------------------------------

    def _expand_gap(self, key: Ints) -> Expansion:
        bare, w = key[:-1], key[-1]
        base = self._bases.get(bare)
        if base is None:
            base = self._bases[bare] = self._base(bare)
        where, depth, n = _gap_of(bare)
        if where is None:
            return Expansion(base.inner, base.final)
        gap = self._space.gap(where, depth, w, bool(base.inner), bool(base.close))
        moves: Moves = [(a, b, Step((*bare, to))) for a, b, to in gap.moves]
        if gap.inner:
            moves += base.inner
        if gap.close and base.close:
            moves = sorted(moves + base.close, key=first)
        kin, space = None, self._space
        if w == space.first and space.kin:
            kin = Kin([(*bare, more) for more in space.kin], space.places, space.leads)
        return Expansion(moves, limit=self._items.limit(n), kin=kin)

    def _base(self, bare: Ints) -> Base:
        """The tokens that may come in a gap, whatever whitespace was read."""
        match bare:
            case (phase, frame, depth, n, wants) if phase == VALUE:
                return Base(self._value_moves(frame, depth, n, self._pairs[wants]), [])
            case (phase, depth, n, threads) if phase == ITEMS:
                now = self._sets[threads]
                values = self._value_moves(ARRAY, depth, n, self._items.wants(0, now))
                return Base(values, _close(CLOSE_BRACKET, self._items.ended(0, now)))
            case (phase, depth, threads) if phase == MEMBERS:
                ended = self._members.ended(self._sets[threads])
                return Base(self._key_moves(depth, threads), _close(CLOSE_BRACE, ended))
            case (phase, depth, threads) if phase == KEY:
                return Base(self._key_moves(depth, threads), [])
            case (phase, depth, wants) if phase == COLON:
                step = Step((VALUE, OBJECT, depth, 0, wants, 0))
                return Base([(COLON_BYTE, COLON_BYTE, step)], [])
        _, frame, depth, n, threads = bare
        if frame == ROOT:
            return Base([], [], final=True)
        return self._after_value(frame, depth, n, self._sets[threads])

    def _after_value(self, frame: int, depth: int, n: int, threads: tuple[int, ...]) -> Base:
        """A comma, or the end of an array or object."""
        if frame == OBJECT:
            close = _close(CLOSE_BRACE, self._members.ended(threads))
            onward = self._members.onward(threads)
            step = Step((KEY, depth, self._sets.id(onward), 0))
            return Base([(COMMA, COMMA, step)] if onward else [], close)
        count = (n if n >= 0 else -n - 1) + 1  # far from a bound, all places are alike
        close = _close(CLOSE_BRACKET, self._items.ended(count, threads))
        wants = self._items.wants(count, threads)
        if not wants:
            return Base([], close)
        n, (add, put) = self._items.place({thread for _, thread in wants}, count, n < 0)
        step = Step((VALUE, ARRAY, depth, n, self._pairs.id(wants), 0), add, put)
        return Base([(COMMA, COMMA, step)], close)

    def _key_moves(self, depth: int, threads: int) -> Moves:
        start = self._inside.key(threads, self._sets[threads])
        return [] if start is None else [(QUOTE, QUOTE, Call((KEY_SITE, depth, threads), start))]

    # Values -------------------------------------------------------------------------------------

    def _value_moves(self, frame: int, depth: int, n: int, wants: Pairs) -> Moves:
        """The first bytes of the values wanted: nodes, and the thread after each."""
        shapes = [(self._shapes.shape(node), thread) for node, thread in wants]
        moves: Moves = []
        scalars = [(scalar, thread) for shape, thread in shapes for scalar in shape.scalars]
        if scalars:
            moves += self._scalar_moves(frame, depth, n, scalars)
        text = self._text_start(shapes)
        if text is not None:
            start, pairs = text
            moves.append((QUOTE, QUOTE, Call(self._site(frame, depth, n, pairs), start)))
        arrays = {(plan, thread) for shape, thread in shapes for plan in shape.arrays}
        if arrays:
            place, threads = self._items.start(sorted({plan for plan, _ in arrays}))
            start = (ITEMS, depth + self._deeper, place, self._sets.id(tuple(threads)), 0)
            call = Call(self._site(frame, depth, n, arrays), start)
            moves.append((OPEN_BRACKET, OPEN_BRACKET, call))
        objects = {(plan, thread) for shape, thread in shapes for plan in shape.objects}
        if objects:
            members = self._members.start(sorted({plan for plan, _ in objects}))
            start = (MEMBERS, depth + self._deeper, self._sets.id(members), 0)
            call = Call(self._site(frame, depth, n, objects), start)
            moves.append((OPEN_BRACE, OPEN_BRACE, call))
        moves.sort(key=first)
        return moves

    def _site(self, frame: int, depth: int, n: int, pairs: Iterable[tuple[int, int]]) -> Key:
        """The call site that goes on with each pair's thread if its body is complete."""
        threads = {thread for _, thread in pairs}
        if len(threads) == 1:
            pairs = ((ANY_TAG, threads.pop()),)
        return (SITE, frame, depth, n, self._pairs.id(tuple(sorted(pairs))))

    def _text_start(self, shapes: list[tuple[Shape, int]]) -> tuple[Key, Pairs] | None:
        """The body of all strings wanted, and which thread each index of its tags leads to."""
        texts: dict[int, list[str]] = {}
        languages: list[tuple[Language, int]] = []
        for shape, thread in shapes:
            languages += [(language, thread) for language in shape.languages]
            if shape.texts:
                texts.setdefault(thread, []).extend(shape.texts)
        if not languages:
            groups = tuple(tuple(group) for group in texts.values())
            return (self._inside.literals(groups), tuple(enumerate(texts))) if texts else None
        languages += [(strings.literals(group), thread) for thread, group in texts.items()]
        body = self._bodies.value(tuple(language for language, _ in languages))
        pairs = tuple((i, thread) for i, (_, thread) in enumerate(languages))
        return self._inside.text(body), pairs

    def _ended(self, frame: int, depth: int, n: int, threads: set[int]) -> Key:
        """The state after a value."""
        if frame == ARRAY and len(threads) > 1:
            threads = self._items.prune(threads)
        return (ENDED, frame, depth, n, self._sets.id(tuple(sorted(threads))), 0)

    # Scalars ------------------------------------------------------------------------------------

    def _scalar_moves(
        self, frame: int, depth: int, n: int, items: Iterable[tuple[int, int]]
    ) -> Moves:
        """The bytes that lead on inside scalars: positions, and the thread after each."""
        after: dict[int, set[tuple[int, int]]] = {}
        for scalar, thread in items:
            for byte, to in self._scalars.moves(scalar):
                after.setdefault(byte, set()).add((to, thread))
        keys: dict[Pairs, Key] = {}
        moves: Moves = []
        for byte in sorted(after):
            pairs = tuple(sorted(after[byte]))
            key = keys.get(pairs)
            if key is None:
                key = keys[pairs] = self._scalar_key(frame, depth, n, pairs)
            step: Move = Step(key)
            if moves and moves[-1][1] == byte - 1 and moves[-1][2] == step:
                moves[-1] = (moves[-1][0], byte, step)
            else:
                moves.append((byte, byte, step))
        return moves

    def _scalar_key(self, frame: int, depth: int, n: int, items: Pairs) -> Key:
        if all(self._scalars.is_over(scalar) for scalar, _ in items):
            return self._ended(frame, depth, n, {thread for _, thread in items})
        return (SCALAR, frame, depth, n, self._pairs.id(items))

    def _expand_scalar(self, key: Ints) -> Expansion:
        _, frame, depth, n, index = key
        items = self._pairs[index]
        moves = self._scalar_moves(frame, depth, n, items)
        threads = {thread for scalar, thread in items if self._scalars.complete(scalar)}
        if not threads:
            return Expansion(moves, limit=self._items.limit(n))
        after = self.expand(self._ended(frame, depth, n, threads))
        merged = sorted((*moves, *after.moves), key=first)
        return Expansion(merged, after.final, self._items.limit(n))


def _close(byte: int, ended: frozenset[int]) -> Moves:
    """The closing bracket, if something may end."""
    return [(byte, byte, Return(ended))] if ended else []


def _gap_of(bare: Ints) -> tuple[int | None, int, int]:
    """Which gap of `whitespace` a state is in (None: none at the root), its depth and its n."""
    phase = bare[0]
    if phase in (VALUE, ENDED):
        frame, depth, n = bare[1:4]
        if frame == ROOT:
            return None, depth, n
        if phase == ENDED:
            return AFTER, depth, n
        return (NEXT if frame == ARRAY else AFTER_COLON), depth, n
    if phase == ITEMS:
        return OPEN, bare[1], bare[2]
    where = OPEN if phase == MEMBERS else NEXT if phase == KEY else BEFORE_COLON
    return where, bare[1], 0
