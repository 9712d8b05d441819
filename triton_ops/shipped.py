"""What is shipped: chips, the configurations of the kernels, and what they move on paper.

Below `report`, which compiles them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from triton_ops import kernel
from triton_ops.launch import (
    COLUMNS,
    KNOWN,
    MASKS,
    TUNINGS,
    Launch,
    Shape,
    Tuning,
    constants,
    plan_launches,
    shape_of,
    splits_of,
)

WIDTH, HISTORY = 128_256, 4096
BATCHES = (1, 8, 32, 64, 128, 256)
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
    "survivors",
}  # fmt: skip
TYPES = {
    "allowed_mask": "*i32", "mask_rows": "*i32", "mask_row": "*i32", "bias_values": "*fp32",
    "greedy": "*i8", "scratch": "*i32", "out": "*fp32", "logprobs": "*fp32",
}  # fmt: skip


class Target(NamedTuple):
    """A chip: its name, what Triton calls it, the shared memory of a block in bytes, and how many
    multiprocessors one has (A100, H100 and H200, MI300X)."""

    name: str
    chip: GPUTarget
    shared: int
    processors: int

    @property
    def tuning(self) -> Tuning:
        return TUNINGS[self.chip.backend]


TARGETS = (
    Target("sm_80", GPUTarget("cuda", 80, 32), 163 * 1024, 108),
    Target("sm_90", GPUTarget("cuda", 90, 32), 227 * 1024, 132),
    Target("gfx942", GPUTarget("hip", "gfx942", 64), 64 * 1024, 304),
)


class Configuration(NamedTuple):
    """One kernel that is shipped: which arguments are given, the logits' dtype, and the phases."""

    name: str
    given: frozenset[str]
    dtype: str
    sampling: bool
    launch: Launch
    details: bool = False


def configurations(tuning: Tuning) -> Iterator[Configuration]:
    """What is shipped for a tuning, few enough to compile them all."""
    finish, draw, last = kernel.FINISH.value, kernel.DRAW.value, kernel.REDUCE.value
    if tuning.one_launch:
        yield Configuration("temperature, draw", SCALED, "bf16", True, Launch(0, last, 1))
        yield Configuration("default chain", CHAIN, "fp32", True, Launch(0, last, 1))
        yield Configuration("default chain", CHAIN, "bf16", True, Launch(0, last, 1))
        yield Configuration("everything", KNOWN, "fp32", True, Launch(0, last, 1))
        yield Configuration("everything", KNOWN, "fp32", False, Launch(0, draw, 1))
        yield Configuration("default chain", CHAIN, "bf16", True, Launch(0, draw, 1), True)
        yield Configuration("everything", KNOWN, "fp32", True, Launch(0, draw, 1), True)
    else:
        yield Configuration("everything", KNOWN, "fp32", False, Launch(draw, draw, 1))
        for phase in (kernel.GATHER.value, finish, draw):
            yield Configuration("default chain", CHAIN, "bf16", True, Launch(phase, phase, 1))
    for launch in plan_launches(tuning, 8, WIDTH, True, True, 64):
        yield Configuration("everything", KNOWN, "fp32", True, launch)
        if launch.first >= finish:  # the phases before do the same with details
            yield Configuration("everything", KNOWN, "fp32", True, launch, True)


def source_of(tuning: Tuning, configuration: Configuration) -> ASTSource:
    """The kernel as it is called in that configuration."""
    shape = shape_of(tuning, WIDTH, configuration.given, HISTORY, 0)
    fixed = constants(tuning, shape, configuration.launch) | {"column_stride": 1}
    for name in (*COLUMNS, *MASKS):
        if name not in configuration.given:
            fixed[name] = None
    if configuration.sampling:
        fixed["out"] = None
    if not configuration.details:
        fixed |= {"logprobs": None, "survivors": None}
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


class Step(NamedTuple):
    """A decode step of the default chain on paper: its launches and what they move, in bytes."""

    batch: int
    draws: int
    commits: int
    splits: int
    moved: int
    floor: int


def steps(target: Target, batches: Sequence[int], details: bool = False) -> Iterator[Step]:
    """One step per batch: `sample_tokens` as it is launched, and one launch of `commit_tokens`.

    A commit moves the head, reads a token and a count, and writes the token.
    """
    tuning, processors = target.tuning, target.processors
    whole = Launch(0, kernel.REDUCE.value, 1)
    row = Configuration("default chain", CHAIN, "bf16", True, whole, details)
    moved, floor = bytes_per_row(tuning, row)
    for batch in batches:
        draws = plan_launches(tuning, batch, WIDTH, True, True, processors, details)
        splits = splits_of(tuning, batch, WIDTH, processors)
        yield Step(batch, len(draws), 1, splits, batch * (moved + 5 * 8), batch * floor)
