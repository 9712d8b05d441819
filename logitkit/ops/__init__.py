"""The fused operations, once per backend with the same names and signatures.

`reference` is plain torch: documentation, oracle and the way for tensors without kernels.
`numba_ops` are the CPU kernels, `triton_ops` (a package beside logitkit) the GPU kernels. Each has

    process_logits(logits, slot, position, tokens, prompt_length, seed, **arguments)
    sample_tokens(logits, slot, position, tokens, prompt_length, seed, details=False, **arguments)

which return new logits or tokens, and a status per row (with `details` the tokens'
log-probabilities and the numbers of survivors, too), and

    commit_tokens(tokens, head, new, num_tokens)
    advance_fsm(state, tokens, offsets, data, transitions)

which append new tokens to the histories in place, and take the states of byte automata over a token
each.

`logits` [R, V] float32, float16 or bfloat16; `slot`, `position` [R] int64; `tokens` [B, T],
`prompt_length`, `seed` [B] int64. `arguments` are the columns of the stages that take part; an
absent one is an absent stage; all are per request or shared but `mask_row`, which is per row.
`ORDER` says which arguments each stage owns and in which order they apply. `status` [R] int64 is
`OK`, `EMPTY` (no token left) or `BAD` (NaN or +inf); only OK rows have a result.
"""

from __future__ import annotations

OK, EMPTY, BAD = 0, 1, 2

ORDER: dict[str, tuple[str, ...]] = {
    "allowed_token_ids": ("allowed_mask", "allowed_row"),
    "logit_bias": ("bias_offsets", "bias_ids", "bias_values"),
    "bad_words": ("bad_words_offsets", "bad_words_starts", "bad_words_tokens"),
    "repetition_penalty": ("repetition_penalty",),
    "presence_penalty": ("presence_penalty",),
    "frequency_penalty": ("frequency_penalty",),
    "dry": (
        "dry_multiplier",
        "dry_base",
        "dry_allowed_length",
        "dry_range",
        "dry_breaker_offsets",
        "dry_breaker_starts",
        "dry_breaker_tokens",
    ),
    "no_repeat_ngram": ("no_repeat_ngram_size",),
    "min_new_tokens": ("min_new_tokens", "ending_offsets", "ending_ids"),
    "grammar": ("mask_rows", "mask_row"),
    "temperature": ("temperature", "dynatemp_range", "dynatemp_exponent"),
    "top_n_sigma": ("top_n_sigma",),
    "top_h": ("top_h",),
    "top_k": ("top_k",),
    "top_p": ("top_p",),
    "min_p": ("min_p",),
    "typical_p": ("typical_p",),
    "epsilon_cutoff": ("epsilon_cutoff",),
    "eta_cutoff": ("eta_cutoff",),
    "xtc": ("xtc_probability", "xtc_threshold"),
}
FILTERS = frozenset(list(ORDER)[list(ORDER).index("top_n_sigma") :])
