"""`compile_grammar`: a spec and a vocabulary to a grammar; results are kept while there is room."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from logitkit.errors import GrammarError
from logitkit.grammar.arena import VocabularyLike
from logitkit.grammar.machine import Budget, Context, Machine
from logitkit.grammar.matcher import CompiledGrammar
from logitkit.grammar.spec import Choice, Ebnf, JsonSchema, Regex, Spec, StructuralTag

# Front ends are loaded when one is asked for.
BUILDERS: dict[type[Spec], tuple[str, str]] = {
    Regex: ("logitkit.grammar.strings", "build_regex"),
    JsonSchema: ("logitkit.grammar.json_schema", "build"),
    Ebnf: ("logitkit.grammar.ebnf", "build"),
    Choice: ("logitkit.grammar.choice", "build"),
    StructuralTag: ("logitkit.grammar.structural_tag", "build"),
}
CACHE_BYTES = 256 * 2**20
SECONDS_OF_A_CHECK = 0.2
COUNTED_EVERY = 16  # compilations between two looks at the bytes

Key = tuple[Any, ...]

_lock = threading.Lock()
_cache: OrderedDict[Key, CompiledGrammar] = OrderedDict()
_running: dict[Key, Future[CompiledGrammar]] = {}
_since_counted = 0


def compile_grammar(
    spec: Spec, vocabulary: VocabularyLike, budget: Budget | None = None
) -> CompiledGrammar:
    """The grammar of a spec over a vocabulary; only its start is explored.

    The same question gets the same object while it is kept. Threads may call this at once. Raises
    GrammarError: wrong, not enforceable, over budget, or a language without any text; ValueError
    for an argument of another type.
    """
    _check(spec, vocabulary, budget)
    budget = dataclasses.replace(budget or Budget())
    limits = (getattr(budget, field.name) for field in dataclasses.fields(budget) if field.init)
    key = (spec.identity, vocabulary.identity, *limits)
    with _lock:
        found = _cache.get(key)
        if found is not None:
            _cache.move_to_end(key)
            return found
        running = _running.get(key)
        if running is None:
            mine = _running[key] = Future()
    if running is not None:
        return running.result()
    try:
        grammar = _compile(spec, vocabulary, budget)
    except BaseException as error:
        with _lock:
            del _running[key]
        mine.set_exception(error)
        raise
    with _lock:
        del _running[key]
        _keep(key, grammar)
    mine.set_result(grammar)
    return grammar


def compile_grammars(
    specs: Sequence[Spec], vocabulary: VocabularyLike, budget: Budget | None = None
) -> list[CompiledGrammar]:
    """`compile_grammar` for several specs, in threads; raises the first one's error."""
    if not specs:
        return []
    with ThreadPoolExecutor(min(len(specs), os.cpu_count() or 1)) as pool:
        return list(pool.map(lambda spec: compile_grammar(spec, vocabulary, budget), specs))


@functools.lru_cache(256)
def check_schema(spec: JsonSchema) -> None:
    """Raise the GrammarError that `compile_grammar` would raise for the keywords of a schema.

    Looks for at most `SECONDS_OF_A_CHECK`; what takes longer is left to `compile_grammar`.
    """
    from logitkit.grammar.json_schema.normalise import normalise  # loaded when one is asked for

    budget, began = Budget(seconds=SECONDS_OF_A_CHECK), time.thread_time()
    try:
        with budget.running():
            normalise(spec, budget)
    except GrammarError:
        if time.thread_time() - began < SECONDS_OF_A_CHECK:
            raise


def clear_cache() -> None:
    """Forget the kept grammars; those in use live on."""
    with _lock:
        _cache.clear()


def _check(spec: Any, vocabulary: Any, budget: Any) -> None:
    """Raise ValueError for arguments that are of another type than `compile_grammar` takes."""
    if type(spec) not in BUILDERS:
        names = ", ".join(f"lk.{kind.__name__}" for kind in BUILDERS)
        given = f", for example lk.Regex({spec!r})" if isinstance(spec, str) else ""
        raise GrammarError(
            f"`spec` is of the type {type(spec).__name__}; give one of {names}{given}"
        )
    if not all(hasattr(vocabulary, name) for name in ("identity", "offsets", "alphabet")):
        raise ValueError(
            f"`vocabulary` is of the type {type(vocabulary).__name__}; give an lk.Vocabulary: "
            "lk.Vocabulary.from_tokenizer(tokenizer)"
        )
    if budget is not None and not isinstance(budget, Budget):
        raise ValueError(
            f"`budget` is {budget!r}; give an lk.Budget, for example lk.Budget(seconds=10), or None"
        )


def _compile(spec: Spec, vocabulary: VocabularyLike, budget: Budget) -> CompiledGrammar:
    module, name = BUILDERS[type(spec)]
    build = getattr(importlib.import_module(module), name)
    with budget.running():
        machine: Machine = build(spec, Context(vocabulary.horizon, vocabulary.alphabet, budget))
        grammar = CompiledGrammar(machine, vocabulary, budget, spec)
    if grammar.is_empty:
        raise GrammarError(
            f"{type(spec).__name__}: no text at all matches that the vocabulary can spell"
        )
    if grammar.is_blank:
        raise GrammarError(
            f"{type(spec).__name__}: only the empty text matches; allow another text, or ask for "
            "no grammar"
        )
    return grammar


def _keep(key: Key, grammar: CompiledGrammar) -> None:
    """Put a grammar into the cache, and now and then drop those used longest ago."""
    global _since_counted
    _cache[key] = grammar
    _since_counted += 1
    if _since_counted < COUNTED_EVERY:
        return
    _since_counted = 0
    held = sum(grammar.nbytes for grammar in _cache.values())
    while held > CACHE_BYTES and len(_cache) > 1:
        _, dropped = _cache.popitem(last=False)
        held -= dropped.nbytes
