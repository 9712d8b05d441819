"""The phases of a row: edits, statistics, gathering, filters, the draw.

What one phase tells the next stands in the row's scratch, so it does not matter whether they share
a launch. A phase may run in several programs, each with its own tiles of the row.
"""

# Triton types and compiles this text: mypy and rules of style about branches do not apply.
# mypy: ignore-errors
# ruff: noqa: SIM102

from __future__ import annotations

import triton
import triton.language as tl

from triton_ops.edits import (
    add_bias,
    ban_by_grammar,
    ban_repeats_and_endings,
    ban_words,
    clear,
    close,
    penalise,
    rank_of,
    touch,
)
from triton_ops.filters import active_k, dynamic_temperature, narrow, sigma_floor, value_for
from triton_ops.numbers import (
    LEAST_KEY,
    NOISE_REACH,
    NONE_KEY,
    key_of,
    least_key_from,
    least_noise_of,
    noise_of,
    packed,
    packed_id,
    uniform_of,
    value_of,
    weight_of,
)
from triton_ops.select import floor_of
from triton_ops.tiles import (
    Row,
    all_tiles,
    masked_tile,
    own_tiles,
    patch_tile,
    raw_tile,
    scaled,
    scaled_tile,
)

OK, EMPTY, BAD = (tl.constexpr(i) for i in range(3))
BAD_PACK = tl.constexpr(0x7FFFFFFFFFFFFFFF)
NO_PACK = tl.constexpr(-0x8000000000000000)
# places in a row's int64 scratch; behind them the packs of the tiles, then those of the parts
NUM_PATCHES, DIVISOR, SIGMA, GATHERED, WHOLE, LOW, DONE, PACKS = (tl.constexpr(i) for i in range(8))
TOP, MASS, NUMBER, TOTALS = (tl.constexpr(i) for i in range(4))  # places in `totals`
GROUP = tl.constexpr(128)  # logits per group of which STATS keeps the maximum
NO_ID = tl.constexpr(0x7FFFFFFF)


@triton.jit
def prepare(row, edits, seen, marks, state, totals, BLOCK: tl.constexpr):
    """The edits of single logits up to `seal`; clears what later phases add to."""
    total = tl.zeros([], tl.int32)
    if marks.banned is not None:
        clear(row, edits, seen, marks, BLOCK)
        tl.debug_barrier()
        if marks.touched is not None:
            total = touch(row, edits, seen, marks, BLOCK)
            add_bias(row, edits, marks, total, BLOCK)
            tl.debug_barrier()
        ban_words(row, edits, seen, marks, BLOCK)
        tl.debug_barrier()
        if marks.touched is not None:
            penalise(edits, seen, marks, total, BLOCK)
            tl.debug_barrier()
        ban_repeats_and_endings(row, edits, seen, marks, BLOCK)
    tl.store(state + NUM_PATCHES, total.to(tl.int64))
    tl.store(state + GATHERED, 0)
    tl.store(state + WHOLE, 0)
    tl.store(state + DONE, 0)
    if totals is not None:
        tl.store(totals + MASS, 0)
        tl.store(totals + NUMBER, 0)


@triton.jit
def seal(row, grammar, marks, state, BLOCK: tl.constexpr):
    """The last of the edits: what the grammar bans, and the values that the patches end with."""
    ban_by_grammar(row, grammar, marks, BLOCK)
    if marks.touched is not None:
        close(row, marks, tl.load(state + NUM_PATCHES).to(tl.int32), BLOCK)
        tl.debug_barrier()


@triton.jit
def scale(row, state, temperature, spread, exponent, sigma, BLOCK: tl.constexpr):
    """The row's divisor, and the floor of top-n-sigma."""
    total = tl.load(state + NUM_PATCHES).to(tl.int32)
    divisor = tl.full([], 1.0, tl.float32)
    if temperature is not None:
        divisor = temperature.to(tl.float32)
        if spread > 0.0 and temperature > 0.0:
            edited = with_scalars(row, total, divisor)
            dynamic = dynamic_temperature(edited, temperature, spread, exponent, BLOCK)
            divisor = dynamic.to(tl.float32)
    tl.store(state + DIVISOR, divisor.to(tl.int32, bitcast=True).to(tl.int64))
    floor = tl.full([], LEAST_KEY, tl.int64)
    if sigma is not None:
        if sigma > 0.0:
            floor = sigma_floor(with_scalars(row, total, positive(row, divisor)), sigma, BLOCK)
    tl.store(state + SIGMA, floor)


@triton.jit
def positive(row, divisor):
    """The divisor to use: 1 where the temperature is 0; None without a temperature."""
    if row.divisor is None:
        return None
    else:
        return tl.where(divisor > 0.0, divisor, 1.0)


@triton.jit
def with_scalars(row, num_patches, divisor):
    """The row with its number of patches and its divisor."""
    return Row(
        row.logits, row.column_stride, row.width, row.banned, row.patch_ids, row.patch_values,
        num_patches, divisor,
    )  # fmt: skip


@triton.jit
def stats(row, packs, groups, begin, end, with_patches, BLOCK: tl.constexpr):
    """Each tile's largest entry (before the temperature) and the maxima of its groups."""
    own = own_tiles(row, BLOCK)
    lane = tl.arange(0, BLOCK // GROUP)
    for tile in range(begin, end):
        x, ids = raw_tile(row, tile, BLOCK)
        bad = tl.max(((x != x) | (x == float("inf"))).to(tl.int32))
        key = key_of(masked_tile(row, x, ids))
        maxima = tl.max(tl.reshape(key, [BLOCK // GROUP, GROUP]), 1)
        tl.store(groups + tile * (BLOCK // GROUP) + lane, maxima)
        top = tl.max(maxima)
        pack = packed(top, tl.min(tl.where(key == top, ids, NO_ID)))
        tl.store(packs + tile, tl.where(bad > 0, BAD_PACK, pack))
    if with_patches:
        pack = tl.full([], NO_PACK, tl.int64)
        if row.patch_ids is not None:
            for tile in range(0, tl.cdiv(row.num_patches, BLOCK)):
                x, ids = patch_tile(row, tile, BLOCK)
                bad = tl.max(((x != x) | (x == float("inf"))).to(tl.int32))
                now = tl.max(packed(key_of(x), ids))
                pack = tl.where(bad > 0, BAD_PACK, tl.maximum(pack, now))
        tl.store(packs + own, pack)


@triton.jit
def top_of(row, packs, BLOCK: tl.constexpr, TILES: tl.constexpr):
    """The row's status, its largest value behind the temperature, and the lowest id that has it."""
    own = own_tiles(row, BLOCK)
    lane = tl.arange(0, TILES)
    pack = tl.max(tl.load(packs + lane, mask=lane <= own, other=NO_PACK))
    top = scaled(row, value_of((pack >> 32).to(tl.int32)))
    status = tl.where(top == -float("inf"), EMPTY, OK)
    status = tl.where((pack == BAD_PACK) | (top == float("inf")) | (top != top), BAD, status)
    return status, tl.where(status == OK, top, 0.0), packed_id(pack)


@triton.jit
def gather_floor(
    row, filters, top, low, groups, BLOCK: tl.constexpr, CAP: tl.constexpr, LANES: tl.constexpr
):
    """A floor above which few entries lie, but with luck all that can survive; and if top-p asks.

    The k-th largest of the maxima of disjoint groups is reached by k entries at least.
    """
    own = own_tiles(row, BLOCK)
    number = own * (BLOCK // GROUP)
    k = active_k(filters, row.width)
    by_mass = tl.full([], 0, tl.int1)
    rank = k
    if filters.top_p is not None:
        by_mass = (k == 0) & (value_for(filters.top_p, filters.request, 1.0) < 1.0)
        rank = tl.where(by_mass, tl.minimum(CAP // 4, number - number // 4), k)
    floor = tl.full([], NO_ID, tl.int64)
    if rank > 0:
        floor = tl.full([], LEAST_KEY, tl.int64)
        if rank <= number:
            lane = tl.arange(0, LANES)
            key = tl.load(groups + lane, mask=lane < number, other=NONE_KEY)
            ones = tl.where(lane < number, 1, 0)
            most = tl.max(key).to(tl.int64) + 1
            found = floor_of(key, ones, rank, tl.full([], NONE_KEY, tl.int64), most)
            found = key_of(scaled(row, value_of(found.to(tl.int32))))
            floor = tl.maximum(floor, found.to(tl.int64))
    elif filters.min_p is not None:
        p = value_for(filters.min_p, filters.request, 0.0)
        if p > 0.0 and only_min_p(filters):
            floor = least_key_from(top, tl.log(p)).to(tl.int64)
    return tl.maximum(floor, low), by_mass


@triton.jit
def only_min_p(filters):
    """Whether no filter behind min-p asks for masses."""
    epsilon = value_for(filters.epsilon_cutoff, filters.request, 0.0)
    eta = value_for(filters.eta_cutoff, filters.request, 0.0)
    return (epsilon <= 0.0) & (eta <= 0.0)


@triton.jit
def halves(row, begin, end, BLOCK: tl.constexpr):
    """The tiles of half the size that make up tiles of the row; halves need fewer registers."""
    own = own_tiles(row, BLOCK // 2)
    last = tl.minimum(2 * end, own)
    if end > own_tiles(row, BLOCK):  # this part has the patches too
        last = all_tiles(row, BLOCK // 2)
    return 2 * begin, last


@triton.jit
def top_of_half(row, packs, half, BLOCK: tl.constexpr):
    """The largest value, behind the temperature, of the tile that a half tile belongs to."""
    place = tl.where(half < own_tiles(row, BLOCK // 2), half // 2, own_tiles(row, BLOCK))
    return scaled(row, value_of((tl.load(packs + place) >> 32).to(tl.int32)))


@triton.jit
def gather(
    row, top, low, floor, by_mass, packs, state, keys, key_ids, begin, end,
    BLOCK: tl.constexpr, CAP: tl.constexpr, SCALE: tl.constexpr,
):  # fmt: skip
    """Append the entries at or above the floor to the row's buffer; sum the mass for top-p."""
    HALF: tl.constexpr = BLOCK // 2
    mass = tl.zeros([HALF], tl.int64)
    first, last = halves(row, begin, end, BLOCK)
    for tile in range(first, last):
        best = key_of(top_of_half(row, packs, tile, BLOCK))
        if by_mass or best >= floor:
            x, ids = scaled_tile(row, tile, HALF)
            key = key_of(x)
            if by_mass:
                mass += tl.where(key >= low, weight_of(x, top, SCALE), 0)
            if best >= floor:
                inside = key >= floor
                chosen = inside.to(tl.int32)
                start = tl.atomic_add(state + GATHERED, tl.sum(chosen).to(tl.int64), sem="relaxed")
                place = start + tl.cumsum(chosen, 0) - 1
                fits = inside & (place < CAP)
                tl.store(keys + place, key, mask=fits)
                tl.store(key_ids + place, ids, mask=fits)
    if by_mass:
        tl.atomic_add(state + WHOLE, tl.sum(mass), sem="relaxed")


@triton.jit
def draw(
    row, top, low, seed, position, packs, totals, begin, end, BLOCK: tl.constexpr,
    SCALE: tl.constexpr,
):  # fmt: skip
    """The best score of a part of the row, packed with its id.

    The two float64 logarithms are taken only in tiles where a float32 bound says that they matter.
    With `totals` every survivor is met, and their mass and number are added to the row's.
    """
    HALF: tl.constexpr = BLOCK // 2
    REACH: tl.constexpr = NOISE_REACH if totals is None else float("inf")
    best = tl.full([], NO_PACK, tl.int64)
    score = tl.full([], -float("inf"), tl.float32)
    first, last = halves(row, begin, end, BLOCK)
    if totals is not None:
        mass = tl.zeros([HALF], tl.int64)
        number = tl.zeros([], tl.int32)
    for tile in range(first, last):
        largest = top_of_half(row, packs, tile, BLOCK)
        if key_of(largest) >= low and largest + REACH >= score:
            x, ids = scaled_tile(row, tile, HALF)
            x = tl.where(key_of(x) >= low, x, -float("inf"))
            if totals is not None:
                mass += weight_of(x, top, SCALE)
                number += tl.sum((x > -float("inf")).to(tl.int32))
            v = uniform_of(seed, ids, position, 0)
            if tl.max(x - least_noise_of(v)) >= score:
                best = tl.maximum(best, scores(x, ids, v))
                score = tl.where(best > NO_PACK, value_of((best >> 32).to(tl.int32)), score)
    if totals is not None:
        tl.atomic_add(totals + MASS, tl.sum(mass), sem="relaxed")
        tl.atomic_add(totals + NUMBER, number.to(tl.int64), sem="relaxed")
    return best


@triton.jit
def scores(x, ids, v):
    """The best of logit - noise, packed with its id; -inf never wins."""
    score = tl.where(x > -float("inf"), packed(key_of(x - noise_of(v)), ids), NO_PACK)
    return tl.max(score)


@triton.jit
def write(row, out, touched, low, only, begin, end, BLOCK: tl.constexpr):
    """The survivors' logits, -inf elsewhere. `only` >= 0 is the one id that survives (greedy)."""
    own = own_tiles(row, BLOCK // 2)
    first, last = halves(row, begin, end, BLOCK)
    for tile in range(first, last):
        x, ids = scaled_tile(row, tile, BLOCK // 2)
        keep = (key_of(x) >= low) & ((only < 0) | (ids == only))
        inside = ids < row.width
        if touched is not None:  # these stand among the patches, which others may be writing now
            if tile < own:
                word = tl.load(touched + ids // 32, mask=inside, other=0)
                inside = inside & (((word >> (ids % 32)) & 1) == 0)
        tl.store(out + ids, tl.where(keep, x, -float("inf")), mask=inside)


@triton.jit
def finish(
    row, filters, status, top, low, best_id, active, is_greedy, state, keys, key_ids, seed,
    position, r, out, drawn, statuses, totals, FILTERS: tl.constexpr, CAP: tl.constexpr,
    PIECE: tl.constexpr, SCALE: tl.constexpr,
):  # fmt: skip
    """Find the final floor; if all survivors are gathered, draw among them at once."""
    done = (status != OK) | is_greedy
    token = tl.where(status == OK, best_id, -1)
    low = tl.where(is_greedy, tl.full([], LEAST_KEY, tl.int64), low)
    if FILTERS:
        if active:
            number = tl.load(state + GATHERED)
            floor = tl.load(state + LOW)
            lane = tl.arange(0, CAP)
            enough = (number <= CAP) & (number > 0)
            if enough:
                inside = lane < number
                gathered = tl.load(keys + lane, mask=inside, other=NONE_KEY)
                whole = tl.load(state + WHOLE)
                whole = tl.where(whole > 0, whole, -1)
                final, enough = narrow(
                    row, filters, top, low, whole, gathered, keys, True, CAP, PIECE, SCALE
                )
                enough = enough & (final >= floor)
                if enough:
                    low = final
                    if out is None:
                        ids = tl.load(key_ids + lane, mask=inside, other=0)
                        x = tl.where(gathered >= low, value_of(gathered), -float("inf"))
                        best = scores(x, ids, uniform_of(seed, ids, position, 0))
                        token = packed_id(best)
                        done = done | (best != NO_PACK)
                        if totals is not None:
                            if done:
                                tl.store(totals + MASS, tl.sum(weight_of(x, top, SCALE)))
                                left = tl.sum((x > -float("inf")).to(tl.int32))
                                tl.store(totals + NUMBER, left.to(tl.int64))
            if enough == 0:
                tl.debug_barrier()  # the buffer is read to the end
                nothing = tl.full([CAP], NONE_KEY, tl.int32)
                low, _ = narrow(row, filters, top, low, -1, nothing, keys, False, CAP, PIECE, SCALE)
    tl.store(state + LOW, low)
    tl.store(state + DONE, done.to(tl.int64))
    if totals is not None:
        tl.store(totals + TOP, key_of(top).to(tl.int64))
        if is_greedy:
            tl.store(totals + MASS, tl.full([], SCALE, tl.float64).to(tl.int64))
            tl.store(totals + NUMBER, 1)
    tl.store(statuses + r, status.to(tl.int64))
    if out is None:
        if done:
            tl.store(drawn + r, token)


@triton.jit
def describe(
    row, marks, totals, r, drawn, statuses, logprobs, survivors, SCALE: tl.constexpr
):  # fmt: skip
    """The drawn token's log-probability among the survivors, and how many these are.

    Always in a launch of its own: what it needs would cost the other phases registers.
    """
    logprob = tl.full([], float("nan"), tl.float32)
    number = tl.zeros([], tl.int64)
    if tl.load(statuses + r) == OK:
        top = value_of(tl.load(totals + TOP).to(tl.int32)).to(tl.float64)
        gap = value_at(row, marks, tl.load(drawn + r)).to(tl.float64) - top
        mass = tl.load(totals + MASS).to(tl.float64) / SCALE
        logprob = (gap - tl.log(mass)).to(tl.float32)
        number = tl.load(totals + NUMBER)
    tl.store(logprobs + r, logprob)
    tl.store(survivors + r, number)


@triton.jit
def value_at(row, marks, token):
    """One entry of the row as the filters see it; the entry is not banned."""
    x = tl.load(row.logits + token * row.column_stride).to(tl.float32)
    if marks.touched is not None:
        word = tl.load(marks.touched + token // 32)
        if ((word >> (token % 32).to(tl.int32)) & 1) != 0:
            x = tl.load(row.patch_values + rank_of(marks, token.to(tl.int32)))
    return scaled(row, x)
