"""Compiles every shipped configuration ahead of time, without a GPU: `python -m triton_ops.report`.

For sm_80, sm_90 and gfx942 it prints registers, shared memory and the bytes that a row moves on
paper against the floor (each logit read once), then the launches and bytes of a decode step by
batch. It exits with 1 if anything fails to compile, spills registers, uses local memory or more
shared memory than the chip has.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import triton
from triton.compiler import ASTSource

from triton_ops import commit, fsm
from triton_ops.launch import options
from triton_ops.shipped import (
    BATCHES,
    HISTORY,
    TARGETS,
    WIDTH,
    Configuration,
    Target,
    bytes_per_row,
    configurations,
    source_of,
    steps,
)

FSM_TYPES = {
    "state": "*i64", "tokens": "*i64", "offsets": "*i64", "data": "*u8", "transitions": "*i32",
    "moved": "*i64", "size": "i32", "vocabulary": "i32", "BLOCK": "constexpr",
}  # fmt: skip
COMMIT_TYPES = {
    "tokens": "*i64", "tokens_stride": "i64", "token_stride": "i64", "head": "*i64",
    "head_stride": "i64", "new": "*i64", "new_stride": "i64", "step_stride": "i64",
    "num_tokens": "*i64", "counts_stride": "i64", "size": "i32", "n": "i32", "BLOCK": "constexpr",
}  # fmt: skip


class Usage(NamedTuple):
    """What a compiled kernel takes; `spills` counts spilled registers and local memory accesses."""

    registers: int
    shared: int
    spills: int
    local: int


def compile_for(target: Target, configuration: Configuration) -> Usage:
    """What the kernel takes in that configuration."""
    return usage_of(target, source_of(target.tuning, configuration), options(target.tuning))


def compile_small(target: Target, module: Any, kernel: Any, types: dict[str, str]) -> Usage:
    """What a kernel takes that comes in one configuration."""
    source = ASTSource(fn=kernel, signature=types, constexprs={"BLOCK": module.BLOCK}, attrs={})
    return usage_of(target, source, module.OPTIONS)


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
            label = label.replace("draw ", "tell ") if configuration.details else label
            moved, floor = bytes_per_row(target.tuning, configuration)
            ask = partial(compile_for, target, configuration)
            failures += not report_one(target, label, ask, f"{moved:10} {moved / floor:8.2f}")
        for name, *small in (
            ("advance_fsm", fsm, fsm.fold_tokens, FSM_TYPES),
            ("commit_tokens", commit, commit.append_tokens, COMMIT_TYPES),
        ):
            failures += not report_one(target, name, partial(compile_small, target, *small))
    print("decode steps of the default chain in bf16; launches: draw and commit")
    print("chip    batch  launches  parts/row  MB/step  / floor")
    for target in TARGETS:
        for step in steps(target, BATCHES) if chosen in (None, target.name) else ():
            print(
                f"{target.name:7} {step.batch:5} {step.draws:4} + {step.commits} {step.splits:10} "
                f"{step.moved / 1e6:8.2f} {step.moved / step.floor:8.2f}"
            )
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
