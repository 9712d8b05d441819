"""The last step for arrays: what is dead is cut off, and what cannot be enforced is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from logitkit.errors import GrammarError
from logitkit.grammar.json_schema.merge import shorten
from logitkit.grammar.json_schema.normalise_nodes import Nodes
from logitkit.grammar.json_schema.types import NEVER, Array, Contains, Node

Dead = Callable[[Node], bool]


def array_needs(nodes: Nodes, array: Array) -> list[Node]:
    """The nodes that decide whether `array` has any value."""
    needs = list(array.prefix[: array.min_items])
    if array.min_items > len(array.prefix):
        needs.append(array.rest)
    for contains in array.contains:
        places = {*array.prefix, array.rest}
        needs += places
        needs += [nodes.conj((place, contains.node)) for place in places]
        if contains.rest is not None:
            needs += [nodes.conj((place, contains.rest)) for place in places]
    return needs


def settle_array(nodes: Nodes, array: Array, dead: Dead) -> Array | None:
    """`array` where the nodes that are `dead` have no value; None if nothing is left."""
    prefix = tuple(NEVER if dead(node) else node for node in array.prefix)
    rest = NEVER if dead(array.rest) else array.rest
    if (prefix, rest) != (array.prefix, array.rest):
        array = replace(array, prefix=prefix, rest=rest)
    array = shorten(array)
    if array.max_items is not None and array.max_items < array.min_items:
        return None
    kept: list[Contains] = []
    for contains in array.contains:
        if not _feasible(nodes, array, contains, dead):
            return None
        if contains.minimum == 0 and dead(contains.node):
            continue
        kept.append(contains)
    if len(kept) < len(array.contains):
        array = replace(array, contains=tuple(kept))
    return array


def _feasible(nodes: Nodes, array: Array, contains: Contains, dead: Dead) -> bool:
    """Whether some array has between `minimum` and `maximum` items that fit.

    An item that can only fit is forced to; the shortest array with enough items that may fit has
    the fewest of those.
    """
    if contains.maximum is not None and contains.maximum < contains.minimum:
        return False
    may, forced = [], []
    for node in (*array.prefix, array.rest):
        may.append(not dead(nodes.conj((node, contains.node))))
        forced.append(contains.rest is not None and dead(nodes.conj((node, contains.rest))))
    size = len(array.prefix)
    short = contains.minimum - sum(may[:size])  # what the items behind the prefix must add
    if short > 0 and not may[size]:
        return False
    length = max(array.min_items, size + short if short > 0 else 0)
    if short <= 0:
        found = 0
        for position in range(size):
            if found >= contains.minimum:
                break
            found += may[position]
            length = max(length, position + 1)
    if array.max_items is not None and length > array.max_items:
        return False
    must = sum(forced[: min(length, size)]) + max(0, length - size) * forced[size]
    return contains.maximum is None or must <= contains.maximum


def refuse_contains(array: Array) -> None:
    """Raise GrammarError where two or more `contains` may compete for the same items."""
    if len(array.contains) > 1 and (
        array.max_items is not None
        or array.prefix
        or any(contains.maximum is not None for contains in array.contains)
    ):
        raise GrammarError(
            "`contains` together with another one (or `not` of `items`) cannot be enforced in an "
            "array with `maxItems`, `prefixItems` or `maxContains`; leave one of them out, or "
            'pass lenient={"contains"}'
        )
