"""The official JSON Schema test suite, and what became of every instance in it.

`official_suite.json` beside this file holds the counts of every file of the suite; a change for the
better is recorded with `python tests/grammar/test_official_suite.py`. An instance is spelled in
several ways (separators, order of members, spelling of numbers) and must be accepted in one of them
if it is valid, in none if it is not. Run byte by byte, without the engine.
"""

from __future__ import annotations

import itertools
import json
import re
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from shared_data import shared
from toy import SlowMachine

from logitkit.errors import GrammarError
from logitkit.grammar import json_schema
from logitkit.grammar.machine import Budget, Context
from logitkit.grammar.spec import JsonSchema

RATCHET = Path(__file__).with_name("official_suite.json")
DRAFTS = {
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
# "order" and "spelling": valid, and accepted with its members in another order, or with numbers
# written without exponent and `.0`.
OUTCOMES = ("pass", "order", "spelling", "false reject", "false accept", "refused")
SEPARATORS = ((", ", ": "), (",", ":"))
ORDERS = 24  # at most so many orders of the members of one instance


@cache
def suite() -> dict[str, list[dict[str, Any]]]:
    """The groups of every file, by its path below `tests/`."""
    with tarfile.open(shared("json_schema_test_suite.tar.xz")) as archive:
        return {
            member.name.removeprefix("./tests/"): json.load(archive.extractfile(member) or exit())
            for member in archive
            if member.name.startswith("./tests/") and member.name.endswith(".json")
        }


def in_draft(schema: Any, draft: str) -> Any:
    """The schema with `$schema`, which the suite leaves out where the folder says it."""
    if isinstance(schema, dict) and "$schema" not in schema:
        return {"$schema": DRAFTS[draft], **schema}
    return schema


def orders(value: Any) -> Iterator[Any]:
    """The value with the members of its objects in every order, its own first."""
    if isinstance(value, dict):
        inside = {key: list(itertools.islice(orders(item), ORDERS)) for key, item in value.items()}
        for keys in itertools.permutations(value):
            for items in itertools.product(*(inside[key] for key in keys)):
                yield dict(zip(keys, items, strict=True))
    elif isinstance(value, list):
        yield from map(
            list,
            itertools.product(*(list(itertools.islice(orders(item), ORDERS)) for item in value)),
        )
    else:
        yield value


def plain(value: Any) -> Any:
    """The value with integral floats as integers."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(Decimal(repr(value)))
    return value


def accepted(machine: SlowMachine, values: Iterable[Any]) -> bool:
    """Whether the machine accepts one of the values, with one of the separators."""
    return any(
        machine.accepts(
            json.dumps(v, ensure_ascii=False, separators=s).encode("utf-8", "surrogatepass")
        )
        for v in itertools.islice(values, ORDERS)
        for s in SEPARATORS
    )


def outcome(machine: SlowMachine, data: Any, valid: bool, draft: str) -> str:
    """One of `OUTCOMES` for an instance."""
    if not valid:
        # In draft 4, 1.0 is no integer, and 1 is another value.
        spelled = [orders(data)] if draft == "draft4" else [orders(data), orders(plain(data))]
        wrong = any(accepted(machine, values) for values in spelled)
        return "false accept" if wrong else "pass"
    if accepted(machine, [data]):
        return "pass"
    if accepted(machine, orders(data)):
        return "order"
    return "spelling" if accepted(machine, orders(plain(data))) else "false reject"


def counted(name: str) -> dict[str, int]:
    """How often each outcome comes up in a file of the suite."""
    found: Counter[str] = Counter()
    draft = name.split("/")[0]
    context = Context(16, (True,) * 256, Budget(seconds=60.0))
    for group in suite()[name]:
        try:
            machine = SlowMachine(
                json_schema.build(JsonSchema(in_draft(group["schema"], draft)), context)
            )
        except GrammarError as error:
            assert re.search(r"`[$a-zA-Z]+`|no value fits", str(error)), f"unnamed: {error}"
            found["refused"] += len(group["tests"])
            continue
        found.update(
            outcome(machine, test["data"], test["valid"], draft) for test in group["tests"]
        )
    return {kind: found[kind] for kind in OUTCOMES if found[kind]}


def required(name: str) -> bool:
    return "/optional/" not in name


RECORDED: dict[str, dict[str, int]] = json.loads(RATCHET.read_text()) if RATCHET.exists() else {}


@pytest.mark.parametrize("name", RECORDED)
def test_every_instance_comes_out_as_recorded(name: str) -> None:
    assert counted(name) == RECORDED[name], (
        "a change for the better is recorded with `python tests/grammar/test_official_suite.py`"
    )


def test_every_file_of_the_suite_is_recorded() -> None:
    assert set(RECORDED) == set(suite())


def test_no_invalid_instance_is_accepted_in_the_required_files() -> None:
    assert RECORDED and not [n for n in RECORDED if required(n) and "false accept" in RECORDED[n]]


def record() -> None:
    """Write the counts of every file of the suite."""
    lines = (f'"{name}": {json.dumps(counted(name))}' for name in sorted(suite()))
    RATCHET.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    record()
