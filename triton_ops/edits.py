"""The sparse edits of one row: which entries are banned, and the new values of those that change.

Runs once per row, before the passes. Bans are bits. Edited ids are first marked as bits, so each
distinct id has a rank (the number of marked ids below it) and with it one place in the list of
patches: everything is counted and edited exactly once, by atomics on integers only.
"""

# Triton types and compiles this text: mypy and rules of style about branches do not apply.
# mypy: ignore-errors

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

from triton_ops.numbers import popcount

IN_PROMPT = tl.constexpr(1 << 30)  # above it in a count there is room for nothing else
COUNT = tl.constexpr((1 << 30) - 1)


class Edits(NamedTuple):
    """The columns of the stages that edit single logits; those of absent stages are None."""

    allowed_mask: Any
    allowed_words: Any
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
    no_repeat_ngram_size: Any
    min_new_tokens: Any
    ending_offsets: Any
    ending_ids: Any


class Grammar(NamedTuple):
    """Masks of many rows, and which is the row's own; `rows` is None without a grammar."""

    rows: Any  # pointer to int32 words
    words: Any  # of a mask
    place: Any  # pointer to the int32 number of the row's mask


class Seen(NamedTuple):
    """What the row sees of its request."""

    slot: Any
    history: Any  # pointer to int64 tokens
    length: Any  # how many of them the row sees
    prompt_length: Any


class Marks(NamedTuple):
    """Scratch of the row: bits per id, and the patches by rank."""

    banned: Any
    touched: Any
    rank: Any
    count: Any
    bias: Any
    patch_ids: Any
    patch_values: Any


@triton.jit
def mark(words, ids, width, inside):
    """Set the bit of each id inside the vocabulary."""
    ok = inside & (ids >= 0) & (ids < width)
    ids = tl.where(ok, ids, 0).to(tl.int32)
    tl.atomic_or(words + ids // 32, 1 << (ids % 32), mask=ok, sem="relaxed")


@triton.jit
def ban_words(row, edits, seen, marks, BLOCK: tl.constexpr):
    """Set the bits of ids that would end a forbidden sequence."""
    lane = tl.arange(0, BLOCK)
    if edits.bad_words_offsets is not None:
        first = tl.load(edits.bad_words_offsets + seen.slot)
        last = tl.load(edits.bad_words_offsets + seen.slot + 1)
        for start in range(first, last, BLOCK):
            inside = start + lane < last
            begin = tl.load(edits.bad_words_starts + start + lane, mask=inside, other=0)
            end = tl.load(edits.bad_words_starts + start + lane + 1, mask=inside, other=1)
            ahead = end - 1 - begin  # tokens before the banned one
            inside = inside & (ahead <= seen.length)
            for i in range(0, tl.max(tl.where(inside, ahead, 0))):
                more = inside & (i < ahead)
                want = tl.load(edits.bad_words_tokens + begin + i, mask=more, other=0)
                have = tl.load(seen.history + seen.length - ahead + i, mask=more, other=0)
                inside = inside & (want == have)
            ids = tl.load(edits.bad_words_tokens + end - 1, mask=inside, other=0)
            mark(marks.banned, ids, row.width, inside)


@triton.jit
def ban_repeats_and_endings(row, edits, seen, marks, BLOCK: tl.constexpr):
    """Set the bits of ids that would repeat an n-gram, or end the row too early."""
    lane = tl.arange(0, BLOCK)
    if edits.no_repeat_ngram_size is not None:
        size = tl.load(edits.no_repeat_ngram_size + seen.slot)
        places = tl.where(size > 0, seen.length - size + 1, 0)
        for start in range(0, places, BLOCK):
            inside = start + lane < places
            for i in range(0, size - 1):
                want = tl.load(seen.history + places + i)
                have = tl.load(seen.history + start + lane + i, mask=inside, other=-1)
                inside = inside & (want == have)
            ids = tl.load(seen.history + start + lane + size - 1, mask=inside, other=0)
            mark(marks.banned, ids, row.width, inside)
    if edits.min_new_tokens is not None:
        early = seen.length - seen.prompt_length < tl.load(edits.min_new_tokens + seen.slot)
        first = tl.load(edits.ending_offsets + seen.slot)
        last = tl.where(early, tl.load(edits.ending_offsets + seen.slot + 1), first)
        for start in range(first, last, BLOCK):
            inside = start + lane < last
            ids = tl.load(edits.ending_ids + start + lane, mask=inside, other=0)
            mark(marks.banned, ids, row.width, inside)


@triton.jit
def ban_by_grammar(row, grammar, marks, BLOCK: tl.constexpr):
    """Set the bits of ids that the row's mask does not allow; mask 0 allows everything."""
    lane = tl.arange(0, BLOCK)
    if grammar.rows is not None:
        number = tl.load(grammar.place).to(tl.int64)
        words = tl.where(number > 0, tl.cdiv(row.width, 32), 0)
        mask = grammar.rows + number * grammar.words
        for start in range(0, words, BLOCK):
            inside = start + lane < words
            known = inside & (start + lane < grammar.words)
            allowed = tl.load(mask + start + lane, mask=known, other=0)
            banned = tl.load(marks.banned + start + lane, mask=inside, other=0)
            tl.store(marks.banned + start + lane, banned | ~allowed, mask=inside)
        tl.debug_barrier()


@triton.jit
def clear(row, edits, seen, marks, BLOCK: tl.constexpr):
    """Give the words of bits their first values: not allowed, not touched."""
    lane = tl.arange(0, BLOCK)
    words = tl.cdiv(row.width, 32)
    for start in range(0, words, BLOCK):
        inside = start + lane < words
        word = tl.zeros([BLOCK], tl.int32)
        if edits.allowed_mask is not None:
            mask_row = tl.load(edits.allowed_row + seen.slot)
            limit = tl.where(mask_row >= 0, edits.allowed_words, 0)
            known = inside & (start + lane < limit)
            place = edits.allowed_mask + mask_row * edits.allowed_words
            allowed = tl.load(place + start + lane, mask=known, other=0)
            word = tl.where(mask_row >= 0, ~allowed, 0)
        tl.store(marks.banned + start + lane, word, mask=inside)
        if marks.touched is not None:
            tl.store(marks.touched + start + lane, 0, mask=inside)


@triton.jit
def penalised(edits, seen):
    """Whether the row's request has any penalty."""
    any_penalty = tl.zeros([], tl.int1)
    if edits.repetition_penalty is not None:
        any_penalty |= tl.load(edits.repetition_penalty + seen.slot).to(tl.float32) != 1.0
    if edits.presence_penalty is not None:
        any_penalty |= tl.load(edits.presence_penalty + seen.slot).to(tl.float32) != 0.0
    if edits.frequency_penalty is not None:
        any_penalty |= tl.load(edits.frequency_penalty + seen.slot).to(tl.float32) != 0.0
    return any_penalty


@triton.jit
def rank_of(marks, ids):
    """The place of marked ids among the marked ids; ids must be inside the vocabulary."""
    word = tl.load(marks.touched + ids // 32)
    return tl.load(marks.rank + ids // 32) + popcount(word & ((1 << (ids % 32)) - 1))


@triton.jit
def count_ranks(row, marks, BLOCK: tl.constexpr):
    """Store how many ids are marked before each word; the number of all."""
    lane = tl.arange(0, BLOCK)
    words = tl.cdiv(row.width, 32)
    total = tl.zeros([], tl.int32)
    for start in range(0, words, BLOCK):
        inside = start + lane < words
        bits = popcount(tl.load(marks.touched + start + lane, mask=inside, other=0))
        tl.store(marks.rank + start + lane, total + tl.cumsum(bits, 0) - bits, mask=inside)
        total += tl.sum(bits)
    return total


@triton.jit
def touch(row, edits, seen, marks, BLOCK: tl.constexpr):
    """Mark the edited ids and prepare their patches; the number of patches."""
    lane = tl.arange(0, BLOCK)
    length = tl.where(penalised(edits, seen), seen.length, 0)
    for start in range(0, length, BLOCK):
        inside = start + lane < length
        ids = tl.load(seen.history + start + lane, mask=inside, other=0)
        mark(marks.touched, ids, row.width, inside)
    if edits.bias_offsets is not None:
        first = tl.load(edits.bias_offsets + seen.slot)
        last = tl.load(edits.bias_offsets + seen.slot + 1)
        for start in range(first, last, BLOCK):
            inside = start + lane < last
            ids = tl.load(edits.bias_ids + start + lane, mask=inside, other=0)
            mark(marks.touched, ids, row.width, inside)
    tl.debug_barrier()
    total = count_ranks(row, marks, BLOCK)
    for start in range(0, total, BLOCK):
        tl.store(marks.count + start + lane, 0, mask=start + lane < total)
        tl.store(marks.bias + start + lane, 0.0, mask=start + lane < total)
    tl.debug_barrier()
    for start in range(0, length, BLOCK):
        ids = tl.load(seen.history + start + lane, mask=start + lane < length, other=-1)
        inside = (ids >= 0) & (ids < row.width)
        ids = tl.where(inside, ids, 0).to(tl.int32)
        rank = rank_of(marks, ids)
        tl.store(marks.patch_ids + rank, ids, mask=inside)
        output = start + lane >= seen.prompt_length
        tl.atomic_add(marks.count + rank, 1, mask=inside & output, sem="relaxed")
        tl.atomic_or(marks.count + rank, IN_PROMPT, mask=inside & (output == 0), sem="relaxed")
    if edits.bias_offsets is not None:
        for start in range(first, last, BLOCK):
            inside = start + lane < last
            ids = tl.load(edits.bias_ids + start + lane, mask=inside, other=-1)
            inside = inside & (ids >= 0) & (ids < row.width)
            value = tl.load(edits.bias_values + start + lane, mask=inside, other=0.0)
            ids = tl.where(inside, ids, 0).to(tl.int32)
            rank = rank_of(marks, ids)
            tl.store(marks.patch_ids + rank, ids, mask=inside)
            tl.store(marks.bias + rank, value, mask=inside)
    tl.debug_barrier()
    return total


@triton.jit
def without_banned(marks, x, ids, inside):
    """-inf for banned ids; what is NaN or +inf stays, for the row is bad then."""
    word = tl.load(marks.banned + ids // 32, mask=inside, other=0)
    banned = (((word >> (ids % 32)) & 1) != 0) & (x < float("inf"))
    return tl.where(banned, -float("inf"), x)


@triton.jit
def add_bias(row, edits, marks, total, BLOCK: tl.constexpr):
    """The first values of the patches: the logit if it is allowed, and its bias."""
    lane = tl.arange(0, BLOCK)
    for start in range(0, total, BLOCK):
        inside = start + lane < total
        ids = tl.load(marks.patch_ids + start + lane, mask=inside, other=0)
        place = row.logits + ids.to(tl.int64) * row.column_stride
        x = tl.load(place, mask=inside, other=-float("inf")).to(tl.float32)
        x = without_banned(marks, x, ids, inside)
        if edits.bias_offsets is not None:
            x += tl.load(marks.bias + start + lane, mask=inside, other=0.0)
        tl.store(marks.patch_values + start + lane, x, mask=inside)


@triton.jit
def penalise(edits, seen, marks, total, BLOCK: tl.constexpr):
    """Repetition, presence and frequency penalties of the patches."""
    lane = tl.arange(0, BLOCK)
    for start in range(0, total, BLOCK):
        inside = start + lane < total
        ids = tl.load(marks.patch_ids + start + lane, mask=inside, other=0)
        x = tl.load(marks.patch_values + start + lane, mask=inside, other=-float("inf"))
        x = without_banned(marks, x, ids, inside)
        count = tl.load(marks.count + start + lane, mask=inside, other=0)
        if edits.repetition_penalty is not None:
            penalty = tl.load(edits.repetition_penalty + seen.slot).to(tl.float32)
            lowered = tl.where(x > 0.0, tl.div_rn(x, penalty), x * penalty)
            x = tl.where(count > 0, lowered, x)
        output = count & COUNT
        if edits.presence_penalty is not None:
            penalty = tl.load(edits.presence_penalty + seen.slot).to(tl.float32)
            x = tl.where((output > 0) & (x > -float("inf")), x - penalty, x)
        if edits.frequency_penalty is not None:
            penalty = tl.load(edits.frequency_penalty + seen.slot).to(tl.float32)
            lowered = x - penalty * output.to(tl.float32)
            x = tl.where((output > 0) & (x > -float("inf")), lowered, x)
        tl.store(marks.patch_values + start + lane, x, mask=inside)


@triton.jit
def close(row, marks, total, BLOCK: tl.constexpr):
    """The last values of the patches, whose entries are masked in the row from here on."""
    lane = tl.arange(0, BLOCK)
    for start in range(0, total, BLOCK):
        inside = start + lane < total
        ids = tl.load(marks.patch_ids + start + lane, mask=inside, other=0)
        x = tl.load(marks.patch_values + start + lane, mask=inside, other=-float("inf"))
        x = without_banned(marks, x, ids, inside)
        tl.store(marks.patch_values + start + lane, x, mask=inside)
    tl.debug_barrier()
    words = tl.cdiv(row.width, 32)
    for start in range(0, words, BLOCK):
        inside = start + lane < words
        banned = tl.load(marks.banned + start + lane, mask=inside, other=0)
        touched = tl.load(marks.touched + start + lane, mask=inside, other=0)
        tl.store(marks.banned + start + lane, banned | touched, mask=inside)
