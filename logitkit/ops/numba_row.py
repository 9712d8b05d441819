"""One row of float32 scratch: loading it, its block maxima, and what is found by way of them.

The scratch row is padded with `-inf` to whole chunks of 1,024. A block is 16 entries of one chunk
that lie 64 apart, so that block maxima are taken lane by lane, without any horizontal step.
`maxima` holds one value per block, chunk after chunk.
"""

from __future__ import annotations

import numpy as np

from logitkit.ops.numba_bits import (
    exp_nonpositive,
    float_from_bits,
    internal,
    keep_bits,
    order_key,
    value_of,
)

LANES = 64
DEPTH = 16
CHUNK = LANES * DEPTH
CHUNK_WORDS = CHUNK // 32  # of a mask
WAYS = 4  # histograms are kept this often: additions to one bucket would wait for each other
FLOAT32, BFLOAT16, FLOAT16 = 0, 1, 2
NEAR, FAR = np.float32(4.0), np.float32(9.0)  # nats below the maximum
NONE, ALL = np.float32(-np.inf), np.float32(np.inf)


@internal()
def block_of(token):
    return (token // CHUNK) * LANES + token % LANES


@internal()
def load(y, maxima, words, halves, start, width, kind, mask):
    """Fill the scratch row and its maxima from the logits, less what `mask` does not allow.

    `mask` int32 has a bit per token; with no words it allows all. Returns the largest value that is
    left, and whether any logit is NaN or +inf, allowed or not.
    """
    bad = False
    for c in range(y.shape[0] // CHUNK):
        chunk = y[c * CHUNK : (c + 1) * CHUNK]
        first, size = start + c * CHUNK, min(CHUNK, width - c * CHUNK)
        if kind == FLOAT32:
            bad |= _copy_words(chunk, words[first : first + size])
        elif kind == BFLOAT16:
            bad |= _copy_bfloat16(chunk, halves[first : first + size])
        else:
            bad |= _copy_float16(chunk, halves[first : first + size])
        chunk[size:] = NONE
        if mask.shape[0]:
            _mask_chunk(chunk, mask[c * CHUNK_WORDS : (c + 1) * CHUNK_WORDS])
        chunk_maxima(chunk, maxima[c * LANES : (c + 1) * LANES])
    return largest(maxima), bad


@internal()
def _copy_words(chunk, x):
    bad = 0
    for i in range(x.shape[0]):
        value = float_from_bits(x[i])
        chunk[i] = value
        bad |= not value < ALL
    return bad != 0


@internal()
def _copy_bfloat16(chunk, x):
    bad = 0
    for i in range(x.shape[0]):
        value = float_from_bits(np.int32(x[i]) << np.int32(16))
        chunk[i] = value
        bad |= not value < ALL
    return bad != 0


@internal()
def _copy_float16(chunk, x):
    bad = 0
    for i in range(x.shape[0]):
        value = _from_half(np.int32(x[i]))
        chunk[i] = value
        bad |= not value < ALL
    return bad != 0


@internal()
def _mask_chunk(chunk, mask):
    """Mask the entries of a chunk whose bits are not set; its last words may be missing."""
    for w in range(mask.shape[0]):
        keep_bits(chunk, 32 * w, mask[w])
    chunk[32 * mask.shape[0] :] = NONE


@internal()
def value_at(words, halves, index, kind):
    """One logit as float32."""
    if kind == FLOAT32:
        return float_from_bits(words[index])
    if kind == BFLOAT16:
        return float_from_bits(np.int32(halves[index]) << np.int32(16))
    return _from_half(np.int32(halves[index]))


@internal()
def _from_half(h):
    """The float32 of an IEEE half given as sign-extended int32; a power of two rebases it."""
    magnitude = (h & np.int32(0x7FFF)) << np.int32(13)
    value = float_from_bits(magnitude) * np.float32(2.0**112)
    special = float_from_bits(magnitude | np.int32(0x7F800000))
    value = special if (h & np.int32(0x7C00)) == np.int32(0x7C00) else value
    return -value if h < 0 else value


@internal()
def chunk_maxima(chunk, top):
    """The maxima of one chunk's blocks, lane by lane."""
    top[:] = NONE
    for i in range(0, DEPTH, 4):
        s0 = chunk[i * LANES : (i + 1) * LANES]
        s1 = chunk[(i + 1) * LANES : (i + 2) * LANES]
        s2 = chunk[(i + 2) * LANES : (i + 3) * LANES]
        s3 = chunk[(i + 3) * LANES : (i + 4) * LANES]
        for j in range(LANES):
            left = s0[j] if s0[j] > s1[j] else s1[j]
            right = s2[j] if s2[j] > s3[j] else s3[j]
            both = left if left > right else right
            top[j] = both if both > top[j] else top[j]


@internal()
def largest(values):
    """The largest of values without NaN; by lanes, because a plain reduction is not vectorised."""
    lanes = values[:LANES].copy()
    for start in range(LANES, values.shape[0], LANES):
        segment = values[start : start + LANES]
        for j in range(LANES):
            lanes[j] = segment[j] if segment[j] > lanes[j] else lanes[j]
    top = NONE
    for j in range(LANES):
        top = max(top, lanes[j])
    return top


@internal()
def retake_maxima(y, maxima, dirty):
    """Renew the maxima of the dirty blocks and clear the marks.

    Returns the row's largest value, and whether an edit made NaN or +inf (marked by 2).
    """
    bad = False
    for b in range(dirty.shape[0]):
        if dirty[b]:
            bad |= dirty[b] == 2
            dirty[b] = 0
            first = (b // LANES) * CHUNK + b % LANES
            top = NONE
            for i in range(DEPTH):
                top = max(top, y[first + i * LANES])
            maxima[b] = top
    return largest(maxima), bad


@internal()
def first_index_of(y, maxima, top):
    """The lowest token that has the largest logit."""
    for c in range(maxima.shape[0] // LANES):
        hit = 0
        for j in range(LANES):
            hit |= maxima[c * LANES + j] == top
        if hit:
            for i in range(c * CHUNK, (c + 1) * CHUNK):
                if y[i] == top:
                    return i
    return -1


@internal()
def scale(y, maxima, temperature):
    """Divide the row, rounding to nearest."""
    for i in range(y.shape[0]):
        y[i] = y[i] / temperature
    for b in range(maxima.shape[0]):
        maxima[b] = maxima[b] / temperature


@internal()
def gather(y, maxima, floor, ids, values):
    """Collect the entries >= floor in no special order; their number, or -1 if they do not fit."""
    found = 0
    for c in range(maxima.shape[0] // LANES):
        top = maxima[c * LANES : (c + 1) * LANES]
        hit = 0
        for j in range(LANES):
            hit |= top[j] >= floor
        if not hit:
            continue
        for j in range(LANES):
            if top[j] >= floor:
                if found + DEPTH > ids.shape[0]:
                    return -1
                for i in range(DEPTH):
                    token = c * CHUNK + i * LANES + j
                    ids[found] = token
                    values[found] = y[token]
                    found += y[token] >= floor
    return found


@internal()
def lower_bound_of_kth(maxima, k, tops):
    """A value that at least k entries reach: the k-th largest of maxima over disjoint groups.

    Returns -inf where there are not enough groups.
    """
    groups = tops.shape[0]
    if k <= groups // 2 and maxima.shape[0] > groups:
        tops[:] = NONE
        for start in range(0, maxima.shape[0], LANES):
            segment, group = maxima[start : start + LANES], tops[start % groups :][:LANES]
            for j in range(LANES):
                group[j] = segment[j] if segment[j] > group[j] else group[j]
        return kth_largest_of(tops, k)
    if k <= maxima.shape[0]:
        return kth_largest_of(maxima.copy(), k)
    return NONE


@internal()
def kth_largest_of(keys, k):
    """The k-th largest of some thousand values; reorders them (quickselect)."""
    left, right, wanted = 0, keys.shape[0] - 1, k - 1
    while left < right:
        pivot = keys[(left + right) // 2]
        i, j = left, right
        while i <= j:
            while keys[i] > pivot:
                i += 1
            while keys[j] < pivot:
                j -= 1
            if i <= j:
                keys[i], keys[j] = keys[j], keys[i]
                i += 1
                j -= 1
        if wanted <= j:
            right = j
        elif wanted >= i:
            left = i
        else:
            break
    return keys[wanted]


@internal()
def kth_largest(bits, k, histogram, keys):
    """The k-th largest value of any row, by the bits of its keys (radix select).

    Two passes settle the upper 22 bits; the few entries that share them are gathered, or if they
    are many, a third pass settles the rest. `histogram` has WAYS rows, because increments of one
    bucket would wait for each other.
    """
    prefix, k = _settle(bits, np.int64(0), 32, 21, k, histogram)
    prefix, k = _settle(bits, prefix, 21, 10, k, histogram)
    least, most = _key_at(prefix << 10), _key_at((prefix << 10) | 1023)
    n = 0
    for start in range(0, bits.shape[0], LANES):
        segment = bits[start : start + LANES]
        hit = 0
        for j in range(LANES):
            key = order_key(segment[j])
            hit |= (least <= key) & (key <= most)
        if not hit:
            continue
        if n + LANES > keys.shape[0]:
            prefix, k = _settle(bits, prefix, 10, 0, k, histogram)
            return value_of(_key_at(prefix))
        for j in range(LANES):
            key = order_key(segment[j])
            keys[n] = key
            n += least <= key <= most
    return value_of(kth_largest_of(keys[:n], k))


@internal()
def _key_at(number):
    """The order key with this place among all keys, the least being number 0."""
    return np.int32(number - np.int64(0x80000000))


@internal()
def _settle(bits, prefix, below, shift, k, histogram):
    """The bits `shift` to `below` of the k-th largest among the entries with this prefix.

    Returns the longer prefix, and k among the entries that have it.
    """
    size = np.int64(1) << (below - shift)
    histogram[:, :size] = 0
    for i in range(0, bits.shape[0], WAYS):
        for way in range(WAYS):
            number = np.int64(order_key(bits[i + way])) + np.int64(0x80000000)
            histogram[way, (number >> shift) & (size - 1)] += number >> below == prefix
    bucket = size - 1
    while True:
        count = np.int64(0)
        for way in range(WAYS):
            count += histogram[way, bucket]
        if count >= k:
            return (prefix << (below - shift)) | bucket, k
        k -= count
        bucket -= 1


@internal()
def exponentials(values, top, e):
    """e = exp(values - top), for values <= top."""
    for i in range(values.shape[0]):
        e[i] = exp_nonpositive(values[i] - top)


@internal()
def masses(y, top, low, e):
    """Sum of exp(y - top) over entries >= low, and, roughly, over those within NEAR and FAR."""
    total, near, far = 0.0, 0.0, 0.0
    for c in range(y.shape[0] // CHUNK):
        chunk = y[c * CHUNK : (c + 1) * CHUNK]
        exponentials(chunk, top, e)
        total += _sum_from(chunk, e, low)
        near += _rough_sum_from(chunk, e, max(low, top - NEAR))
        far += _rough_sum_from(chunk, e, max(low, top - FAR))
    return total, near, far


@internal(fastmath={"reassoc"})
def _sum_from(values, e, low):
    total = 0.0
    for i in range(values.shape[0]):
        total += np.float64(e[i] if values[i] >= low else np.float32(0.0))
    return total


@internal(fastmath={"reassoc"})
def _rough_sum_from(values, e, low):
    total = np.float32(0.0)
    for i in range(values.shape[0]):
        total += e[i] if values[i] >= low else np.float32(0.0)
    return total
