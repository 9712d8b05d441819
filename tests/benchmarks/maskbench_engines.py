"""The engines of `maskbench`: ours and its peers, behind two calls a token.

An engine takes a schema and gives a `Start`, from which every document begins anew. All engines get
the same bytes for the same ids, run in one thread, and keep nothing between schemas that they offer
to switch off.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from logitkit.grammar.vocabulary import Vocabulary


@dataclass(frozen=True)
class Run:
    """One document in the making. `mask` and `accept` are timed, the others are not."""

    mask: Callable[[], Any]  # computes the next mask; what it returns goes to `words`
    accept: Callable[[int], Any]
    words: Callable[[Any], np.ndarray[Any, Any]]  # a mask as int32 words, least bit first
    ends: Callable[[np.ndarray[Any, Any]], bool]  # whether eos is allowed, given the words


Start = Callable[[], Run]
Engine = Callable[[Any], Start]  # a schema is compiled; any exception is a refusal


def installed(name: str) -> bool:
    return name.startswith("logitkit") or importlib.util.find_spec(name) is not None


def token_bytes(vocabulary: Vocabulary) -> list[bytes]:
    return [vocabulary.spell([i]) for i in range(vocabulary.size)]


def _eos_bit(vocabulary: Vocabulary) -> Callable[[np.ndarray[Any, Any]], bool]:
    bits = [(i >> 5, i & 31) for i in vocabulary.eos_token_ids]
    return lambda words: any(int(words[word]) >> bit & 1 for word, bit in bits)


def logitkit(vocabulary: Vocabulary, work_ahead: bool = False) -> Engine:
    """Ours; with `work_ahead` every grammar builds its rows as part of compiling."""
    from logitkit.grammar import JsonSchema, compile_grammar
    from logitkit.grammar.compile import clear_cache

    ends = _eos_bit(vocabulary)
    # As long as one grammar lives, so does what all grammars of a vocabulary share.
    alive = compile_grammar(JsonSchema({"type": "null"}), vocabulary)

    def compile_(schema: Any) -> Start:
        clear_cache()
        assert alive.vocabulary is vocabulary
        grammar = compile_grammar(JsonSchema(schema), vocabulary)
        if work_ahead:
            grammar.warm()

        def start() -> Run:
            matcher = grammar.matcher()
            return Run(matcher.mask, matcher.accept, lambda mask: mask.numpy(), ends)

        return start

    return compile_


def xgrammar_compiler(vocabulary: Vocabulary) -> Any:
    import xgrammar as xgr

    info = xgr.TokenizerInfo(
        token_bytes(vocabulary),
        xgr.VocabType.RAW,
        vocab_size=vocabulary.size,
        stop_token_ids=list(vocabulary.eos_token_ids),
    )
    return xgr.GrammarCompiler(
        info, max_threads=1, cache_enabled=False, enable_dynamic_compilation=True
    )


def xgrammar(vocabulary: Vocabulary) -> Engine:
    import torch
    import xgrammar as xgr

    compiler = xgrammar_compiler(vocabulary)
    bitmask = torch.full(xgr.get_bitmask_shape(1, vocabulary.size), -1, dtype=torch.int32)
    words, ends = bitmask[0].numpy(), _eos_bit(vocabulary)

    def compile_(schema: Any) -> Start:
        compiled = compiler.compile_json_schema(json.dumps(schema), strict_mode=False)

        def start() -> Run:
            matcher = xgr.GrammarMatcher(compiled)
            fill = partial(matcher.fill_next_token_bitmask, bitmask, 0)
            return Run(fill, matcher.accept_token, lambda _: words, ends)

        return start

    return compile_


def llguidance_tokenizer(vocabulary: Vocabulary) -> Any:
    from llguidance import LLTokenizer, TokenizerWrapper

    class Bytes:
        eos_token_id, bos_token_id = vocabulary.eos_token_ids[0], None
        tokens = token_bytes(vocabulary)
        special_token_ids = (*vocabulary.eos_token_ids, *sum(vocabulary.controls.values(), ()))

        def __call__(self, text: bytes) -> list[int]:
            return vocabulary.tokenize(text)

    return LLTokenizer(
        TokenizerWrapper(Bytes()),
        eos_token=list(vocabulary.eos_token_ids),
        slices=LLTokenizer.json_slices(),
    )


def llguidance(vocabulary: Vocabulary) -> Engine:
    from llguidance import LLMatcher

    tokenizer = llguidance_tokenizer(vocabulary)
    words, ends = np.zeros((vocabulary.size + 31) // 32, np.int32), _eos_bit(vocabulary)

    def compile_(schema: Any) -> Start:
        first = LLMatcher(
            tokenizer, LLMatcher.grammar_from_json_schema(json.dumps(schema)), log_level=0
        )
        if first.is_error():
            raise ValueError(first.get_error())

        def start() -> Run:
            matcher = first.deep_copy()
            fill = partial(matcher.unsafe_compute_mask_ptr, words.ctypes.data, words.nbytes)
            return Run(fill, matcher.consume_token, lambda _: words, ends)

        return start

    return compile_


def glrmask(vocabulary: Vocabulary) -> Engine:
    from glrmask import Grammar, Vocab

    known = Vocab.from_id_to_bytes({i: b for i, b in enumerate(token_bytes(vocabulary)) if b})

    def compile_(schema: Any) -> Start:
        constraint = Grammar.from_json_schema(json.dumps(schema)).compile(known)
        words = np.zeros(max(constraint.mask_len(), (vocabulary.size + 31) // 32), np.int32)

        def start() -> Run:
            state = constraint.start()
            fill = partial(state.fill_mask, words)
            return Run(fill, state.commit_token, lambda _: words, lambda _: state.is_accepting())

        return start

    return compile_


def maskforge(vocabulary: Vocabulary) -> Engine:
    import maskforge as mf

    known = mf.Vocabulary.from_id_ordered_tokens(
        [spelled or None for spelled in token_bytes(vocabulary)],
        eos_token_id=vocabulary.eos_token_ids[0],
    )
    compiler, ends = mf.Compiler.without_cache(), _eos_bit(vocabulary)

    def compile_(schema: Any) -> Start:
        bound = compiler.compile(schema).bind(known)
        buffer = bytearray(4 * bound.mask_word_count)
        words = np.frombuffer(buffer, np.int32)

        def start() -> Run:
            session = bound.start_session()
            return Run(partial(session.write_mask, buffer), session.advance, lambda _: words, ends)

        return start

    return compile_


ENGINES: dict[str, Callable[[Vocabulary], Engine]] = {
    "logitkit": logitkit,
    "logitkit_warm": partial(logitkit, work_ahead=True),
    "xgrammar": xgrammar,
    "llguidance": llguidance,
    "glrmask": glrmask,
    "maskforge": maskforge,
}
