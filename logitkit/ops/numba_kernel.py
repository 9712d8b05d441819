"""The CPU kernel: a range of rows, each taken through edits, temperature, filters and the draw.

The order is that of `logitkit.ops.ORDER`. A row is worked on as a whole until the few entries that
can still matter are gathered; from there everything costs next to nothing. Nothing of size V is
allocated: the scratch belongs to the worker.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from logitkit.ops import BAD, EMPTY, OK, numba_edits, numba_filters, numba_mass, numba_row
from logitkit.ops.numba_bits import internal, key_of, value_of
from logitkit.ops.numba_draw import coin, draw_gathered, draw_row
from logitkit.ops.numba_row import CHUNK, FAR, LANES, NEAR
from logitkit.ops.reference_edits import LEAST_TEMPERATURE
from logitkit.ops.reference_filters import TOP_H_CANDIDATES
from logitkit.randomness import XTC_STREAM

GATHERED = 4096  # how many entries may be gathered
NONE, ALL = numba_filters.NONE, numba_filters.ALL
MOST = np.float32(3.4e38)


class Scratch(NamedTuple):
    """What one worker needs besides the arguments; `counts` and `dirty` are zero between rows."""

    y: Any  # float32 [V padded to chunks]
    maxima: Any  # float32 [blocks]
    dirty: Any  # uint8 [blocks]
    counts: Any  # int32 [V]
    tops: Any  # float32 [512]
    ids: Any  # int32 [GATHERED]
    values: Any  # float32 [GATHERED + LANES]
    keys: Any  # float64 [GATHERED]
    masses: Any  # float64 [GATHERED]
    sort_keys: Any  # int32 [GATHERED + LANES]
    buckets: Any  # float64 [WAYS * BUCKETS]
    histogram: Any  # int32 [WAYS, 2048]
    indices: Any  # int32 [CHUNK]
    e: Any  # float32 [CHUNK]
    uniforms: Any  # float32 [CHUNK]
    exponents: Any  # float32 [CHUNK]


def make_scratch(width: int) -> Scratch:
    """The scratch of one worker for rows of `width` logits."""
    padded = -(-width // CHUNK) * CHUNK
    blocks = padded // CHUNK * LANES
    return Scratch(
        y=np.empty(padded, np.float32),
        maxima=np.empty(blocks, np.float32),
        dirty=np.zeros(blocks, np.uint8),
        counts=np.zeros(width, np.int32),
        tops=np.empty(512, np.float32),
        ids=np.empty(GATHERED, np.int32),
        values=np.empty(GATHERED + LANES, np.float32),
        keys=np.empty(GATHERED, np.float64),
        masses=np.empty(GATHERED, np.float64),
        sort_keys=np.empty(GATHERED + LANES, np.int32),
        buckets=np.empty(numba_row.WAYS * numba_mass.BUCKETS, np.float64),
        histogram=np.empty((numba_row.WAYS, 2048), np.int32),
        indices=np.empty(CHUNK, np.int32),
        e=np.empty(CHUNK, np.float32),
        uniforms=np.empty(CHUNK, np.float32),
        exponents=np.empty(CHUNK, np.float32),
    )


class Arguments(NamedTuple):
    """The columns of all stages as numpy arrays; those of an absent stage are empty."""

    greedy: Any
    allowed_mask: Any
    allowed_row: Any
    bias_offsets: Any
    bias_ids: Any
    bias_values: Any
    bad_words_offsets: Any
    bad_words_starts: Any
    bad_words_tokens: Any
    repetition_penalty: Any
    presence_penalty: Any
    frequency_penalty: Any
    dry_multiplier: Any
    dry_base: Any
    dry_allowed_length: Any
    dry_range: Any
    dry_breaker_offsets: Any
    dry_breaker_starts: Any
    dry_breaker_tokens: Any
    no_repeat_ngram_size: Any
    min_new_tokens: Any
    ending_offsets: Any
    ending_ids: Any
    mask_rows: Any
    mask_row: Any
    temperature: Any
    dynatemp_range: Any
    dynatemp_exponent: Any
    top_n_sigma: Any
    top_h: Any
    top_k: Any
    top_p: Any
    min_p: Any
    typical_p: Any
    epsilon_cutoff: Any
    eta_cutoff: Any
    xtc_probability: Any
    xtc_threshold: Any


@internal()
def _biased(a, slot):
    """The ids whose logits get a constant."""
    if a.bias_offsets.shape[0]:
        return a.bias_ids[a.bias_offsets[slot] : a.bias_offsets[slot + 1]]
    return a.bias_ids


@internal()
def _changes_values(a):
    """Whether a rule may give some entry another value than -inf."""
    penalties = a.repetition_penalty.shape[0] + a.presence_penalty.shape[0]
    others = a.frequency_penalty.shape[0] + a.dry_multiplier.shape[0] + a.bias_offsets.shape[0]
    return penalties + others > 0


@internal()
def _edit(s, a, slot, history, prompt_length):
    """Every rule that changes single logits; whether anything may have changed.

    The grammar is not among them: what it does not allow is masked when the row is loaded.
    """
    y, dirty, touched = s.y[: s.counts.shape[0]], s.dirty, False
    if a.allowed_row.shape[0] and a.allowed_row[slot] >= 0:
        numba_edits.allow(y, dirty, a.allowed_mask[a.allowed_row[slot]])
        touched = True
    if a.bias_offsets.shape[0]:
        first, last = a.bias_offsets[slot], a.bias_offsets[slot + 1]
        numba_edits.add_bias(y, dirty, a.bias_ids[first:last], a.bias_values[first:last])
        touched = True
    if a.bad_words_offsets.shape[0]:
        first, last = a.bad_words_offsets[slot], a.bad_words_offsets[slot + 1]
        starts = a.bad_words_starts[first : last + 1]
        numba_edits.ban_words(y, dirty, history, starts, a.bad_words_tokens)
        touched = True
    penalised = False
    repetition, presence, frequency = np.float32(1.0), np.float32(0.0), np.float32(0.0)
    if a.repetition_penalty.shape[0]:
        repetition = np.float32(a.repetition_penalty[slot])
        penalised |= repetition != np.float32(1.0)
    if a.presence_penalty.shape[0]:
        presence = np.float32(a.presence_penalty[slot])
        penalised |= presence != np.float32(0.0)
    if a.frequency_penalty.shape[0]:
        frequency = np.float32(a.frequency_penalty[slot])
        penalised |= frequency != np.float32(0.0)
    if penalised:
        numba_edits.penalise(
            y, dirty, s.counts, history, prompt_length, repetition, presence, frequency
        )
        touched = True
    if a.dry_multiplier.shape[0] and a.dry_multiplier[slot] != 0.0 and a.dry_range[slot] != 0:
        span = a.dry_range[slot]
        window = history if span < 0 else history[max(0, history.shape[0] - span) :]
        first, last = a.dry_breaker_offsets[slot], a.dry_breaker_offsets[slot + 1]
        numba_edits.dry(
            y, dirty, s.counts, window, a.dry_multiplier[slot], a.dry_base[slot],
            a.dry_allowed_length[slot], a.dry_breaker_starts[first : last + 1],
            a.dry_breaker_tokens,
        )  # fmt: skip
        touched = True
    if a.no_repeat_ngram_size.shape[0] and a.no_repeat_ngram_size[slot] > 0:
        numba_edits.ban_ngrams(y, dirty, history, a.no_repeat_ngram_size[slot])
        touched = True
    if a.min_new_tokens.shape[0] and a.min_new_tokens[slot] > history.shape[0] - prompt_length:
        for i in range(a.ending_offsets[slot], a.ending_offsets[slot + 1]):
            numba_edits.put(y, dirty, a.ending_ids[i], NONE)
        touched = True
    return touched


@internal()
def _temperature(s, a, slot, top):
    """The divisor of the row, float32; 0 keeps the largest entries only."""
    fixed = a.temperature[slot]
    spread = a.dynatemp_range[slot]
    if fixed == 0.0 or spread == 0.0:
        return np.float32(fixed)
    left = numba_filters.count_left(s.y)
    if left <= 1:
        return np.float32(1.0)
    relative = min(max(numba_filters.exact_entropy(s.y, top) / math.log(left), 0.0), 1.0)
    low, high = max(fixed - spread, 0.0), fixed + spread
    dynamic = low + (high - low) * relative ** a.dynatemp_exponent[slot]
    return np.float32(dynamic if dynamic >= LEAST_TEMPERATURE else 0.0)


@internal()
def _gather_best(s, k, low, divisor):
    """Gather a superset of the k best entries not below `low`; their number, -1 if too many."""
    floor = max(numba_row.lower_bound_of_kth(s.maxima, k, s.tops), low)
    if divisor != np.float32(1.0) and floor > NONE:  # a division may make neighbours equal
        divided = floor / divisor
        if divided < -MOST:
            return -1
        below = np.float64(value_of(key_of(divided) - np.int32(2))) * np.float64(divisor)
        floor = min(floor, np.float32(below - abs(below) * 1.0e-7))
    if floor == NONE:
        return -1
    return numba_row.gather(s.y, s.maxima, floor, s.ids, s.values)


@internal()
def _pad_gathered(s, n, divisor):
    """Divide the gathered entries and fill up with -inf to whole segments."""
    padded = -(-n // LANES) * LANES
    for i in range(n):
        s.values[i] = s.values[i] / divisor
    s.values[n:padded] = NONE
    return s.values[:padded]


@internal()
def _select(s, a, slot, position, seed, top, divisor):
    """Temperature and filters: the entries that matter, how many of them are gathered (-1: the
    whole row), and the window of survivors."""
    v, n, mass, low = s.y, -1, 0.0, NONE
    scaled = divisor == np.float32(1.0)
    sigma = a.top_n_sigma[slot] if a.top_n_sigma.shape[0] else 0.0
    h = a.top_h[slot] if a.top_h.shape[0] else 0.0
    k = a.top_k[slot] if a.top_k.shape[0] else 0
    if sigma > 0.0:
        numba_row.scale(s.y, s.maxima, divisor)
        top, divisor, scaled = top / divisor, np.float32(1.0), True
        low = numba_filters.sigma_floor(s.y, top, sigma)
    if h > 0.0:
        n = _gather_best(s, TOP_H_CANDIDATES, low, divisor)
    elif 0 < k <= GATHERED // 2:
        n = _gather_best(s, k, low, divisor)
    if n >= 0:
        v = _pad_gathered(s, n, divisor)
        top /= divisor
    else:
        if not scaled:
            numba_row.scale(s.y, s.maxima, divisor)
            top /= divisor
        p = a.top_p[slot] if a.top_p.shape[0] else 1.0
        if p < 1.0 and h == 0.0 and (k == 0 or k >= s.counts.shape[0]):
            mass, near, far = numba_row.masses(s.y, top, low, s.e)
            wanted = p * mass * 1.00001
            if wanted < far:
                floor = max(low, top - (NEAR if wanted < near else FAR))
                n = numba_row.gather(s.y, s.maxima, floor, s.ids, s.values)
                if n >= 0:
                    v = _pad_gathered(s, n, np.float32(1.0))
    up = False
    if a.xtc_probability.shape[0] and a.xtc_probability[slot] > 0.0:
        up = coin(seed, position, XTC_STREAM) < a.xtc_probability[slot]
    low, high = numba_filters.narrow(v, top, low, mass, s, a, slot, up, TOP_H_CANDIDATES)
    return v, n, low, high


@internal()
def _describe(s, v, n, low, high, winner):
    """The winner's log-probability among the survivors, and how many these are."""
    value = s.y[winner]
    for i in range(n):
        if s.ids[i] == winner:
            value = v[i]
    return numba_filters.logprob_inside(value, v, low, high)


@internal()
def _write(out, s, v, n, low, high):
    """The survivors' logits, `-inf` elsewhere."""
    if n >= 0:
        out[:] = NONE
        for i in range(n):
            if low <= v[i] and v[i] <= high:
                out[s.ids[i]] = v[i]
    else:
        for i in range(out.shape[0]):
            out[i] = v[i] if (low <= v[i]) & (v[i] <= high) else NONE


def _make_run_rows(digest: str) -> Any:
    """The entry point; `digest` of the kernels' sources is part of numba's disk cache key."""

    @njit(cache=True, nogil=True, error_model="numpy")
    def run_rows(first, last, words, halves, stride, kind, width, slot, position, tokens,
                 prompt_length, seed, a, s, out, drawn, status, logprobs, survivors):  # fmt: skip
        """Rows `first` to `last`: fill `drawn` if `out` has no rows, else `out`; and `status`.

        `logprobs` and `survivors` are filled unless they have no rows.
        """
        assert len(digest) > 0
        everything = np.empty(0, np.int32)
        for r in range(first, last):
            request, place, start = slot[r], position[r], r * stride
            mask = everything
            if a.mask_row.shape[0] and a.mask_row[r] != 0:
                mask = a.mask_rows[a.mask_row[r]]
            top, bad = numba_row.load(s.y, s.maxima, words, halves, start, width, kind, mask)
            status[r], drawn[r] = BAD, -1
            if logprobs.shape[0]:
                logprobs[r], survivors[r] = np.nan, 0
            if bad:
                continue
            history = tokens[request, :place]
            biased = _biased(a, request)
            reset = mask.shape[0] > 0 and _changes_values(a)
            if reset:  # for the edits, so that an overflow is seen in what is masked, too
                numba_edits.unmask(s.y, width, biased, words, halves, start, kind)
                numba_edits.unmask(s.y, width, history, words, halves, start, kind)
            touched = _edit(s, a, request, history, prompt_length[request])
            if reset:
                numba_edits.mask_again(s.y, width, biased, mask)
                numba_edits.mask_again(s.y, width, history, mask)
            if touched:
                top, bad = numba_row.retake_maxima(s.y, s.maxima, s.dirty)
                if bad:
                    continue
            if top == NONE:
                status[r] = EMPTY
                continue
            greedy = a.greedy.shape[0] > 0 and a.greedy[request]
            divisor = np.float32(1.0)
            if a.temperature.shape[0] and not greedy:
                divisor = _temperature(s, a, request, top)
            if divisor > 0.0 and top / divisor == ALL:
                continue
            if divisor > 0.0 and top / divisor == NONE:
                status[r] = EMPTY
                continue
            status[r] = OK
            if greedy and out.shape[0]:
                _write(out[r], s, s.y, -1, NONE, ALL)
                continue
            if greedy or (a.temperature.shape[0] and a.temperature[request] == 0.0):
                winner = numba_row.first_index_of(s.y, s.maxima, top)
                if out.shape[0]:
                    out[r, :] = NONE
                    out[r, winner] = top
                drawn[r] = winner
                if logprobs.shape[0]:
                    logprobs[r], survivors[r] = 0.0, 1
                continue
            key = np.uint64(seed[request])
            if divisor == np.float32(0.0):
                v, n, low, high = s.y, -1, top, ALL
            else:
                v, n, low, high = _select(s, a, request, place, key, top, divisor)
            if out.shape[0]:
                _write(out[r], s, v, n, low, high)
            elif n >= 0:
                drawn[r] = draw_gathered(s.ids, v, n, low, high, key, place)
            else:
                drawn[r] = draw_row(s.y, s.maxima, low, high, key, place, s.uniforms, s.exponents)
            if logprobs.shape[0]:
                logprobs[r], survivors[r] = _describe(s, v, n, low, high, drawn[r])

    return run_rows


def _digest() -> str:
    sources = sorted(Path(__file__).parent.glob("numba_*.py"))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()


run_rows = _make_run_rows(_digest())
