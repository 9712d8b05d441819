"""MaskBench: what engines make of real schemas and documents, and what a token costs them.

    python -m tests.benchmarks.maskbench FILE [--engine logitkit llguidance ...] [--limit N]

FILE holds a schema a line: {"id", "schema", "tests": [{"valid", "data"}]}, perhaps as .xz. For
every document, `json.dumps(data, ensure_ascii=False)` is cut by the real tokenizer; for each token
the engine computes the mask, the token's bit is checked, the token is accepted; at the end eos must
be allowed. A schema passes if exactly its valid documents go through.

Each engine runs in a process of its own, single-threaded, and is given up on a schema after
`--seconds`. *Time to first mask* is compiling plus the first mask. Then all documents run twice:
*cold* is a step of the first time after a prefix that this grammar has not seen yet, *warm* is the
second time, *first pass* is what MaskBench counts: cold steps and repeats as they come. On a busy
machine `--cpu-time` leaves out the time of others, but adds about 1 us to a step.
"""

from __future__ import annotations

import argparse
import gc
import json
import lzma
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from logitkit.grammar.vocabulary import Vocabulary
from tests.benchmarks.maskbench_engines import ENGINES, Engine, Start, installed
from tests.benchmarks.maskbench_report import Result, refusals, tables, wrongs
from tests.grammar.vocabularies import NAMES, tokenizer

# What an engine compiles or loads at its first use of strings, numbers, recursion is not counted.
WARM_UP = {
    "properties": {
        "at": {"type": "string", "format": "date-time"},
        "name": {"type": "string", "maxLength": 300},
        "code": {"type": "string", "pattern": "^[a-z]+-[0-9]{2}$"},
        "size": {"type": "number", "minimum": 1},
        "parts": {"type": "array", "items": {"$ref": "#"}},
    },
    "required": ["at"],
    "type": "object",
}
WARM_UP_DOCUMENT = {
    "at": "2026-01-01T00:00:00Z",
    "name": "a longer name, with \u00e9 and \u4e2d in it",
    "code": "ab-12",
    "size": 2.5,
    "parts": [{"at": "2026-01-01T00:00:00Z", "other": [1, None, {"a": True}]}],
}
DEFAULT_ENGINES = [name for name in ENGINES if name != "logitkit_warm"]
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS")


@dataclass(frozen=True)
class Document:
    """A test instance: `text(n)` is what its first n tokens spell."""

    valid: bool
    tokens: list[int]
    text: Callable[[int], str]


def read(path: Path, limit: int | None) -> list[dict[str, Any]]:
    """The schemas of a JSONL file, the first `limit` of them."""
    data = path.read_bytes()
    text = lzma.decompress(data) if path.suffix == ".xz" else data
    return [json.loads(line) for line in text.splitlines()[:limit]]


Clock = Callable[[], int]
Seen = set[tuple[int, int]]


def step_through(
    start: Start, document: Document, seen: Seen | None, out: Result, clock: Clock
) -> int | None:
    """Run one document; returns None if it was accepted, else how many tokens went through.

    Times go to `out.warm` where `seen` is None, else to `first_pass` and, at prefixes that are not
    in `seen` yet, to `cold`.
    """
    run = start()
    tokens, prefix = document.tokens, hash(())
    for i, token in enumerate(tokens):
        t0 = clock()
        mask = run.mask()
        t1 = clock()
        allowed = int(run.words(mask)[token >> 5]) >> (token & 31) & 1
        took = t1 - t0
        if allowed:
            t0 = clock()
            run.accept(token)
            took += clock() - t0
        if seen is None:
            out.warm.append(took)
        else:
            out.first_pass.append(took)
            if (i, prefix) not in seen:
                seen.add((i, prefix))
                out.cold.append(took)
        if not allowed:
            return i
        prefix = hash((prefix, token))
    return None if run.ends(run.words(run.mask())) else len(tokens)


def judge(
    engine: Engine, schema: Any, documents: list[Document], out: Result, clock: Clock
) -> None:
    """Fill in what `engine` does with a schema and its documents."""
    before = clock()
    try:
        start = engine(schema)
        start().mask()
    except Exception as error:
        out.outcome, out.reason = "refused", f"{type(error).__name__}: {error}"
        return
    out.first_mask = clock() - before
    seen: Seen = {(0, hash(()))}
    try:
        for number, document in enumerate(documents):
            stopped = step_through(start, document, seen, out, clock)
            if document.valid and stopped is not None:
                out.false_rejects.append((number, document.text(stopped + 1)[-200:]))
            elif not document.valid and stopped is None:
                out.false_accepts.append(number)
        for document in documents:
            step_through(start, document, None, out, clock)
    except Exception as error:
        out.outcome, out.reason = "failed", f"{type(error).__name__}: {error}"
        return
    out.outcome = "wrong" if out.false_accepts or out.false_rejects else "passed"


def documents(tests: list[dict[str, Any]], vocabulary: Vocabulary) -> list[Document]:
    """The instances of a schema, as tokens; ValueError where the vocabulary lacks a byte."""

    def document(test: dict[str, Any]) -> Document:
        text = json.dumps(test["data"], ensure_ascii=False).encode("utf-8", "surrogatepass")
        tokens = vocabulary.tokenize(text)

        def spelled(count: int) -> str:
            return vocabulary.spell(tokens[:count]).decode("utf-8", "replace")

        return Document(test["valid"], tokens, spelled)

    return [document(test) for test in tests]


def peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def work(pipe: Connection, name: str, options: argparse.Namespace) -> None:
    """The process of one engine: gets numbers of schemas, answers with results."""
    clock = time.process_time_ns if options.cpu_time else time.perf_counter_ns
    vocabulary = Vocabulary.from_tokenizer(tokenizer(options.vocabulary))
    schemas = read(options.file, options.limit)
    engine = ENGINES[name](vocabulary)
    warm_up = documents([{"valid": True, "data": WARM_UP_DOCUMENT}], vocabulary)
    judge(engine, WARM_UP, warm_up, Result("", "passed"), clock)
    gc.collect()
    gc.freeze()  # the vocabulary and the schemas are not the engine's to look through
    at_start = peak_mb()
    pipe.send(None)
    while (number := pipe.recv()) is not None:
        line = schemas[number]
        result = Result(str(line["id"]), "passed")
        try:
            ready = documents(line["tests"], vocabulary)
        except ValueError as error:
            result.outcome, result.reason = "failed", f"vocabulary {options.vocabulary}: {error}"
        else:
            judge(engine, line["schema"], ready, result, clock)
        result.peak_mb = peak_mb() - at_start
        pipe.send(result)


class Worker:
    """An engine in a process that can be ended when it takes too long."""

    def __init__(self, *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, *arguments), daemon=True)
        self.process.start()
        theirs.close()
        self.pipe.recv()  # ready

    def ask(self, number: int, seconds: float) -> Result | str:
        """The result for a schema, or why there is none; then the worker is gone."""
        self.pipe.send(number)
        try:
            if self.pipe.poll(seconds):
                answer: Result = self.pipe.recv()
                return answer
            reason = f"more than {seconds:g} s"
        except EOFError:
            reason = "the process died"
        self.close()
        return reason

    def close(self) -> None:
        self.process.kill()
        self.process.join()


def run_engine(name: str, options: argparse.Namespace, ids: list[str]) -> list[Result]:
    """All results of one engine."""
    from rich.progress import track

    worker, results = Worker(name, options), []
    for number in track(range(len(ids)), description=f"{name:>10}"):
        answer = worker.ask(number, options.seconds)
        if isinstance(answer, str):
            answer, worker = Result(ids[number], "timeout", answer), Worker(name, options)
        results.append(answer)
    worker.close()
    return results


def main() -> None:
    """Run the benchmark and print what it found."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("file", type=Path)
    parser.add_argument("--engine", nargs="+", choices=ENGINES, default=DEFAULT_ENGINES)
    parser.add_argument("--limit", type=int, help="the first schemas only")
    parser.add_argument("--vocabulary", choices=NAMES, default="smollm2")
    parser.add_argument("--seconds", type=float, default=60, help="for one schema")
    parser.add_argument("--cpu-time", action="store_true", help="the time of this process only")
    parser.add_argument("--refusals", action="store_true", help="list refusals by keyword")
    parser.add_argument("--wrong", action="store_true", help="list false accepts and rejects")
    parser.add_argument("--json", type=Path, help="write every result to this file")
    options = parser.parse_args()
    os.environ.update(dict.fromkeys(THREADS, "1"))

    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    ids = [str(line["id"]) for line in read(options.file, options.limit)]
    found: dict[str, list[Result]] = {}
    for name in options.engine:
        if installed(name):
            found[name] = run_engine(name, options, ids)
        else:
            console.print(f"{name} is not installed: pip install {name}")
    console.print(f"{options.file.name}, {len(ids)} schemas, vocabulary {options.vocabulary}")
    for table in tables(found):
        console.print(table)
    for name, results in found.items():
        for wanted, lines in ((options.refusals, refusals), (options.wrong, wrongs)):
            if wanted:
                console.print(f"{name}: {lines.__name__}", *lines(results), sep="\n", markup=False)
    if options.json:
        options.json.write_text(
            json.dumps({name: [asdict(r) for r in results] for name, results in found.items()})
        )


if __name__ == "__main__":
    main()
