"""The rules that change or ban single logits, in plain torch: documentation and oracle.

Every function maps logits [R, V] float32 to new logits of the same shape, reads its parameters and
the history through `rows`, and leaves `-inf` entries at `-inf`. Token ids beyond V are ignored.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from logitkit.rows import Rows

LOG_FLOAT_MAX = 88.7228391
LEAST_TEMPERATURE = 1e-30  # smaller divisors could overflow; the door allows no smaller one either
FARTHEST = 700.0  # nats below the best, from where an entry has no part in the entropy


def allowed_token_ids(logits: Tensor, rows: Rows) -> Tensor:
    """Mask all but the allowed ids: bit t % 32 of word t // 32 of `allowed_mask[allowed_row]`.

    `allowed_row` -1 allows everything.
    """
    row = rows["allowed_row"]  # [R, 1]
    words = rows.columns["allowed_mask"][row.clamp_min(0).squeeze(-1)]
    return logits.masked_fill((row >= 0) & ~_bits(words, logits.shape[-1]), -torch.inf)


def logit_bias(logits: Tensor, rows: Rows) -> Tensor:
    """Add a constant to the logits of given tokens; -inf bans them (OpenAI's `logit_bias`)."""
    logits = logits.clone()
    columns = rows.columns
    for r, (start, stop) in _spans(columns["bias_offsets"], rows.slot):
        ids = columns["bias_ids"][start:stop]
        logits[r, ids] += columns["bias_values"][start:stop]
    return logits


def bad_words(logits: Tensor, rows: Rows) -> Tensor:
    """Mask the last token of every forbidden sequence whose other tokens end the row's history."""
    logits = logits.clone()
    columns = rows.columns
    starts = columns["bad_words_starts"].tolist()
    for r, (first, last) in _spans(columns["bad_words_offsets"], rows.slot):
        seen = _history(rows, r)
        for s in range(first, last):
            *head, banned = columns["bad_words_tokens"][starts[s] : starts[s + 1]].tolist()
            if len(head) <= len(seen) and seen[len(seen) - len(head) :] == head:
                logits[r, banned] = -torch.inf
    return logits


def repetition_penalty(logits: Tensor, rows: Rows) -> Tensor:
    """Divide positive and multiply negative logits of tokens in prompt or output (CTRL, 2019)."""
    penalty = rows["repetition_penalty"].float()
    seen = rows.in_prompt() | (rows.counts() > 0)
    penalised = torch.where(logits > 0, logits / penalty, logits * penalty)
    return torch.where(seen, penalised, logits)


def presence_penalty(logits: Tensor, rows: Rows) -> Tensor:
    """Subtract the penalty from every token that stands in the output (OpenAI, vLLM)."""
    penalised = logits - rows["presence_penalty"].float()
    return torch.where((rows.counts() > 0) & (logits > -torch.inf), penalised, logits)


def frequency_penalty(logits: Tensor, rows: Rows) -> Tensor:
    """Subtract the penalty once per occurrence in the output (OpenAI, vLLM)."""
    counts = rows.counts()
    penalised = logits - rows["frequency_penalty"].float() * counts.float()
    return torch.where((counts > 0) & (logits > -torch.inf), penalised, logits)


def dry(logits: Tensor, rows: Rows) -> Tensor:
    """Penalise the token that would lengthen a repetition by multiplier * base^(length - allowed).

    "Don't repeat yourself", as llama.cpp has it: the length is that of the longest earlier copy of
    the history's end that the token would continue; a sequence breaker ends the search.
    """
    logits = logits.clone()
    breakers = _dry_breakers(rows)
    for r, slot in enumerate(rows.slot.tolist()):
        multiplier, base, allowed, span = (
            rows.columns[name][slot].item()
            for name in ("dry_multiplier", "dry_base", "dry_allowed_length", "dry_range")
        )
        if multiplier == 0.0 or span == 0:
            continue
        seen = _history(rows, r)
        window = seen if span < 0 else seen[max(0, len(seen) - int(span)) :]
        for token, length in dry_lengths(window, int(allowed), breakers[slot]).items():
            if token < logits.shape[-1]:
                power = dry_power(base, length - int(allowed))
                logits[r, token] -= torch.tensor(multiplier * power).float()
    return logits


def dry_power(base: float, exponent: int) -> float:
    """base ** exponent, the exponent capped where a float32 would overflow (as in llama.cpp)."""
    if base > 1.000001:
        exponent = min(exponent, int(LOG_FLOAT_MAX / math.log(base)))
    return float(base**exponent)


def dry_lengths(
    window: list[int], allowed: int, breakers: dict[int, list[list[int]]]
) -> dict[int, int]:
    """Which token would continue a repetition, and how long the repetition is without it.

    `breakers` maps the first token of each breaker sequence to its possible rests.
    """
    size = len(window)
    if size <= allowed:
        return {}
    limit = size
    for i in range(size):  # i tokens stand behind the one looked at
        rests = [
            rest
            for rest in breakers.get(window[size - 1 - i], [])
            if len(rest) <= i and window[size - i : size - i + len(rest)] == rest
        ]
        if rests:
            limit = i - max(map(len, rests))
            break
    if limit < allowed:
        return {}
    single = {head for head, rests in breakers.items() if [] in rests}
    longest: dict[int, int] = {}
    for end in range(size - 1):  # window[: end + 1] against the whole, both read backwards
        length = 0
        while length <= end and length < limit and window[end - length] == window[-1 - length]:
            length += 1
        token = window[end + 1]
        if length >= allowed and token not in single:
            longest[token] = max(longest.get(token, 0), length)
    return longest


def no_repeat_ngram(logits: Tensor, rows: Rows) -> Tensor:
    """Mask every token that would complete an n-gram that the history has already (fairseq)."""
    logits = logits.clone()
    for r, size in enumerate(rows["no_repeat_ngram_size"].squeeze(-1).tolist()):
        seen = _history(rows, r)
        if size == 0 or len(seen) < size:
            continue
        prefix = seen[len(seen) - size + 1 :]
        for i in range(len(seen) - size + 1):
            if seen[i : i + size - 1] == prefix and seen[i + size - 1] < logits.shape[-1]:
                logits[r, seen[i + size - 1]] = -torch.inf
    return logits


def min_new_tokens(logits: Tensor, rows: Rows) -> Tensor:
    """Mask eos and the stop token ids while fewer than `min_new_tokens` tokens are generated."""
    logits = logits.clone()
    early = rows.num_generated < rows["min_new_tokens"].squeeze(-1)
    for r, (start, stop) in _spans(rows.columns["ending_offsets"], rows.slot):
        if early[r]:
            logits[r, rows.columns["ending_ids"][start:stop]] = -torch.inf
    return logits


def grammar(logits: Tensor, rows: Rows) -> Tensor:
    """Mask what the row's grammar does not allow: bit t % 32 of word t // 32 of its mask.

    The mask of row r is `mask_rows[mask_row[r]]`, whose ids beyond its words are not allowed; mask
    0 allows everything. `mask_row` [R] belongs to the rows, not to their requests.
    """
    row = rows.columns["mask_row"]
    allowed = _bits(rows.columns["mask_rows"][row], logits.shape[-1])
    return logits.masked_fill((row != 0)[:, None] & ~allowed, -torch.inf)


def temperature(logits: Tensor, rows: Rows) -> Tensor:
    """Divide by the temperature; at 0 only the first of the largest logits stays.

    In a plan (where the column `greedy` marks the requests with temperature 0) these rows are left
    as they are: the argmax is taken behind the last stage, whatever stages follow this one.
    With `dynatemp_range` > 0 (llama.cpp) the temperature lies in [max(0, t - range), t + range], by
    the row's entropy relative to its maximum, raised to `dynatemp_exponent`. A dynamic temperature
    of 0 keeps the largest logits only.
    """
    fixed = rows["temperature"]
    divisor = torch.where(fixed > 0, dynamic_temperature(logits, rows), 1.0).float()
    scaled = torch.where(divisor > 0, logits / divisor, logits)
    largest = logits.amax(-1, keepdim=True)
    scaled = torch.where((divisor == 0) & (logits < largest), -torch.inf, scaled)
    return scaled if "greedy" in rows.columns else keep_best(scaled, fixed == 0)


def keep_best(logits: Tensor, where: Tensor) -> Tensor:
    """Mask all but the first of the largest logits in the rows that `where` [R, 1] marks."""
    token = torch.arange(logits.shape[-1], device=logits.device)
    best = (logits == logits.amax(-1, keepdim=True)).to(torch.uint8).argmax(-1, keepdim=True)
    return logits.masked_fill(where & (token != best), -torch.inf)


def dynamic_temperature(logits: Tensor, rows: Rows) -> Tensor:
    """The temperature of each row, [R, 1] float64; a row with one token left keeps 1."""
    fixed, spread = rows["temperature"], rows["dynatemp_range"]
    left = (logits > -torch.inf).sum(-1, keepdim=True)
    gap = logits.amax(-1, keepdim=True).double() - logits.double()
    best = (gap == 0).sum(-1, keepdim=True).double()
    weight = torch.where((gap > 0) & (gap < FARTHEST), (-gap).exp(), 0.0)
    rest = row_sum(weight)
    spread_out = row_sum(torch.where(weight > 0, weight * gap, 0.0))
    # the logarithm of the mass in two parts, so that the entropy of a sharp peak keeps its digits
    entropy = best.log() + (rest / best).log1p() + spread_out / (best + rest)
    relative = (entropy / left.clamp_min(2).double().log()).clamp(0.0, 1.0)
    low, high = (fixed - spread).clamp_min(0.0), fixed + spread
    dynamic = low + (high - low) * relative ** rows["dynatemp_exponent"]
    dynamic = torch.where(dynamic < LEAST_TEMPERATURE, 0.0, dynamic)
    return torch.where(spread > 0, torch.where(left > 1, dynamic, 1.0), fixed)


def row_sum(values: Tensor) -> Tensor:
    """The sum of every row, [R, 1]; on CPUs row by row, since torch sums one row in other parts
    than several, and a row must not depend on its neighbours even in the last bit."""
    if values.device.type != "cpu" or not len(values):
        return values.sum(-1, keepdim=True)
    return torch.stack([row.sum() for row in values])[:, None]


def _bits(words: Tensor, width: int) -> Tensor:
    """Masks [R, W] int32 as bool [R, width]; they need not be as wide as the logits."""
    token = torch.arange(width, device=words.device)
    known = token < 32 * words.shape[-1]
    return ((words[:, (token // 32).clamp_max(words.shape[-1] - 1)] >> (token % 32)) & known) != 0


def _history(rows: Rows, r: int) -> list[int]:
    """The tokens that row r sees."""
    found: list[int] = rows.history.tokens[rows.slot[r], : rows.position[r]].tolist()
    return found


def _spans(offsets: Tensor, slot: Tensor) -> list[tuple[int, tuple[int, int]]]:
    """(row, (first, last)) of each row's part of a ragged column."""
    ends = offsets.tolist()
    return [(r, (ends[s], ends[s + 1])) for r, s in enumerate(slot.tolist())]


def _dry_breakers(rows: Rows) -> dict[int, dict[int, list[list[int]]]]:
    """slot -> first token of a breaker -> its possible rests."""
    columns = rows.columns
    starts, tokens = columns["dry_breaker_starts"].tolist(), columns["dry_breaker_tokens"].tolist()
    table: dict[int, dict[int, list[list[int]]]] = {}
    for slot in set(rows.slot.tolist()):
        heads: dict[int, list[list[int]]] = {}
        for s in range(*columns["dry_breaker_offsets"][slot : slot + 2].tolist()):
            head, *rest = tokens[starts[s] : starts[s + 1]]
            heads.setdefault(head, []).append(rest)
        table[slot] = heads
    return table
