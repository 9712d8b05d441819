"""Compiles every shipped configuration ahead of time, without a GPU: `python -m triton_ops.report`.

For sm_80, sm_90 and gfx942 it prints registers, shared memory and the bytes that a row moves on
paper against the floor (each logit read once), and exits with 1 if anything fails to compile,
spills registers, uses local memory or more shared memory than the chip has.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from triton_ops import fsm, kernel
from triton_ops.launch import (
    COLUMNS,
    KNOWN,
    MASKS,
    TUNINGS,
    Launch,
    Shape,
    Tuning,
    constants,
    options,
    plan_launches,
    shape_of,
)

WIDTH, HISTORY = 128_256, 4096
DRAW_ALONE: frozenset[str] = frozenset()
SCALED = frozenset({"temperature", "dynatemp_range", "dynatemp_exponent"})
CHAIN = SCALED | {
    "repetition_penalty", "presence_penalty", "frequency_penalty", "top_k", "top_p", "min_p",
}  # fmt: skip
INTEGERS = {
    "width", "allowed_words", "mask_words", "scratch_stride", "state_stride", "patch_room",
    "splits",
}  # fmt: skip
INT64_COLUMNS = {
    "allowed_row", "bias_offsets", "bias_ids", "bad_words_offsets", "bad_words_starts",
    "bad_words_tokens", "no_repeat_ngram_size", "min_new_tokens", "ending_offsets", "ending_ids",
    "top_k", "slot", "position", "tokens", "prompt_length", "seed", "state", "drawn", "statuses",
}  # fmt: skip
TYPES = {
    "allowed_mask": "*i32", "mask_rows": "*i32", "mask_row": "*i32", "bias_values": "*fp32",
    "greedy": "*i8", "scratch": "*i32", "out": "*fp32",
}  # fmt: skip
FSM_TYPES = {
    "state": "*i64", "tokens": "*i64", "offsets": "*i64", "data": "*u8", "transitions": "*i32",
    "moved": "*i64", "size": "i32", "vocabulary": "i32", "BLOCK": "constexpr",
}  # fmt: skip


class Target(NamedTuple):
    """A chip: its name, what Triton calls it, and the shared memory of a block in bytes."""

    name: str
    chip: GPUTarget
    shared: int

    @property
    def tuning(self) -> Tuning:
        return TUNINGS[self.chip.backend]


TARGETS = (
    Target("sm_80", GPUTarget("cuda", 80, 32), 163 * 1024),
    Target("sm_90", GPUTarget("cuda", 90, 32), 227 * 1024),
    Target("gfx942", GPUTarget("hip", "gfx942", 64), 64 * 1024),
)


class Configuration(NamedTuple):
    """One kernel that is shipped: which arguments are given, the logits' dtype, and the phases."""

    name: str
    given: frozenset[str]
    dtype: str
    sampling: bool
    launch: Launch


class Usage(NamedTuple):
    """What a compiled kernel takes; `spills` counts spilled registers and local memory accesses."""

    registers: int
    shared: int
    spills: int
    local: int


def configurations(tuning: Tuning) -> Iterator[Configuration]:
    """What is shipped for a tuning: a dozen at most."""
    last = kernel.REDUCE.value
    if tuning.one_launch:
        yield Configuration("draw alone", DRAW_ALONE, "fp32", True, Launch(0, last, 1))
        yield Configuration("temperature, draw", SCALED, "bf16", True, Launch(0, last, 1))
        yield Configuration("default chain", CHAIN, "fp32", True, Launch(0, last, 1))
        yield Configuration("default chain", CHAIN, "bf16", True, Launch(0, last, 1))
        yield Configuration("everything", KNOWN, "fp32", True, Launch(0, last, 1))
        yield Configuration("everything", KNOWN, "fp32", False, Launch(0, last - 1, 1))
    else:
        draw = kernel.DRAW.value
        yield Configuration("everything", KNOWN, "fp32", False, Launch(draw, draw, 1))
        for phase in (kernel.GATHER.value, kernel.FINISH.value, draw):
            yield Configuration("default chain", CHAIN, "bf16", True, Launch(phase, phase, 1))
    for launch in plan_launches(tuning, 8, WIDTH, True, True, 64):
        yield Configuration("everything", KNOWN, "fp32", True, launch)


def source_of(tuning: Tuning, configuration: Configuration) -> ASTSource:
    """The kernel as it is called in that configuration."""
    shape = shape_of(tuning, WIDTH, configuration.given, HISTORY, 0)
    fixed = constants(tuning, shape, configuration.launch) | {"column_stride": 1}
    for name in (*COLUMNS, *MASKS):
        if name not in configuration.given:
            fixed[name] = None
    if configuration.sampling:
        fixed["out"] = None
    names = kernel.run_rows.arg_names
    signature = {n: "constexpr" if n in fixed else type_of(n, configuration.dtype) for n in names}
    aligned = [
        place
        for place, name in enumerate(names)
        if signature[name].startswith("*")
        or name in ("row_stride", "scratch_stride", "state_stride")
    ]
    attributes = {(place,): [["tt.divisibility", 16]] for place in aligned}
    return ASTSource(fn=kernel.run_rows, signature=signature, constexprs=fixed, attrs=attributes)


def type_of(name: str, dtype: str) -> str:
    """Triton's word for an argument's type."""
    if name == "logits":
        return f"*{dtype}"
    if name in INTEGERS:
        return "i32"
    if name in ("row_stride", "tokens_stride"):
        return "i64"
    if name in INT64_COLUMNS:
        return "*i64"
    return TYPES.get(name, "*fp64")


def compile_for(target: Target, configuration: Configuration) -> Usage:
    """What the kernel takes in that configuration."""
    return usage_of(target, source_of(target.tuning, configuration), options(target.tuning))


def compile_fsm(target: Target) -> Usage:
    """What the kernel of `advance_fsm` takes."""
    source = ASTSource(
        fn=fsm.fold_tokens, signature=FSM_TYPES, constexprs={"BLOCK": fsm.BLOCK}, attrs={}
    )
    return usage_of(target, source, fsm.OPTIONS)


def usage_of(target: Target, source: ASTSource, how: dict[str, Any]) -> Usage:
    """Compile and look what the kernel takes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Triton 3.9 announces another default of an option we set
        compiled = triton.compile(source, target=target.chip, options=how)
    shared = int(compiled.metadata.shared)
    if target.chip.backend == "hip":
        return amd_usage(compiled.asm["amdgcn"], shared)
    return cuda_usage(compiled.asm["cubin"], shared)


def cuda_usage(cubin: bytes, shared: int) -> Usage:
    """Read a cubin with the wheel's cuobjdump."""
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()

        def ask(option: str) -> str:
            done = subprocess.run(
                [tool, option, file.name], capture_output=True, text=True, check=True
            )
            return done.stdout

        found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", ask("-res-usage"))
        assert found is not None
        registers, stack, local = map(int, found.groups())
        accesses = len(re.findall(r"\b(?:LDL|STL)\b", ask("-sass")))
    return Usage(registers, shared, accesses, stack + local)


def amd_usage(text: str, shared: int) -> Usage:
    """Read the metadata of the amdgcn text."""

    def number(name: str) -> int:
        found = re.search(rf"\.{name}:\s+(\d+)", text)
        assert found is not None, name
        return int(found[1])

    spills = number("vgpr_spill_count") + number("sgpr_spill_count")
    return Usage(number("vgpr_count"), shared, spills, number("private_segment_fixed_size"))


def bytes_per_row(tuning: Tuning, configuration: Configuration) -> tuple[int, int]:
    """What all phases of a typical row move, and the floor: each logit read once.

    Typical: the survivors fit the buffer. STATS and GATHER read the row; without filters, or to
    write the result, DRAW reads it once more.
    """
    size = 4 if configuration.dtype == "fp32" else 2
    shape: Shape = shape_of(tuning, WIDTH, configuration.given, HISTORY, 0)
    masks = 4 * -(-WIDTH // 32)
    reads = 1 + shape.filters + (not shape.filters or not configuration.sampling)
    moved = reads * (WIDTH * size + masks * shape.bans)
    moved += masks * (2 * shape.bans + 4 * shape.patches)  # clearing, marking, ranking
    moved += masks * 3 * ("mask_rows" in configuration.given)  # read, and joined to the bans
    moved += HISTORY * 8 * 2 * shape.patches + shape.patch_room * 4 * 8
    moved += shape.tiles * (tuning.block // 128) * 8 + 8 * tuning.capacity * shape.filters
    if not configuration.sampling:
        moved += WIDTH * 4
    return moved, WIDTH * size


def problems_of(target: Target, usage: Usage) -> list[str]:
    """What is wrong with a compiled kernel."""
    found = []
    if usage.spills or usage.local:
        found.append(f"{usage.spills} spills, {usage.local} bytes of local memory")
    if usage.shared > target.shared:
        found.append(f"{usage.shared} bytes of shared memory, the chip has {target.shared}")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 if any configuration fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=[t.name for t in TARGETS], help="only this chip")
    chosen = parser.parse_args(arguments).target
    failures = 0
    print(f"triton {triton.__version__}; rows of {WIDTH} logits, history of {HISTORY}")
    heading = "chip    configuration      dtype phases  regs  shared  bytes/row  / floor"
    print(heading)
    for target in TARGETS:
        if chosen not in (None, target.name):
            continue
        for configuration in configurations(target.tuning):
            first, last = configuration.launch[:2]
            label = f"{configuration.name:18} {configuration.dtype:5} {first}-{last}"
            label += " draw " if configuration.sampling else " write"
            moved, floor = bytes_per_row(target.tuning, configuration)
            ask = partial(compile_for, target, configuration)
            failures += not report_one(target, label, ask, f"{moved:10} {moved / floor:8.2f}")
        failures += not report_one(target, "advance_fsm", partial(compile_fsm, target))
    print(f"{failures} failed" if failures else "no spills, no local memory")
    return 1 if failures else 0


def report_one(target: Target, name: str, ask: Callable[[], Usage], cost: str = "") -> bool:
    """Compile and print one line; whether all is well."""
    label = f"{target.name:7} {name:34}"
    try:
        usage = ask()
    except Exception as error:  # any failure is a line of the report
        print(f"{label} FAILED {type(error).__name__}: {str(error).splitlines()[-1]}", flush=True)
        return False
    problems = problems_of(target, usage)
    print(f"{label} {usage.registers:4} {usage.shared:7} {cost}  {'; '.join(problems)}", flush=True)
    return not problems


if __name__ == "__main__":
    sys.exit(main())
