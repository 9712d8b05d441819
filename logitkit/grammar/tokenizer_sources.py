"""Tokenizers of many makers, read by what they can do: bytes, controls, eos, encode and decode.

Used by `Vocabulary.from_tokenizer`. Nothing here imports a tokenizer library: an object is told by
the methods that it has. Known are transformers' tokenizers (fast, slow, mistral-common's), the
`tokenizers` library's, tiktoken's encodings, sentencepiece's processors, mistral-common's
tokenizers, and objects that hold one of these in `tokenizer` or `_tokenizer`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from logitkit.grammar.tokenizer_bytes import looks_like_control, spell

PROBES = ("Hello, world 12", "A na\u00efve caf\u00e9")


@dataclass(frozen=True)
class Source:
    """A tokenizer, read. Ids that are in neither dict are holes."""

    text: Mapping[int, bytes]  # the bytes of the tokens that are text
    controls: Mapping[int, str]  # the content of the control tokens
    eos_token_ids: tuple[int, ...]
    encode: Callable[[str], list[int]]  # without special tokens around
    decode: Callable[[list[int]], str] | None = None  # None: `text` needs no check


def read(tokenizer: Any) -> Source:
    """Return what `tokenizer` holds; raises ValueError where it is none, or spells otherwise."""
    source = _read(tokenizer)
    if source is None:
        raise ValueError(
            f"tokenizer={type(tokenizer).__name__} is not known: pass a tokenizer of transformers, "
            "tokenizers, tiktoken, sentencepiece or mistral-common, or build "
            "Vocabulary(token_bytes, eos_token_id) from the bytes of every token"
        )
    _check(tokenizer, source)
    return source


def _read(tokenizer: Any) -> Source | None:
    backend = getattr(tokenizer, "backend_tokenizer", None)  # transformers' fast ones
    if backend is not None:
        return _tokenizers(backend, tokenizer)
    for holder in (tokenizer, getattr(tokenizer, "tokenizer", None)):
        instruct = getattr(holder, "instruct_tokenizer", None)  # mistral-common, transformers' too
        if instruct is not None:
            return _mistral(instruct.tokenizer)
    for methods, reader in _READERS:
        if all(hasattr(tokenizer, name) for name in methods):
            return reader(tokenizer)
    for name in ("_tokenizer", "tokenizer"):
        inner = getattr(tokenizer, name, None)
        if inner is not None:
            return _read(inner)
    return None


def _tokenizers(tokenizer: Any, owner: Any = None) -> Source:
    """The `tokenizers` library's Tokenizer; `owner` is transformers' tokenizer around it."""
    model, count = tokenizer.model, tokenizer.get_vocab_size(with_added_tokens=False)
    pieces = {i: piece for i in range(count) if (piece := model.id_to_token(i)) is not None}
    if len(pieces) != count:  # There are holes; this takes twice as long.
        pieces = {i: piece for piece, i in tokenizer.get_vocab(with_added_tokens=False).items()}
    added = tokenizer.get_added_tokens_decoder()
    special = {i for i, token in added.items() if token.special} | _special_ids(owner)
    unknown = getattr(model, "unk_token", None)
    if isinstance(unknown, str):
        special.add(tokenizer.token_to_id(unknown))
    return _from_pieces(
        pieces,
        {i: token.content for i, token in added.items()},
        special,
        _eos(owner),
        encode=lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids),
        decode=lambda ids: str(tokenizer.decode(ids, skip_special_tokens=False)),
    )


def _python(tokenizer: Any) -> Source:
    """transformers' slow tokenizers, and objects with the same methods."""
    added = getattr(tokenizer, "added_tokens_decoder", {})
    # Added tokens with ids below `vocab_size` are the special ones among the model's pieces.
    outside = {i for i in added if i >= getattr(tokenizer, "vocab_size", 0)}
    return _from_pieces(
        {i: piece for piece, i in tokenizer.get_vocab().items() if i not in outside},
        {i: str(token) for i, token in added.items()},
        {i for i, token in added.items() if token.special} | _special_ids(tokenizer),
        _eos(tokenizer),
        encode=lambda text: list(tokenizer.encode(text, add_special_tokens=False)),
        decode=lambda ids: str(tokenizer.decode(ids, clean_up_tokenization_spaces=False)),
    )


def _from_pieces(
    pieces: Mapping[int, str | bytes],
    added: Mapping[int, str],
    special: Collection[int],
    eos_token_ids: tuple[int, ...],
    encode: Callable[[str], list[int]],
    decode: Callable[[list[int]], str],
) -> Source:
    """Make a source of the model's pieces (bytes where they are known) and the added tokens.

    An added token that is a piece as well, and no control token, is spelled as the piece; any other
    as its content, a U+2581 in it included.
    """
    controls = {
        i: content for i, content in added.items() if i in special or looks_like_control(content)
    }
    controls |= {i: str(pieces[i]) for i in special if i in pieces and i not in controls}
    known = {i: p for i, p in pieces.items() if isinstance(p, bytes) and i not in controls}
    spelled = spell({i: p for i, p in pieces.items() if isinstance(p, str) and i not in controls})
    literal = {
        i: content.encode("utf-8", "ignore")
        for i, content in added.items()
        if i not in controls and i not in pieces
    }
    return Source(spelled | known | literal, controls, eos_token_ids, encode, decode)


def _tiktoken(tokenizer: Any) -> Source:
    """tiktoken's Encoding, which knows its bytes."""
    special = tokenizer.special_tokens_set
    controls = {tokenizer.encode_single_token(content): content for content in special}
    text: dict[int, bytes] = {}
    for token in range(tokenizer.n_vocab):
        if token not in controls:
            try:
                text[token] = tokenizer.decode_single_token_bytes(token)
            except KeyError:  # a hole
                continue
    eos = (tokenizer.eot_token,) if "<|endoftext|>" in special else ()
    return Source(text, controls, eos, tokenizer.encode_ordinary)


def _mistral(tokenizer: Any) -> Source:
    """mistral-common's tokenizers: Tekken, which knows its bytes, and sentencepiece."""
    ids = range(tokenizer.n_words)
    special = {i for i in ids if tokenizer.is_special(i)} | {tokenizer.unk_id}
    return Source(
        {i: tokenizer.id_to_byte_piece(i) for i in ids if i not in special}
        if hasattr(tokenizer, "id_to_byte_piece")
        else spell({i: tokenizer.id_to_piece(i) for i in ids if i not in special}),
        {i: tokenizer.id_to_piece(i) for i in special},
        (tokenizer.eos_id,),
        encode=lambda text: list(tokenizer.encode(text, bos=False, eos=False)),
        decode=tokenizer.decode,
    )


def _sentencepiece(tokenizer: Any) -> Source:
    """sentencepiece's SentencePieceProcessor."""
    ids = [i for i in range(tokenizer.get_piece_size()) if not tokenizer.is_unused(i)]
    special = {i for i in ids if tokenizer.is_control(i) or tokenizer.is_unknown(i)}
    return Source(
        spell({i: tokenizer.id_to_piece(i) for i in ids if i not in special}),
        {i: tokenizer.id_to_piece(i) for i in special},
        (tokenizer.eos_id(),) if tokenizer.eos_id() >= 0 else (),
        tokenizer.encode,
        tokenizer.decode,
    )


_READERS: tuple[tuple[tuple[str, ...], Callable[[Any], Source]], ...] = (
    (("get_vocab", "get_added_tokens_decoder", "model"), _tokenizers),
    (("encode_ordinary", "decode_single_token_bytes", "n_vocab"), _tiktoken),
    (("is_special", "id_to_piece", "n_words"), _mistral),
    (("get_piece_size", "id_to_piece", "is_control", "is_unused"), _sentencepiece),
    (("get_vocab", "encode", "decode"), _python),
)


def _special_ids(owner: Any) -> set[int]:
    return {i for i in getattr(owner, "all_special_ids", ()) if i is not None}


def _eos(owner: Any) -> tuple[int, ...]:
    ids = getattr(owner, "eos_token_id", None)
    return () if ids is None else (ids,) if isinstance(ids, int) else tuple(ids)


def _check(tokenizer: Any, source: Source) -> None:
    """Raise ValueError where tokens spell something else than the tokenizer's own decoder says.

    This finds wordpiece vocabularies and others that mark the ends of words. Spaces at the
    beginning are left out, since sentencepiece's decoders strip them.
    """
    if source.decode is None:
        return
    for probe in PROBES:
        ids = source.encode(probe)
        if any(i not in source.text for i in ids):  # a character that is unknown to it
            continue
        spelled = b"".join(source.text[i] for i in ids).decode("utf-8", "replace")
        decoded = source.decode(ids)
        if decoded.lstrip(" ") != spelled.lstrip(" "):
            raise ValueError(
                f"tokenizer={type(tokenizer).__name__} has a vocabulary of an unknown kind: its "
                f"tokens spell {spelled!r} where it decodes {decoded!r}. Known are byte-level BPE, "
                "sentencepiece and tiktoken; for others build Vocabulary(token_bytes, "
                "eos_token_id) from the bytes of every token"
            )
