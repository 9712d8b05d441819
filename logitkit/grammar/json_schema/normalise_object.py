"""The last steps for objects: `finish` brings one into the form of `types`, `settle_object` cuts
off what is dead.

Until `finish`, `required` and `clauses` may name members that are not declared, and `some` holds
requirements over all keys. A requirement is met by a declared member, which then is required with a
joined node, or by an undeclared one: one object for each way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from logitkit.errors import GrammarError
from logitkit.grammar import strings
from logitkit.grammar.json_schema.merge_object import undeclared
from logitkit.grammar.json_schema.normalise_nodes import Nodes
from logitkit.grammar.json_schema.types import NEVER, Node, Object
from logitkit.grammar.machine import check_time
from logitkit.grammar.strings.language import Words

Dead = Callable[[Node], bool]
Open = tuple[tuple[strings.Language, Node], ...]
Region = tuple[frozenset[int], strings.Language]
_MAX_REGIONS = 256


def declare(nodes: Nodes, obj: Object) -> Object:
    """`obj` with every name that it mentions declared; the new ones stand at the end."""
    if not obj.required and not obj.clauses:
        return obj
    clause_names = {name: None for clause in obj.clauses for name, _ in sorted(clause)}
    required = sorted(obj.required, key=nodes.rank)
    return _with_names(nodes, obj, [*required, *clause_names])


def _with_names(nodes: Nodes, obj: Object, names: Iterable[str]) -> Object:
    """`obj` with `names` declared, those that it lacks at the end."""
    declared = {name for name, _ in obj.properties}
    new = dict.fromkeys(name for name in names if name not in declared)
    if not new:
        return obj
    added = tuple((name, undeclared(nodes, obj, name)) for name in new)
    return replace(obj, properties=obj.properties + added)


def finish(nodes: Nodes, obj: Object) -> list[Object]:
    """`obj` with every name that it mentions declared, and its requirements spread out."""
    obj = declare(nodes, obj)
    if not obj.some:
        return [obj]
    words = [word for language, _ in obj.some if isinstance(language, Words) for word in language]
    plain = _with_names(nodes, replace(obj, some=()), words)
    results: list[tuple[Object, Open]] = [(plain, ())]
    for language, node in obj.some:
        results = [
            way
            for one, open_ones in results
            for way in _ways(nodes, one, open_ones, language, node)
        ]
    finished = []
    for one, open_ones in results:
        if not open_ones:
            finished.append(one)
            continue
        entries = _entries(nodes, one, *_single(nodes, one, open_ones))
        if entries:
            finished.append(replace(one, some=entries))
    return finished


def least_declared(obj: Object) -> int:
    """So many declared members at least every value has: required ones, one of each clause."""
    counted = set(obj.required)
    least = len(counted)
    for clause in obj.clauses:
        names = {name for name, _ in clause}
        if all(present for _, present in clause) and counted.isdisjoint(names):
            counted |= names
            least += 1
    return least


def _single(nodes: Nodes, obj: Object, open_ones: Open) -> tuple[strings.Language, Node]:
    """The requirement that one undeclared member must meet; GrammarError if it takes two."""
    if len(open_ones) > 1 and (
        obj.max_properties is None or obj.max_properties > least_declared(obj) + 1
    ):
        raise GrammarError(
            "`not` (or `oneOf`, `if`) needs two members that are not declared, and duplicates "
            "among those cannot be excluded; simplify the schema"
        )
    language, node = open_ones[0]
    for other, joined in open_ones[1:]:
        language, node = language & other, nodes.conj((node, joined))
    return language, node


def _ways(
    nodes: Nodes, obj: Object, open_ones: Open, language: strings.Language, node: Node
) -> list[tuple[Object, Open]]:
    """The objects in which a declared member, or else an undeclared one, meets a requirement."""
    ways: list[tuple[Object, Open]] = []
    for position, (name, own) in enumerate(obj.properties):
        if not strings.matches(language, name):
            continue
        joined = nodes.conj((own, node))
        if joined == NEVER:
            continue
        properties = list(obj.properties)
        properties[position] = (name, joined)
        met = replace(obj, properties=tuple(properties), required=obj.required | {name})
        ways.append((met, open_ones))
        if joined == own and name in obj.required:
            return [(obj, open_ones)]
    if not isinstance(language, Words) and (obj.additional != NEVER or obj.patterns):
        ways.append((obj, (*open_ones, (language, node))))
    return ways


def _entries(
    nodes: Nodes, obj: Object, language: strings.Language, node: Node
) -> tuple[tuple[strings.Language, Node], ...]:
    """The undeclared keys that can meet the requirement, by the node that they then have."""
    entries = []
    for matched, keys in regions(nodes, obj):
        joined = nodes.conj((other_node(nodes, obj, matched), node))
        within = keys if language == strings.ANY else keys & language
        if joined != NEVER and not strings.is_empty(within):
            entries.append((within, joined))
    return tuple(entries)


def other_node(nodes: Nodes, obj: Object, matched: frozenset[int]) -> Node:
    """The node of an undeclared key that matches exactly these patterns."""
    if not matched:
        return obj.additional
    return nodes.conj(obj.patterns[index][1] for index in sorted(matched))


def regions(nodes: Nodes, obj: Object) -> list[Region]:
    """The sets of patterns that an undeclared key can match together, with those keys."""
    keys = obj.names if obj.names is not None else strings.ANY
    if obj.properties:
        declared = strings.literals([name for name, _ in obj.properties])
        keys = ~declared if keys == strings.ANY else keys - declared
    if not obj.patterns:
        return [(frozenset(), keys)] if obj.names is None or not strings.is_empty(keys) else []
    try:
        return _regions(keys, obj)
    except GrammarError as error:
        raise GrammarError(f"`patternProperties`: {error}", error.where) from None


def _regions(keys: strings.Language, obj: Object) -> list[Region]:
    found: list[Region] = [(frozenset(), keys)]
    for index, (language, _) in enumerate(obj.patterns):
        split: list[Region] = []
        for matched, within in found:
            check_time()
            inside = language if within == strings.ANY else within & language
            if strings.is_empty(inside):
                split.append((matched, within))
                continue
            split.append((matched | {index}, inside))
            outside = within - language
            if not strings.is_empty(outside):
                split.append((matched, outside))
        found = split
        if len(found) > _MAX_REGIONS:
            raise GrammarError(
                f"the patterns overlap in more than {_MAX_REGIONS} ways; use fewer patterns"
            )
    return found


def object_needs(nodes: Nodes, obj: Object) -> list[Node]:
    """The nodes that decide whether `obj` has any value."""
    named = {name for clause in obj.clauses for name, _ in clause}
    counted = obj.min_properties > len(obj.required)
    needs = [
        node
        for name, node in obj.properties
        if node != NEVER and (counted or name in obj.required or name in named)
    ]
    needs += [node for _, node in obj.some]
    if counted and not obj.some:
        needs += [obj.additional, *(node for _, node in obj.patterns)]
        if obj.patterns:
            needs += [other_node(nodes, obj, matched) for matched, _ in regions(nodes, obj)]
    return needs


def settle_object(nodes: Nodes, obj: Object, dead: Dead) -> Object | None:
    """`obj` where the nodes that are `dead` have no value; None if nothing is left.

    What clauses force is moved into `required` and `properties`; clauses that hold are dropped.
    """
    members = {name: NEVER if dead(node) else node for name, node in obj.properties}
    required = set(obj.required)
    clauses = _propagated(obj.clauses, members, required)
    if clauses is None or any(members[name] == NEVER for name in required):
        return None
    some = tuple((words, node) for words, node in obj.some if not dead(node))
    if obj.some and not some:
        return None
    if obj.max_properties is not None:
        if obj.max_properties < len(required) + bool(some):
            return None
        if clauses and not _satisfiable(clauses, obj.max_properties - len(required) - bool(some)):
            return None
    elif clauses and not _satisfiable(clauses, len(members)):
        return None
    patterns = tuple((words, NEVER if dead(node) else node) for words, node in obj.patterns)
    settled = replace(
        obj,
        properties=tuple(members.items()),
        required=frozenset(required),
        patterns=patterns,
        additional=NEVER if dead(obj.additional) else obj.additional,
        clauses=clauses,
        some=some,
    )
    if obj.min_properties > len(required):
        possible = sum(node != NEVER for node in members.values())
        if obj.min_properties > possible and not has_others(nodes, settled, dead):
            return None
    return settled


def has_others(nodes: Nodes, obj: Object, dead: Dead) -> bool:
    """Whether an undeclared key is possible."""
    if not obj.patterns and (obj.names is None or obj.additional == NEVER):
        return obj.additional != NEVER
    if obj.additional == NEVER and all(node == NEVER for _, node in obj.patterns):
        return False
    return any(not dead(other_node(nodes, obj, matched)) for matched, _ in regions(nodes, obj))


Clauses = tuple[frozenset[tuple[str, bool]], ...]


def _propagated(clauses: Clauses, members: dict[str, Node], required: set[str]) -> Clauses | None:
    """The clauses that are still open after what they force is done; None if one fails."""
    pending = list(clauses)
    while True:
        left = []
        for clause in pending:
            literals = set()
            for name, present in clause:
                if (name in required) if present else (members[name] == NEVER):
                    break
                if not ((members[name] == NEVER) if present else (name in required)):
                    literals.add((name, present))
            else:
                left.append(frozenset(literals))
        forced = [next(iter(clause)) for clause in left if len(clause) == 1]
        if any(not clause for clause in left):
            return None
        if not forced:
            return tuple(dict.fromkeys(left))
        for name, present in forced:
            if present:
                required.add(name)
            else:
                members[name] = NEVER
        pending = left


def _satisfiable(clauses: Clauses, limit: int) -> bool:
    """Whether the clauses hold with at most `limit` of the members that they leave open."""
    if limit < 0:
        return False
    if all(any(not present for _, present in clause) for clause in clauses):
        return True  # with none of them
    if not clauses:
        return True
    clause = min(clauses, key=len)
    chosen: list[tuple[str, bool]] = []
    for name, present in sorted(clause):
        chosen.append((name, present))
        # This literal holds and those before it do not, so that no assignment is tried twice.
        facts = {
            one: there == (index == len(chosen) - 1) for index, (one, there) in enumerate(chosen)
        }
        left = _given(clauses, facts)
        if left is not None and _satisfiable(left, limit - sum(facts.values())):
            return True
    return False


def _given(clauses: Clauses, facts: dict[str, bool]) -> Clauses | None:
    left = []
    for clause in clauses:
        if any(facts.get(name) == present for name, present in clause):
            continue
        open_ones = frozenset(one for one in clause if one[0] not in facts)
        if not open_ones:
            return None
        left.append(open_ones)
    return tuple(left)
