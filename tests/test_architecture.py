"""The shape of the package: who imports whom, sorted names, tables that must not drift apart."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import logitkit
from logitkit import DEFAULT_STAGES, SamplingParams
from logitkit.ops import FILTERS, ORDER, numba_ops, reference
from logitkit.ops.numba_kernel import Arguments
from logitkit.params.fields import FIELDS
from logitkit.stage import BuiltinStage

ROOT = Path(logitkit.__file__).parent

# Lowest first; a module may import what stands below it, or beside it (without a circle).
LAYERS = (
    {"errors", "randomness", "draft.source"},
    {"grammar"},
    {"params"},
    {"rows"},
    {"ops"},
    {"stage"},
    {"stages"},
    {"batch", "plan", "sampler", "verify", "chains"},
    {"causal_lm", "stops"},
    {"draft"},
    {"pipeline"},
    {"generation"},
    {"demo"},
    {"cli"},
)
TRANSFORMERS = {"stage", "causal_lm", "draft", "pipeline", "generation", "demo"}
NOT_STAGES = {
    "max_new_tokens", "stop", "stop_regex", "ignore_eos",  # the loop's
    "n", "sampling_seed", "logprobs", "logprob_mode",
    "bad_words",  # `resolve` turns it into bad_words_ids
    "extra",
}  # fmt: skip


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def is_module(package: Path, name: str) -> bool:
    return (package / f"{name}.py").exists() or (package / name / "__init__.py").exists()


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, inside functions and under TYPE_CHECKING too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide who imports whom"
            assert node.module is not None
            package = ROOT.parent.joinpath(*node.module.split("."))
            inside = {a.name for a in node.names if is_module(package, a.name)}
            if not inside or len(inside) < len(node.names):
                yield node.module
            yield from (f"{node.module}.{name}" for name in inside)


def part(name: str) -> str:
    """The name in LAYERS of a module of logitkit: its package, but for the low part of `draft`."""
    parts = name.split(".")
    low = parts[1] == "draft" and (len(parts) == 2 or parts[2] == "source")
    return "draft.source" if low else parts[1]


def part_of(path: Path) -> str:
    return "__init__" if path == ROOT / "__init__.py" else part(name_of(path))


def own_parts(path: Path) -> set[str]:
    """The parts of logitkit that a file imports."""
    names = {name for name in imports(path) if name.startswith("logitkit.")}
    names = {name for name in names if is_module(ROOT, name.split(".")[1])}
    return {part(name) for name in names}


LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_downward_only(path: Path) -> None:
    own = part_of(path)
    if own == "__init__":
        return
    assert own in LEVEL, f"{own} has no place in LAYERS yet"
    for other in own_parts(path):
        assert LEVEL[other] <= LEVEL[own], f"{own} imports {other}, which lies above it"
    if any(name.split(".")[0] == "transformers" for name in imports(path)):
        assert own in TRANSFORMERS, f"{own} imports transformers"


def name_of(path: Path) -> str:
    parts = ("logitkit", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


def test_no_imports_run_in_a_circle() -> None:
    names = {name_of(path) for path in modules()} - {"logitkit"}  # it only re-exports
    below = {name_of(path): set(imports(path)) & (names - {name_of(path)}) for path in modules()}
    while below:
        lowest = {name for name, others in below.items() if not others & below.keys()}
        assert lowest, f"a circle among {sorted(below)}"
        below = {name: others for name, others in below.items() if name not in lowest}


def test_stages_see_only_what_lies_below_and_never_each_other() -> None:
    for path in (ROOT / "stages").glob("[a-z]*.py"):
        inside = {name for name in imports(path) if name.startswith("logitkit")}
        allowed = {"errors", "stage", "rows", "ops", "params", "randomness", "grammar"}
        assert {name.split(".")[1] for name in inside} <= allowed, path.name


def test_triton_ops_imports_nothing_of_logitkit() -> None:
    for path in (ROOT.parent / "triton_ops").rglob("*.py"):
        assert not [name for name in imports(path) if name.split(".")[0] == "logitkit"]


def test_every_list_of_public_names_is_sorted_and_true() -> None:
    found = [logitkit]
    for info in pkgutil.walk_packages(logitkit.__path__, "logitkit."):
        if not info.name.endswith("__main__"):
            found.append(importlib.import_module(info.name))
    checked = 0
    for module in found:
        names = getattr(module, "__all__", None)
        if names is not None:
            constants = sorted(name for name in names if name.isupper())
            classes = sorted(name for name in names if name[0].isupper() and not name.isupper())
            others = sorted(name for name in names if not name[0].isupper())
            assert list(names) == constants + classes + others, module.__name__
            assert all(hasattr(module, name) for name in names)
            checked += 1
    assert checked >= 3


def test_backends_have_equal_names_and_signatures() -> None:
    for name in ("process_logits", "sample_tokens", "commit_tokens", "advance_fsm"):
        ours = inspect.signature(getattr(reference, name))
        assert inspect.signature(getattr(numba_ops, name)) == ours
    for ops in (reference, numba_ops):
        assert isinstance(ops.BACKEND, str)
        assert set(ORDER) >= ops.FUSED


def test_order_lists_the_kernels_arguments() -> None:
    owned = [name for names in ORDER.values() for name in names]
    assert Arguments._fields == ("greedy", *owned)
    assert len(set(owned)) == len(owned)


def test_the_default_chain_is_the_kernels_order() -> None:
    assert [stage.op for stage in DEFAULT_STAGES] == list(ORDER)
    assert {stage.op for stage in DEFAULT_STAGES if stage.is_filter} == FILTERS
    assert set(reference.RULES) == set(ORDER)
    assert set(logitkit.stages.__all__) == {"DEFAULT_STAGES"} | {
        type(stage).__name__ for stage in DEFAULT_STAGES
    }


def test_every_field_is_served_by_a_stage_or_is_none_of_theirs() -> None:
    fields = {field.name for field in dataclasses.fields(SamplingParams)}
    served = {field.name for stage in DEFAULT_STAGES for field in dataclasses.fields(stage)}
    assert served <= fields
    assert served & NOT_STAGES == set()
    assert served | NOT_STAGES == fields
    assert set(FIELDS) == fields


def test_built_in_stages_default_to_the_neutral_values_of_the_fields() -> None:
    neutral = SamplingParams()
    for stage in DEFAULT_STAGES:
        assert isinstance(stage, BuiltinStage)
        assert stage.is_neutral(neutral)
        for field in dataclasses.fields(stage):
            if field.name != "dry_sequence_breakers":  # text needs a tokenizer, a stage has none
                assert getattr(stage, field.name) == getattr(neutral, field.name)


def test_every_module_says_what_it_is() -> None:
    for path in modules():
        docstring = ast.get_docstring(ast.parse(path.read_text()))
        assert docstring, path
        assert docstring.strip().endswith((".", ":", "`")) or "\n" in docstring, path
