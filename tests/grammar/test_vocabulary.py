"""`Vocabulary` on vocabularies small enough to write down."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from logitkit.grammar.tokenizer_bytes import kind_of, looks_like_control, spell
from logitkit.grammar.vocabulary import Vocabulary

FALLBACK = [f"<0x{byte:02X}>" for byte in range(256)]


def bytes_of(vocabulary: Vocabulary) -> list[bytes]:
    return [vocabulary.spell([i]) for i in range(vocabulary.size)]


def byte_fallback(*pieces: str, added: tuple[Any, ...] = ()) -> tokenizers.Tokenizer:
    """A sentencepiece-like tokenizer: <unk> 0, </s> 1, 256 bytes from 2 on, then `pieces`."""
    every = ["<unk>", "</s>", *FALLBACK, "\u2581", *pieces]
    model = models.BPE(
        {piece: i for i, piece in enumerate(every)}, [], unk_token="<unk>", byte_fallback=True
    )
    made = tokenizers.Tokenizer(model)
    made.normalizer = tokenizers.normalizers.Replace(" ", "\u2581")
    made.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    made.add_special_tokens(["</s>"])
    made.add_tokens(list(added))
    return made


def byte_level(*pieces: str, added: tuple[Any, ...] = ()) -> tokenizers.Tokenizer:
    """A GPT-2-like tokenizer: the 256 characters of the alphabet, then `pieces`."""
    every = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *pieces]
    made = tokenizers.Tokenizer(models.BPE({piece: i for i, piece in enumerate(every)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_tokens(list(added))
    return made


class TestArrays:
    def test_tokens_lie_one_after_the_other(self) -> None:
        vocabulary = Vocabulary([b"ab", None, b"\xe2\x82", b"ab", b""], eos_token_id=1)
        assert vocabulary.data.tobytes() == b"ab\xe2\x82ab"
        assert vocabulary.offsets.tolist() == [0, 2, 2, 4, 6, 6]
        assert vocabulary.data.dtype == np.uint8 and vocabulary.offsets.dtype == np.int64
        assert vocabulary.horizon == 2 and vocabulary.size == 5
        assert [i for i, known in enumerate(vocabulary.alphabet) if known] == [97, 98, 0x82, 0xE2]

    def test_arrays_cannot_be_written(self) -> None:
        vocabulary = Vocabulary([b"a", None], 1)
        for array in (vocabulary.data, vocabulary.offsets):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1

    def test_eos_and_control_tokens_are_no_text_whatever_their_bytes(self) -> None:
        vocabulary = Vocabulary(
            [b"a", b"</s>", b"<tool>", b"<end>"], [1, 3], controls={"<tool>": 2, "<end>": 3}
        )
        assert bytes_of(vocabulary) == [b"a", b"", b"", b""]
        assert vocabulary.eos_token_ids == (1, 3)
        assert vocabulary.controls == {"<tool>": (2,)}  # an eos is an eos, not a control
        assert not vocabulary.alphabet[ord("<")]

    def test_logits_may_be_wider_or_narrower_than_the_tokenizer(self) -> None:
        tokens = [b"a", None, b"bcd"]
        assert bytes_of(Vocabulary(tokens, 1, size=5)) == [b"a", b"", b"bcd", b"", b""]
        narrow = Vocabulary(tokens, 1, size=2)
        assert bytes_of(narrow) == [b"a", b""] and narrow.horizon == 1
        assert Vocabulary(tokens, 4, size=5).eos_token_ids == (4,)

    def test_several_eos_ids_are_kept_once_each(self) -> None:
        assert Vocabulary([b"a", None, None], np.array([2, 1, 2]).tolist()).eos_token_ids == (2, 1)

    def test_identity_tells_apart_what_acts_differently(self) -> None:
        def identity(*arguments: Any, **named: Any) -> str:
            return Vocabulary(*arguments, **named).identity

        tokens = [b"ab", b"c", None]
        assert identity(tokens, 2) == identity(tuple(tokens), [2])
        others = [
            identity([b"a", b"bc", None], 2),
            identity([b"ab", b"c", None, None], 2, size=4, controls={"<x>": 3}),
            identity([b"ab", b"c", None, None], [2, 3]),
            identity(tokens, 2, size=4),
            identity(tokens, 2, controls={"<x>": 1}),
        ]
        assert len({identity(tokens, 2), *others}) == 6

    def test_a_copy_is_the_same_object(self) -> None:
        vocabulary = Vocabulary([b"a", None], 1)
        assert copy.deepcopy(vocabulary) is vocabulary and copy.copy(vocabulary) is vocabulary


class TestErrors:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (([b"a", "b"], 0), r"token_bytes\[1\]='b' must be bytes"),
            (([b"a", np.bytes_(b"b")], 0), r"token_bytes\[1\]=.* must be bytes"),
            (([b"a"], []), r"eos_token_id=\[\] must name at least one token id"),
            (([b"a"], 1), r"eos_token_id=1: 1 must be a token id from 0 to size - 1 = 0"),
            (([b"a"], -1), "eos_token_id=-1"),
            (([b"a"], True), "eos_token_id=True"),
            (([b"a"], 0, 0), "size=0 must be a positive int"),
            (([b"a", b"b"], 0, None, {"<x>": 7}), r"controls\['<x>'\]=7"),
            (([None, b""], 0), "no token that is text"),
        ],
    )
    def test_the_door_names_the_field(self, arguments: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            Vocabulary(*arguments)

    def test_what_is_no_tokenizer_is_refused(self) -> None:
        with pytest.raises(ValueError, match="tokenizer=object is not known"):
            Vocabulary.from_tokenizer(object())

    def test_a_tokenizer_without_eos_asks_for_one(self) -> None:
        with pytest.raises(ValueError, match="pass eos_token_id="):
            Vocabulary.from_tokenizer(byte_level())

    def test_wordpiece_is_refused_since_its_tokens_do_not_spell_the_text(self) -> None:
        words = ["[UNK]", "[SEP]", "[CLS]", "hello", ",", "world", "##x", "12"]
        made = tokenizers.BertWordPieceTokenizer({word: i for i, word in enumerate(words)})
        with pytest.raises(ValueError, match=r"unknown kind.*'hello,world12'"):
            Vocabulary.from_tokenizer(made, eos_token_id=1)


class TestKinds:
    def test_byte_level_maps_the_alphabet_back(self) -> None:
        pieces = ["\u0120a", "\u010a", "\u00c3\u00a9", "\u0121", "x"]
        assert kind_of(pieces) == "byte level"
        assert list(spell(dict(enumerate(pieces))).values()) == [
            b" a",
            b"\n",
            b"\xc3\xa9",
            b"\x7f",
            b"x",
        ]

    def test_byte_level_pieces_outside_the_alphabet_are_literal(self) -> None:
        pieces = [f"\u0120{i}" for i in range(200)] + ["\u4e2d\u0120"]
        assert kind_of(pieces) == "byte level"
        assert spell(dict(enumerate(pieces)))[200] == "\u4e2d\u0120".encode()

    def test_plain_ascii_and_accents_are_text(self) -> None:
        assert kind_of(["abc", "d", "caf\u00e9"]) == "text"
        assert spell({3: "caf\u00e9", 5: "a b"}) == {3: b"caf\xc3\xa9", 5: b"a b"}
        assert kind_of([]) == "text"

    def test_sentencepiece_without_byte_fallback_writes_spaces_as_metaspace(self) -> None:
        assert spell({0: "\u2581the", 1: "s\u00f6"}) == {0: b" the", 1: b"s\xc3\xb6"}

    def test_byte_fallback_needs_half_of_the_bytes(self) -> None:
        assert kind_of(FALLBACK[:128]) == "byte fallback"
        assert kind_of(FALLBACK[:127]) == "text"
        spelled = spell(dict(enumerate([*FALLBACK, "\u2581a", "<0x0A>b", "\ud800"])))
        assert [spelled[0x0A], spelled[0xE2]] == [b"\n", b"\xe2"]
        assert [spelled[256], spelled[257], spelled[258]] == [b" a", b"<0x0A>b", b""]

    @pytest.mark.parametrize(
        ("text", "control"),
        [
            ("<think>", True),
            ("[INST]", True),
            ("<|a b|>", False),
            ("<", False),
            ("[]", False),
            ("x<y>", False),
            ("\n\n", False),
        ],
    )
    def test_control_tokens_are_shaped_like_tags(self, text: str, control: bool) -> None:
        assert looks_like_control(text) is control


class TestFromTokenizer:
    def test_byte_level_with_added_tokens(self) -> None:
        special = tokenizers.AddedToken("stop!", special=True)
        added = (special, "<think>", "   ", "\u4e2d\u6587", "\u00e9t\u00e9", "two words")
        vocabulary = Vocabulary.from_tokenizer(byte_level("\u0120a", added=added), eos_token_id=256)
        spelled = bytes_of(vocabulary)
        assert sorted(spelled[:256]) == [bytes([byte]) for byte in range(256)]
        assert spelled[256:259] == [b"", b"", b""]  # the eos was " a"; stop! and <think>
        assert spelled[259:] == [
            b"   ",
            "\u4e2d\u6587".encode(),
            "\u00e9t\u00e9".encode(),
            b"two words",
        ]
        assert vocabulary.controls == {"stop!": (257,), "<think>": (258,)}
        assert all(vocabulary.alphabet)

    def test_a_users_own_metaspace_in_an_added_token_stays(self) -> None:
        made = byte_fallback("\u2581a", "\u2581\u2581", added=("b\u2581c", "\u2581\u2581"))
        vocabulary = Vocabulary.from_tokenizer(made, eos_token_id=1)
        assert vocabulary.spell([258, 259, 260, 261]) == b"  a  b\xe2\x96\x81c"
        assert vocabulary.size == 262
        assert vocabulary.controls == {"<unk>": (0,)}
        assert bytes_of(vocabulary)[2:258] == [bytes([byte]) for byte in range(256)]

    def test_pieces_shaped_like_tags_are_text_unless_they_were_added(self) -> None:
        made = byte_fallback("<b>", "<c>", added=("<c>",))
        vocabulary = Vocabulary.from_tokenizer(made, eos_token_id=1)
        assert vocabulary.spell([259]) == b"<b>"
        assert vocabulary.controls == {"<unk>": (0,), "<c>": (260,)}

    def test_ids_that_no_token_has_are_no_text(self) -> None:
        made = tokenizers.Tokenizer(models.BPE({"a": 0, "b": 4}, []))
        made.decoder = decoders.Fuse()
        vocabulary = Vocabulary.from_tokenizer(made, size=6, eos_token_id=2)
        assert bytes_of(vocabulary) == [b"a", b"", b"", b"", b"b", b""]

    def test_size_drops_and_pads(self) -> None:
        made = byte_level("\u0120a")
        assert Vocabulary.from_tokenizer(made, 300, 0).size == 300
        narrow = Vocabulary.from_tokenizer(made, size=256, eos_token_id=0)
        assert narrow.size == 256 and b" a" not in bytes_of(narrow)
        with pytest.raises(ValueError, match="300 must be a token id"):
            Vocabulary.from_tokenizer(made, 256, 300)

    def test_one_vocabulary_for_a_tokenizer_while_somebody_holds_it(self) -> None:
        made = byte_level()
        first = Vocabulary.from_tokenizer(made, eos_token_id=0)
        assert Vocabulary.from_tokenizer(made, eos_token_id=[0]) is first
        assert Vocabulary.from_tokenizer(made, eos_token_id=1) is not first
        assert Vocabulary.from_tokenizer(byte_level(), eos_token_id=0) is not first
        made.add_tokens(["<x>"])
        assert Vocabulary.from_tokenizer(made, eos_token_id=0).controls == {"<x>": (256,)}
        gone = weakref.ref(first)
        del first
        gc.collect()
        assert gone() is None

    def test_methods_of_a_slow_tokenizer_are_enough(self) -> None:
        vocabulary = Vocabulary.from_tokenizer(SlowTokenizer())
        assert bytes_of(vocabulary) == [b"", b"a", b"", b" b", b"", b"</t> "]
        assert vocabulary.eos_token_ids == (0,) and vocabulary.controls == {"<s>": (2,)}
        assert vocabulary.tokenize(b"a b") == [1, 3]
        assert vocabulary.tokenize(b"aa") == [1, 1]


class AddedText(str):
    special = False


class SlowTokenizer:
    """Four pieces, a hole (4) and an added token (5), with the methods of transformers' own."""

    vocab_size = 5
    eos_token_id = 0
    all_special_ids = (0, 2)

    @property
    def added_tokens_decoder(self) -> dict[int, AddedText]:
        return {5: AddedText("</t> ")}

    def get_vocab(self) -> dict[str, int]:
        return {"</s>": 0, "a": 1, "<s>": 2, "\u2581b": 3, "</t> ": 5}

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        if text == "aa":
            return [2, 1, 1]  # adds a beginning, although it was told not to
        return [{"a": 1, " b": 3}.get(word, 2) for word in (text[:1], text[1:]) if word]

    def decode(self, ids: list[int], clean_up_tokenization_spaces: bool) -> str:
        return "".join({1: "a", 3: " b"}[i] for i in ids)


class TestTokenize:
    def test_without_a_tokenizer_the_longest_token_wins(self) -> None:
        vocabulary = Vocabulary([b"a", b"ab", b"abc", b"c", b"ab", None], 5)
        assert vocabulary.tokenize(b"abcabac") == [2, 1, 0, 3]
        assert vocabulary.tokenize(b"") == []

    def test_the_longest_token_gives_way_where_the_rest_could_not_be_spelled(self) -> None:
        vocabulary = Vocabulary([b"ab", b"a", b"bc", None], 3)
        assert vocabulary.tokenize(b"abc") == [1, 2]

    def test_bytes_that_no_token_spells_are_an_error(self) -> None:
        vocabulary = Vocabulary([b"ab", None], 1)
        with pytest.raises(ValueError, match="no token contains the byte 0x63"):
            vocabulary.tokenize(b"abc")
        with pytest.raises(ValueError, match="none fit"):
            vocabulary.tokenize(b"aab")

    def test_broken_utf8_is_spelled_too(self) -> None:
        vocabulary = Vocabulary.from_tokenizer(byte_level(), eos_token_id=0)
        data = b"a\xe2\x82\xff"
        assert vocabulary.spell(vocabulary.tokenize(data)) == data

    def test_the_content_of_a_special_token_is_spelled_as_text(self) -> None:
        made = byte_level(added=(tokenizers.AddedToken("<end>", special=True),))
        vocabulary = Vocabulary.from_tokenizer(made, eos_token_id=256)
        assert made.encode("<end>").ids == [256]
        assert vocabulary.spell(vocabulary.tokenize(b"x<end>")) == b"x<end>"

    def test_a_space_that_the_tokenizer_puts_first_is_left_out(self) -> None:
        made = byte_fallback("a", "\u2581a")
        made.normalizer = tokenizers.normalizers.Sequence(
            [tokenizers.normalizers.Prepend("\u2581"), made.normalizer]
        )
        vocabulary = Vocabulary.from_tokenizer(made, eos_token_id=1)
        assert vocabulary.spell(made.encode("a").ids) == b" a"
        assert vocabulary.tokenize(b"a") == [259]
