"""How the kernel is launched: tuning, scratch, the grid, and which phases share a launch.

Everything follows from shapes and from which arguments are given, never from data: no host sync,
static allocations, so that a call can be captured in a CUDA graph.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from triton_ops import kernel, phases

COLUMNS = (
    "allowed_row", "bias_offsets", "bias_ids", "bias_values", "bad_words_offsets",
    "bad_words_starts", "bad_words_tokens", "repetition_penalty", "presence_penalty",
    "frequency_penalty", "no_repeat_ngram_size", "min_new_tokens", "ending_offsets", "ending_ids",
    "mask_row", "temperature", "dynatemp_range", "dynatemp_exponent", "top_n_sigma", "top_k",
    "top_p", "min_p", "epsilon_cutoff", "eta_cutoff", "greedy",
)  # fmt: skip
MASKS = ("allowed_mask", "mask_rows")
BANNING = (*MASKS, "bad_words_offsets", "no_repeat_ngram_size", "min_new_tokens")
PATCHING = ("bias_offsets", "repetition_penalty", "presence_penalty", "frequency_penalty")
FILTERING = ("top_k", "top_p", "min_p", "epsilon_cutoff", "eta_cutoff")
KNOWN = frozenset((*COLUMNS, *MASKS))
PHASES = range(kernel.PREPARE.value, kernel.REDUCE.value + 1)


class Tuning(NamedTuple):
    """What fits a vendor's chips without spilling registers."""

    block: int  # logits per tile
    capacity: int  # entries that a row's buffer holds
    piece: int  # logits per tile where several sums are kept
    warps: int
    one_launch: bool  # whether many rows run all phases in one launch


TUNINGS = {
    "cuda": Tuning(block=4096, capacity=2048, piece=1024, warps=16, one_launch=True),
    # all phases together keep too many masks alive for the scalar registers
    "hip": Tuning(block=1024, capacity=512, piece=256, warps=4, one_launch=False),
}


class Launch(NamedTuple):
    """The phases first to last in one launch, each row shared by `splits` programs."""

    first: int
    last: int
    splits: int


class Shape(NamedTuple):
    """What the kernel is compiled for, and the scratch of one row."""

    bans: bool
    patches: bool
    filters: bool
    tiles: int  # a power of two above the number of tiles of a row
    patch_room: int
    words: int  # int32 scratch
    longs: int  # int64 scratch
    scale: float  # of fixed-point masses


def shape_of(tuning: Tuning, width: int, given: frozenset[str], history: int, biases: int) -> Shape:
    """The shape of a call: from the width of the logits, the arguments' names and two sizes."""
    patches = not given.isdisjoint(PATCHING)
    bans = patches or not given.isdisjoint(BANNING)
    tiles = max(16, power_of_two(-(-width // tuning.block) + 1))
    room = min(width, history + biases) if patches else 0
    masks = -(-width // 32)
    words = 2 * tuning.capacity + tiles * (tuning.block // phases.GROUP.value)
    words += (masks if bans else 0) + (2 * masks + 4 * room if patches else 0)
    longs = phases.PACKS.value + tiles + kernel.MOST_SPLITS.value + phases.TOTALS.value
    scale = 2.0 ** min(44, 62 - (width - 1).bit_length())
    filters = not given.isdisjoint(FILTERING)
    return Shape(bans, patches, filters, tiles, room, aligned(words), aligned(longs), scale)


def plan_launches(
    tuning: Tuning, rows: int, width: int, filters: bool, sampling: bool, processors: int,
    details: bool = False,
) -> list[Launch]:  # fmt: skip
    """One launch where the rows fill the machine; otherwise one per phase, with the rows split.

    The log-probabilities of `details` are always found in a last launch.
    """
    splits = splits_of(tuning, rows, width, processors)
    last = kernel.REDUCE.value if sampling else kernel.DRAW.value
    if splits == 1 and tuning.one_launch:
        return [Launch(0, last - 1, 1), Launch(last, last, 1)] if details else [Launch(0, last, 1)]
    whole = (kernel.PREPARE.value, kernel.SCALE_ROW.value, kernel.FINISH.value)
    launches = [
        Launch(phase, phase, 1 if phase in whole else splits)
        for phase in PHASES
        if phase <= last and (filters or phase != kernel.GATHER.value)
    ]
    if tuning.one_launch:  # the first two work on whole rows and need not be apart
        launches[:2] = [Launch(kernel.PREPARE.value, kernel.SCALE_ROW.value, 1)]
    return launches


def splits_of(tuning: Tuning, rows: int, width: int, processors: int) -> int:
    """How many programs share a row: a power of two, as many as fill the machine once."""
    wanted = min(processors // max(1, rows), -(-width // tuning.block), kernel.MOST_SPLITS.value)
    return 1 if wanted < 2 else 1 << (wanted.bit_length() - 1)


def run(
    logits: Tensor,
    slot: Tensor,
    position: Tensor,
    tokens: Tensor,
    prompt_length: Tensor,
    seed: Tensor,
    arguments: dict[str, Tensor],
    out: Tensor | None,
    details: bool = False,
) -> tuple[Tensor, ...]:
    """Run all phases; the tokens (unspecified if `out` is given) and the status of every row.

    With `details` also the tokens' log-probabilities and the numbers of survivors.
    """
    assert arguments.keys() <= KNOWN, f"not fused: {sorted(arguments.keys() - KNOWN)}"
    rows, width = logits.shape
    device = logits.device
    drawn = torch.empty(rows, dtype=torch.int64, device=device)
    status = torch.empty(rows, dtype=torch.int64, device=device)
    logprobs = torch.empty(rows, dtype=torch.float32, device=device) if details else None
    survivors = torch.empty(rows, dtype=torch.int64, device=device) if details else None
    results = [found for found in (drawn, status, logprobs, survivors) if found is not None]
    if rows == 0:
        return tuple(results)
    tuning = TUNINGS["hip" if torch.version.hip else "cuda"]
    biases = arguments["bias_ids"].shape[0] if "bias_ids" in arguments else 0
    shape = shape_of(tuning, width, frozenset(arguments), tokens.shape[1], biases)
    scratch = torch.empty(rows, shape.words, dtype=torch.int32, device=device)
    state = torch.empty(rows, shape.longs, dtype=torch.int64, device=device)
    masks = {name: arguments.get(name) for name in MASKS}
    words = [0 if mask is None else mask.shape[1] for mask in masks.values()]
    slot, position = slot.contiguous(), position.contiguous()
    columns = {name: arguments.get(name) for name in COLUMNS}
    if "greedy" in arguments:
        columns["greedy"] = arguments["greedy"].view(torch.int8)
    launches = plan_launches(
        tuning, rows, width, shape.filters, out is None, processors_of(device), details
    )
    # Triton launches on the current device
    with torch.cuda.device(device if device.type == "cuda" else -1):
        for step in launches:
            grid = (rows, 1 if step.first == kernel.REDUCE.value else step.splits)
            kernel.run_rows[grid](
                logits=logits, row_stride=logits.stride(0), column_stride=logits.stride(1),
                width=width, slot=slot, position=position, tokens=tokens,
                tokens_stride=tokens.stride(0), prompt_length=prompt_length, seed=seed,
                **masks, allowed_words=words[0], mask_words=words[1], **columns,
                scratch=scratch, scratch_stride=shape.words, state=state, state_stride=shape.longs,
                patch_room=shape.patch_room, splits=step.splits, out=out, drawn=drawn,
                statuses=status, logprobs=logprobs, survivors=survivors,
                **constants(tuning, shape, step), **options(tuning),
            )  # fmt: skip
    return tuple(results)


def constants(tuning: Tuning, shape: Shape, step: Launch) -> dict[str, Any]:
    """The compile-time arguments of one launch."""
    return {
        "BANS": shape.bans, "PATCHES": shape.patches, "FILTERS": shape.filters,
        "FIRST": step.first, "LAST": step.last, "BLOCK": tuning.block, "CAP": tuning.capacity,
        "PIECE": tuning.piece, "TILES": shape.tiles, "SCALE": shape.scale,
    }  # fmt: skip


def options(tuning: Tuning) -> dict[str, Any]:
    """The compiler's options. Fused multiply-adds would round otherwise than the reference."""
    found: dict[str, Any] = {"num_warps": tuning.warps, "num_stages": 1, "enable_fp_fusion": False}
    if tuning.one_launch:
        found["maxnreg"] = 65536 // (32 * tuning.warps)
    return found


@cache
def processors_of(device: torch.device) -> int:
    """The number of multiprocessors; on the CPU, where kernels are interpreted, one."""
    if device.type == "cpu":
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def power_of_two(number: int) -> int:
    """The least power of two that is not less."""
    return 1 << max(0, number - 1).bit_length()


def aligned(number: int) -> int:
    """The next multiple of 16, so that rows of scratch stay aligned."""
    return -(-number // 16) * 16
