"""Tiny tokenizers of every kind of decoder, and walks of stop rules over their ids."""

from __future__ import annotations

from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast

from logitkit.params import ResolvedParams
from logitkit.stops import Finish, StopRules

END = "<|end|>"


def params(**fields: Any) -> ResolvedParams:
    return ResolvedParams(**fields)


def wrap(core: Tokenizer, **keywords: Any) -> Any:
    core.add_special_tokens([AddedToken(END, special=True)])
    make: Any = PreTrainedTokenizerFast
    return make(tokenizer_object=core, eos_token=END, **keywords)


def byte_level() -> Any:
    """One token a byte, and a few longer ones as merges make them."""
    pieces = [*sorted(ByteLevel.alphabet()), "Ġthe", "ing", "Ġa", "ab", "ĊĊ", "ðŁĺ", "STOP", "Ġ."]
    core = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, []))
    core.decoder = decoders.ByteLevel()
    return wrap(core)


def byte_fallback() -> Any:
    """Llama's kind: "▁" for a space, one leading space dropped, raw bytes as <0xHH>."""
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", "▁▁", "▁the", "ing", "▁a", "a", "b", "ab", "é", "€", ".", "\n", "STOP"]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    core = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    core.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return wrap(core)


def metaspace() -> Any:
    pieces = ["▁", "▁the", "ing", "▁a", "a", "b", "ab", ".", "\n", "▁STOP"]
    core = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, []))
    core.decoder = decoders.Metaspace()
    return wrap(core)


def word_piece() -> Any:
    """Tokens joined by spaces, some of which are cleaned up once the next token is there."""
    pieces = ["[UNK]", "the", "##ing", "a", "b", "##ab", ".", ",", "'", "n't", "'s", "do", "STOP"]
    core = Tokenizer(models.WordPiece({p: i for i, p in enumerate(pieces)}, unk_token="[UNK]"))
    core.decoder = decoders.WordPiece(cleanup=False)
    return wrap(core, clean_up_tokenization_spaces=True)


TOKENIZERS = {
    "byte_level": byte_level(),
    "byte_fallback": byte_fallback(),
    "metaspace": metaspace(),
    "word_piece": word_piece(),
}
BYTES = TOKENIZERS["byte_level"]


def ids_of(text: str, tokenizer: Any = BYTES) -> list[int]:
    """`text` byte by byte, with the end token where it is written."""
    ids = []
    for index, part in enumerate(text.split(END)):
        ids += [tokenizer.eos_token_id] if index else []
        spell = ByteLevel(add_prefix_space=False, use_regex=False)
        ids += [
            tokenizer.convert_tokens_to_ids(char)
            for piece, _ in spell.pre_tokenize_str(part)
            for char in piece
        ]
    return ids


def walk(rules: StopRules, ids: list[int]) -> int:
    """Pushes until the end; returns how many ids the request keeps."""
    for count, token in enumerate(ids, 1):
        if rules.push(token) is not None:
            return count
    return len(ids)


def ended(rules: StopRules, ids: list[int]) -> tuple[int, Finish | None, str]:
    return walk(rules, ids), rules.finish, rules.text
