"""Regexes with bounded repeats: compile time and warm mask + accept, beside the compiled peers.

    python -m tests.benchmarks.regex_masks [--vocabulary tekken] [--engine logitkit xgrammar ...]

Every engine in one process, one thread; the median of passes over the same text.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from logitkit.grammar import Regex, Vocabulary, compile_grammar
from logitkit.grammar.compile import clear_cache
from tests.benchmarks.maskbench_engines import (
    installed,
    llguidance_tokenizer,
    xgrammar_compiler,
)
from tests.grammar.vocabularies import NAMES, tokenizer

JSON = r'\{"name": "[^"\\\n]{1,30}", "age": (0|[1-9][0-9]{0,2}), "ok": (true|false)\}'
CASES = {
    "email": (r"[a-z0-9._]{1,64}@[a-z0-9.]{1,100}", "jane.doe_1984.name@mail.example.org"),
    "[^\\n]{1,256}": (r"[^\n]{1,256}", "The quick brown fox jumps over the lazy dog. " * 5),
    "[^\\n]{1,100000}": (r"[^\n]{1,100000}", "The quick brown fox jumps over the lazy dog. " * 5),
    "JSON of three fields": (JSON, '{"name": "Jane Doe of the North", "age": 42, "ok": true}'),
}  # fmt: skip
Step = tuple[Callable[[], Any], Callable[[int], Any]]  # mask, accept
Compile = Callable[[str], Callable[[], Step]]


def logitkit(vocabulary: Vocabulary) -> Compile:
    alive = compile_grammar(Regex("a"), vocabulary)

    def compile_(pattern: str) -> Callable[[], Step]:
        clear_cache()
        assert alive.vocabulary is vocabulary
        grammar = compile_grammar(Regex(pattern), vocabulary)

        def start() -> Step:
            matcher = grammar.matcher()
            return matcher.mask, matcher.accept

        return start

    return compile_


def xgrammar(vocabulary: Vocabulary) -> Compile:
    import torch
    import xgrammar as xgr

    compiler = xgrammar_compiler(vocabulary)
    bitmask = torch.full(xgr.get_bitmask_shape(1, vocabulary.size), -1, dtype=torch.int32)

    def compile_(pattern: str) -> Callable[[], Step]:
        compiled = compiler.compile_regex(pattern)

        def start() -> Step:
            matcher = xgr.GrammarMatcher(compiled)
            return partial(matcher.fill_next_token_bitmask, bitmask, 0), matcher.accept_token

        return start

    return compile_


def llguidance(vocabulary: Vocabulary) -> Compile:
    from llguidance import LLMatcher

    tokenizer = llguidance_tokenizer(vocabulary)
    words = np.zeros((vocabulary.size + 31) // 32, np.int32)

    def compile_(pattern: str) -> Callable[[], Step]:
        first = LLMatcher(tokenizer, LLMatcher.grammar_from_regex(pattern), log_level=0)
        if first.is_error():
            raise ValueError(first.get_error())

        def start() -> Step:
            matcher = first.deep_copy()
            fill = partial(matcher.unsafe_compute_mask_ptr, words.ctypes.data, words.nbytes)
            return fill, matcher.consume_token

        return start

    return compile_


ENGINES: dict[str, Callable[[Vocabulary], Compile]] = {
    "logitkit": logitkit, "xgrammar": xgrammar, "llguidance": llguidance,
}  # fmt: skip


def measured(compile_: Compile, pattern: str, tokens: list[int]) -> tuple[float, float]:
    """Milliseconds to compile, microseconds per warm mask + accept; medians."""
    compiling, steps = [], []
    for _ in range(5):
        begin = time.perf_counter()
        start = compile_(pattern)
        compiling.append(1e3 * (time.perf_counter() - begin))
    for turn in range(30):
        mask, accept = start()
        begin = time.perf_counter()
        for token in tokens:
            mask()
            accept(token)
        if turn >= 5:
            steps.append(1e6 * (time.perf_counter() - begin) / len(tokens))
    return statistics.median(compiling), statistics.median(steps)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--vocabulary", default="tekken", choices=NAMES)
    options.add_argument("--engine", nargs="*", default=[n for n in ENGINES if installed(n)])
    given = options.parse_args()
    vocabulary = Vocabulary.from_tokenizer(tokenizer(given.vocabulary))
    engines = {name: ENGINES[name](vocabulary) for name in given.engine}
    table = Table(title=f"{given.vocabulary}: compile, then warm mask + accept")
    for column in ("regex", *engines):
        table.add_column(column)
    for name, (pattern, text) in CASES.items():
        tokens = vocabulary.tokenize(text.encode())
        cells = []
        for compile_ in engines.values():
            compiling, step = measured(compile_, pattern, tokens)
            cells.append(f"{compiling:.2f} ms, {step:.2f} us")
        table.add_row(name.replace("[", r"\["), *cells)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
