"""The sorted trie and the slices of the vocabulary."""

from __future__ import annotations

import numpy as np
from toy import ToyVocabulary, toy_vocabulary

from logitkit.grammar.machine import JSON_TEXT, PLAIN_TEXT
from logitkit.grammar.trie import Slices, Trie, make_tries, pack


def tries_of(vocabulary: ToyVocabulary) -> dict[int, Trie]:
    return make_tries(vocabulary.data, vocabulary.offsets, slices_of(vocabulary))


def slices_of(vocabulary: ToyVocabulary) -> Slices:
    return Slices(vocabulary.data, vocabulary.offsets, -(-vocabulary.size // 32))


def tokens_of(row: np.ndarray) -> set[int]:
    bits = np.unpackbits(row.view(np.uint8), bitorder="little")
    return set(np.flatnonzero(bits).tolist())


def spelled(trie: Trie) -> dict[int, bytes]:
    """Token -> bytes, read from the trie alone."""
    texts, path = {}, bytearray()
    for node in range(len(trie.nodes) - 1):
        depth, byte = divmod(int(trie.nodes[node, 0]), 256)
        path[depth:] = [byte]
        for token in trie.ids[trie.nodes[node, 2] : trie.nodes[node + 1, 2]].tolist():
            texts[token] = bytes(path)
    return texts


def is_plain(text: bytes) -> bool:
    """The slice PLAIN_TEXT by Python's own decoder."""
    try:
        return bool(text) and all(c >= " " and c != "\x7f" for c in text.decode())
    except UnicodeDecodeError:
        return False


def test_a_trie_spells_its_tokens_and_every_subtree_starts_alike() -> None:
    vocabulary = toy_vocabulary()
    texts = {t: s for t in range(vocabulary.size) if (s := vocabulary.bytes_of(t))}
    trie = tries_of(vocabulary)[0]
    assert spelled(trie) == texts
    tokens = list(spelled(trie))
    assert tokens == trie.ids.tolist() and len(tokens) == len(texts)
    nodes = trie.nodes
    for node in range(len(nodes) - 1):
        below = trie.ids[nodes[node, 2] : nodes[nodes[node, 1], 2]].tolist()
        prefix = texts[below[0]][: (nodes[node, 0] >> 8) + 1]
        assert below and {t for t, s in texts.items() if s.startswith(prefix)} == set(below)
    for byte in range(256):
        first = trie.ids[nodes[trie.roots[byte], 2] : nodes[trie.roots[byte + 1], 2]].tolist()
        assert set(first) == {t for t, s in texts.items() if s[0] == byte}


def test_slices_and_what_is_left_of_them() -> None:
    vocabulary = toy_vocabulary()
    texts = {t: s for t in range(vocabulary.size) if (s := vocabulary.bytes_of(t))}
    plain = {t for t, s in texts.items() if is_plain(s)}
    json = {t for t in plain if not set(b'"\\') & set(texts[t])}
    tries = tries_of(vocabulary)
    for slice_, inside in ((0, set()), (PLAIN_TEXT, plain), (JSON_TEXT, json)):
        assert tokens_of(slices_of(vocabulary).row(slice_, 0)) == inside
        assert set(spelled(tries[slice_])) == texts.keys() - inside
        for most in (1, 2, 3, 21, 301):
            short = {t for t in inside if len(texts[t].decode()) < most}
            assert tokens_of(slices_of(vocabulary).row(slice_, most)) == short
    assert json < plain < texts.keys()


def test_utf8_is_judged_as_python_does() -> None:
    """Every first byte with every second, and third bytes at the edges."""
    pairs = [bytes([a, b]) for a in range(0x80, 256) for b in range(256)]
    longer = [bytes([a, b, c]) for a in range(0xDF, 0xF6) for b in range(0x7E, 0xC2)
              for c in (0x7F, 0x80, 0xBF, 0xC0)]  # fmt: skip
    four = [bytes([a, b, 0x80, c]) for a in range(0xEF, 0xF6) for b in range(0x7E, 0xC2)
            for c in (0x7F, 0x80, 0xBF, 0xC0)]  # fmt: skip
    tokens = pairs + longer + four
    row = slices_of(ToyVocabulary(tokens, ())).row(PLAIN_TEXT, 0)
    assert tokens_of(row) == {t for t, text in enumerate(tokens) if is_plain(text)}


def test_a_row_has_token_t_at_word_t_over_32_from_the_lowest_bit() -> None:
    row = pack(np.isin(np.arange(70), [0, 31, 33, 69]), 3)
    assert row.tolist() == [1 - 2**31, 2, 32] and row.dtype == np.int32


def test_a_vocabulary_that_is_one_slice_leaves_an_empty_trie() -> None:
    tries = tries_of(ToyVocabulary([b"a", b"ab", "é".encode()], ()))
    assert len(tries[JSON_TEXT].nodes) == 1 and not tries[JSON_TEXT].roots.any()
