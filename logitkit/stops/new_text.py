"""The text of a request's new tokens, decoded a few tokens at a time as they come.

Below `rules`, which search it; knows tokenizers and nothing of stops.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import regex

# Tokens that stay in the decoded window: enough to hold a split character and a stripped space.
_WINDOW = 8
# What a decoder writes for a character that has not all of its bytes yet.
_INCOMPLETE = "\ufffd"
# How byte-fallback vocabularies spell a raw byte.
_BYTE_TOKEN = regex.compile(r"<0x[0-9A-Fa-f]{2}>")


class Tokenizer(Protocol):
    """The one method that is needed of a tokenizer; every transformers tokenizer has it."""

    def decode(self, token_ids: Any, skip_special_tokens: bool = ...) -> Any: ...


class NewText:
    """The visible text of a growing list of ids, decoded a few ids at a time.

    The text is `head + decode(window)` at any time: the window, the last ids less `hidden` ones,
    covers whatever later tokens can still change (a split character, a run of byte tokens, spaces
    cleaned up).
    """

    def __init__(self, tokenizer: Tokenizer | None, hidden: frozenset[int]):
        self.ids: list[int] = []
        self._tokenizer = tokenizer
        self._hidden = hidden
        # Then spaces around punctuation come and go, in pairs that a border must not split.
        self._cleans_up = getattr(tokenizer, "clean_up_tokenization_spaces", False)
        self._num_read = 0
        self._window: list[int] = []
        self._head = ""
        self._tail = ""

    def decode(self, ids: list[int]) -> str:
        """The visible text of `ids`; raises ValueError without a tokenizer."""
        if self._tokenizer is None:
            raise ValueError("the text of a request needs a tokenizer: pass `tokenizer=`")
        if not ids:
            return ""
        text = self._tokenizer.decode(ids, skip_special_tokens=True)
        assert isinstance(text, str)
        return text

    def read(self) -> None:
        """Takes in the ids that were appended since the last call."""
        fresh = self.ids[self._num_read :]
        self._num_read = len(self.ids)
        self._window += [token for token in fresh if token not in self._hidden]
        self._tail = self.decode(self._window)

    def rewind(self, num_ids: int) -> None:
        """Forgets all but the first ids; the next `read` decodes them anew."""
        del self.ids[num_ids:]
        self._num_read, self._window, self._head, self._tail = 0, [], "", ""

    def reread(self) -> None:
        """Decodes everything anew, in one window."""
        self._num_read, self._window, self._head = 0, [], ""
        self.read()

    def since(self, reach: int | None) -> tuple[int, str]:
        """The window and `reach` characters before it (None: all), with the offset of its start.

        A character at the end that lacks bytes is left out.
        """
        offset = 0 if reach is None else max(0, len(self._head) - reach)
        return offset, (self._head[offset:] + self._tail).rstrip(_INCOMPLETE)

    def settle(self) -> None:
        """Shortens a long window to its last ids where no later token can tell the difference."""
        if len(self._window) < 2 * _WINDOW:
            return
        kept = self._window[-_WINDOW:]
        tail = self.decode(kept)
        # The kept ids must show something, so that a space stripped at the start of a decode and a
        # split character are behind them.
        if not tail.rstrip(_INCOMPLETE) or not self._tail.endswith(tail):
            return
        if self._open_bytes(kept) or (self._cleans_up and not tail.lstrip()[:1].isalnum()):
            return
        self._window = kept
        self._head += self._tail[: len(self._tail) - len(tail)]
        self._tail = tail

    def _open_bytes(self, ids: list[int]) -> bool:
        """True when nothing visible among `ids` closes a run of byte tokens.

        One wrong byte later on turns such a run, all of it, into replacement characters.
        """
        spell = getattr(self._tokenizer, "convert_ids_to_tokens", None)
        if spell is None:
            return False
        return all(piece is None or _BYTE_TOKEN.fullmatch(piece) for piece in spell(ids))


def hidden_tokens(tokenizer: Tokenizer | None) -> dict[str, int]:
    """Text -> id of the special tokens, which `decode` with `skip_special_tokens` leaves out."""
    added: Mapping[int, Any] = getattr(tokenizer, "added_tokens_decoder", {})
    hidden = {token.content: index for index, token in added.items() if token.special}
    texts = getattr(tokenizer, "all_special_tokens", ())
    hidden.update(zip(texts, getattr(tokenizer, "all_special_ids", ()), strict=True))
    hidden.pop("", None)
    return hidden
