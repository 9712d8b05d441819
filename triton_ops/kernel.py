"""The kernel: one row, or a part of one, through the phases from logits to a token.

A launch runs the phases FIRST to LAST. Many rows: one program each and all phases in one launch.
Few rows: every phase is a launch, and the phases that read the whole row (STATS, GATHER, DRAW)
share it between several programs. It is the same text either way, so the result is the same.
"""

# Triton types and compiles this text: mypy does not apply.
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from triton_ops.edits import Edits, Grammar, Marks, Seen
from triton_ops.filters import Filters
from triton_ops.numbers import key_of, packed_id
from triton_ops.phases import (
    DIVISOR,
    DONE,
    GROUP,
    LOW,
    NO_PACK,
    NUM_PATCHES,
    OK,
    PACKS,
    SIGMA,
    describe,
    draw,
    finish,
    gather,
    gather_floor,
    positive,
    prepare,
    scale,
    seal,
    stats,
    top_of,
    with_scalars,
    write,
)
from triton_ops.tiles import Row, all_tiles, own_tiles

PREPARE, SCALE_ROW, STATS, GATHER, FINISH, DRAW, REDUCE = (tl.constexpr(i) for i in range(7))
MOST_SPLITS = tl.constexpr(64)


@triton.jit
def marks_of(bits, width, room, BANS: tl.constexpr, PATCHES: tl.constexpr):
    """The row's scratch for edits: words of bits, then four lists of patches."""
    words = tl.cdiv(width, 32)
    lists = bits + 3 * words
    floats: tl.constexpr = tl.pointer_type(tl.float32)
    return Marks(
        bits if BANS else None,
        bits + words if PATCHES else None,
        bits + 2 * words if PATCHES else None,
        lists if PATCHES else None,
        (lists + room).to(floats, bitcast=True) if PATCHES else None,
        lists + 2 * room if PATCHES else None,
        (lists + 3 * room).to(floats, bitcast=True) if PATCHES else None,
    )


@triton.jit(
    do_not_specialize=["patch_room", "allowed_words", "mask_words", "splits", "tokens_stride"]
)
def run_rows(
    logits, row_stride, column_stride, width, slot, position, tokens, tokens_stride, prompt_length,
    seed, allowed_mask, allowed_words, allowed_row, bias_offsets, bias_ids, bias_values,
    bad_words_offsets, bad_words_starts, bad_words_tokens, repetition_penalty, presence_penalty,
    frequency_penalty, no_repeat_ngram_size, min_new_tokens, ending_offsets, ending_ids,
    mask_rows, mask_words, mask_row, temperature, dynatemp_range, dynatemp_exponent, top_n_sigma,
    top_k, top_p, min_p, epsilon_cutoff, eta_cutoff, greedy, scratch, scratch_stride, state,
    state_stride, patch_room, splits, out, drawn, statuses, logprobs, survivors,
    BANS: tl.constexpr, PATCHES: tl.constexpr, FILTERS: tl.constexpr, FIRST: tl.constexpr,
    LAST: tl.constexpr, BLOCK: tl.constexpr, CAP: tl.constexpr, PIECE: tl.constexpr,
    TILES: tl.constexpr, SCALE: tl.constexpr,
):  # fmt: skip
    """Phases FIRST to LAST of row `program_id(0)`, part `program_id(1)` of `splits`."""
    r, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    request, place = tl.load(slot + r), tl.load(position + r)
    state += r * state_stride
    packs, parts = state + PACKS, state + PACKS + TILES
    keys = scratch + r * scratch_stride
    key_ids, groups = keys + CAP, keys + 2 * CAP
    marks = marks_of(groups + TILES * (BLOCK // GROUP), width, patch_room, BANS, PATCHES)
    totals = parts + MOST_SPLITS if logprobs is not None else None
    filtering = tl.full([], 1, tl.int1)
    if greedy is not None:
        filtering = tl.load(greedy + request) == 0
    given = tl.load(temperature + request) if temperature is not None else None
    row = Row(
        logits + r * row_stride, column_stride, width, marks.banned, marks.patch_ids,
        marks.patch_values, 0, given,
    )  # fmt: skip
    if FIRST == PREPARE:
        edits = Edits(
            allowed_mask, allowed_words, allowed_row, bias_offsets, bias_ids, bias_values,
            bad_words_offsets, bad_words_starts, bad_words_tokens, repetition_penalty,
            presence_penalty, frequency_penalty, no_repeat_ngram_size, min_new_tokens,
            ending_offsets, ending_ids,
        )  # fmt: skip
        seen = Seen(
            request, tokens + request * tokens_stride, place, tl.load(prompt_length + request)
        )
        prepare(row, edits, seen, marks, state, totals, PIECE)
        tl.debug_barrier()
    if FIRST <= SCALE_ROW and LAST >= SCALE_ROW:
        place_of_mask = mask_row + r if mask_rows is not None else None
        seal(row, Grammar(mask_rows, mask_words, place_of_mask), marks, state, PIECE)
        spread = tl.load(dynatemp_range + request) if temperature is not None else None
        exponent = tl.load(dynatemp_exponent + request) if temperature is not None else None
        sigma = tl.load(top_n_sigma + request) if top_n_sigma is not None else None
        if top_n_sigma is not None:
            sigma = tl.where(filtering, sigma, 0.0)
        scale(row, state, given, spread, exponent, sigma, PIECE)
        tl.debug_barrier()
    num_patches = tl.load(state + NUM_PATCHES).to(tl.int32)
    divisor = tl.load(state + DIVISOR).to(tl.int32).to(tl.float32, bitcast=True)
    row = with_scalars(row, num_patches, positive(row, divisor))
    own = own_tiles(row, BLOCK)
    share = tl.cdiv(own, splits)
    begin, end = part * share, tl.minimum((part + 1) * share, own)
    closes = (begin < own) & (end == own)  # the part with the last tile has the patches too
    if FIRST <= STATS and LAST >= STATS:
        stats(row, packs, groups, begin, end, closes, BLOCK)
        tl.debug_barrier()
    if LAST >= GATHER:
        if closes:
            end = all_tiles(row, BLOCK)
        status, top, best_id = top_of(row, packs, BLOCK, TILES)
        is_greedy = filtering == 0
        only = tl.full([], -1, tl.int32)
        low = tl.load(state + SIGMA)
        if temperature is not None:
            is_greedy = is_greedy | (given == 0.0)
            if greedy is None:
                only = tl.where(given == 0.0, best_id.to(tl.int32), -1)
            low = tl.where(divisor > 0.0, low, key_of(top).to(tl.int64))
        active = (status == OK) & (is_greedy == 0)
        filters = Filters(request, top_k, top_p, min_p, epsilon_cutoff, eta_cutoff)
        if FILTERS and FIRST <= GATHER:
            if active:
                floor, by_mass = gather_floor(
                    row, filters, top, low, groups, BLOCK, CAP, TILES * (BLOCK // GROUP)
                )
                if part == 0:
                    tl.store(state + LOW, floor)
                gather(
                    row, top, low, floor, by_mass, packs, state, keys, key_ids, begin, end,
                    BLOCK, CAP, SCALE,
                )  # fmt: skip
            tl.debug_barrier()
        if FIRST <= FINISH and LAST >= FINISH:
            finish(
                row, filters, status, top, low, best_id, active, is_greedy, state, keys, key_ids,
                tl.load(seed + request), place.to(tl.int32), r, out, drawn, statuses, totals,
                FILTERS, CAP, PIECE, SCALE,
            )  # fmt: skip
            tl.debug_barrier()
        if FIRST <= DRAW and LAST >= DRAW:
            low = tl.load(state + LOW)
            if out is not None:
                if status == OK:
                    write(row, out + r * width, marks.touched, low, only, begin, end, BLOCK)
            elif tl.load(state + DONE) == 0:
                key = tl.load(seed + request)
                best = draw(
                    row, top, low, key, place.to(tl.int32), packs, totals, begin, end, BLOCK,
                    SCALE,
                )  # fmt: skip
                if LAST == REDUCE:
                    tl.store(drawn + r, packed_id(best))
                else:
                    tl.store(parts + part, best)
        if FIRST == REDUCE:
            if tl.load(state + DONE) == 0:
                lane = tl.arange(0, MOST_SPLITS)
                found = tl.load(parts + lane, mask=lane < splits, other=NO_PACK)
                tl.store(drawn + r, packed_id(tl.max(found)))
            if totals is not None:
                tl.debug_barrier()
                describe(row, marks, totals, r, drawn, statuses, logprobs, survivors, SCALE)
