"""`StopRules`: at which of its new tokens a request is over, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import regex

from logitkit.params import ResolvedParams
from logitkit.params.words import check_tokenizer
from logitkit.stops.new_text import NewText, Tokenizer, hidden_tokens

# A search runs for microseconds; only a pattern that backtracks without end reaches this.
REGEX_TIME_LIMIT = 1.0


class Finish(NamedTuple):
    """Why a request is over.

    `reason` is "eos", "stop" or "length". `matched` is the token id for eos and for a stop id, the
    string or the pattern for the other stops, None for the length.
    """

    reason: str
    matched: str | int | None


class StopRegexTimeout(RuntimeError):
    """A `stop_regex` search ran out of time; it concerns the request that asked for it only."""

    def __init__(self, pattern: str, seconds: float, num_tokens: int):
        super().__init__(
            f"`stop_regex` {pattern!r} took more than {seconds:g} s at new token {num_tokens}: "
            "rewrite the pattern without ambiguous repeats such as (a|aa)+, or use `stop`"
        )
        self.pattern = pattern
        self.seconds = seconds
        self.num_tokens = num_tokens
        self.slots: tuple[int, ...] = ()  # who, and the others' result, as in a `RowError`
        self.output: Any = None


class StopRules:
    """Watches the new tokens of one request and says at which of them it is over.

    A token is judged in this order: eos ids (unless `ignore_eos`, which cannot go beyond the end of
    a grammar), `stop_token_ids`, `stop` and `stop_regex`, then the length. The first
    `min_new_tokens` tokens end nothing but by length, and of the later ones only a match that
    reaches past the text of the first `min_new_tokens` counts.

    Strings and regexes are searched after every token in the new text as
    `tokenizer.decode(new_ids, skip_special_tokens=True)` gives it, less a character at its end that
    still lacks bytes. Of several matches the one that starts first wins, among those the one that
    ends first, then the order of the fields. A stop string that is a special token's text also
    matches that token, which the text does not show. A regex sees all new text so far, so `$` and
    `\\b` hold at its present end, and a search that takes longer than `regex_time_limit` seconds
    raises `StopRegexTimeout`.

    `needs_text` is False without `stop` and `stop_regex`: then nothing is ever decoded by `push`.
    `max_new_tokens` replaces the field of `params`; None there as well means no limit.

    Raises ValueError when strings or regexes come without a tokenizer that decodes, for a regex
    that does not compile or matches the empty string, and for a stop string that mixes a special
    token's text with other text.
    """

    def __init__(
        self,
        params: ResolvedParams,
        tokenizer: Tokenizer | None = None,
        max_new_tokens: int | None = None,
        *,
        regex_time_limit: float = REGEX_TIME_LIMIT,
    ):
        for field in ("stop", "stop_regex"):
            if getattr(params, field) and tokenizer is not None:
                check_tokenizer(tokenizer, "decode")
            elif getattr(params, field):
                raise ValueError(
                    f"`{field}` = {getattr(params, field)!r} needs text: pass `tokenizer=`, "
                    "or use `stop_token_ids`"
                )
        self.finish: Finish | None = None
        self.needs_text = bool(params.stop or params.stop_regex)
        self._min_new_tokens = params.min_new_tokens or 0
        self._max_new_tokens = params.max_new_tokens if max_new_tokens is None else max_new_tokens
        self._strings = params.stop
        self._patterns = [_compile(pattern) for pattern in params.stop_regex]
        self._regex_time_limit = regex_time_limit
        hidden = hidden_tokens(tokenizer) if self.needs_text else {}
        self._enders = _enders(params, hidden)
        # A new match may begin this many characters before the window; a regex anywhere.
        self._reach = None if self._patterns else max(map(len, self._strings), default=1) - 1
        self._past = -1  # a match counts when it ends behind this character
        self._cut: int | None = None
        self._last_is_text = True
        self._new = NewText(tokenizer, frozenset(hidden.values()))

    def push(self, token: int) -> Finish | None:
        """Takes the next new token; returns why the request is over, or None when it is not."""
        assert self.finish is None, "the request is over: no token may follow"
        ids = self._new.ids
        ids.append(token)
        if len(ids) > self._min_new_tokens:
            self.finish = self._enders.get(token)
            if self.finish is not None:
                self._last_is_text = False
                return self.finish
            if self.needs_text:
                self.finish = self._match()
        elif self.needs_text and len(ids) == self._min_new_tokens:
            self._new.read()
            self._past = len(self._new.since(None)[1])
        if self.finish is None and len(ids) == self._max_new_tokens:
            self.finish = Finish("length", None)
        return self.finish

    def rewind(self, num_tokens: int) -> None:
        """Take back all but the first `num_tokens` tokens; the request is not over then."""
        self.finish, self._cut, self._last_is_text = None, None, True
        self._new.rewind(num_tokens)

    @property
    def text(self) -> str:
        """The new text: `tokenizer.decode(new_ids, skip_special_tokens=True)`.

        Ends where a stop string or a regex match begins, and leaves out an eos or stop id that
        ended the request; the ids keep the tokens in both cases.
        """
        ids = self._new.ids
        return self._new.decode(ids if self._last_is_text else ids[:-1])[: self._cut]

    def _match(self) -> Finish | None:
        """Searches what the last token added; sets the cut when something matches."""
        self._new.read()
        found = self._search(*self._new.since(self._reach))
        if found is not None:
            # The cut is taken from one decode of everything, whatever the tokenizer does.
            self._new.reread()
            found = self._search(*self._new.since(None))
        if found is None:
            self._new.settle()
            return None
        self._cut = found[0]
        return Finish("stop", found[2])

    def _search(self, offset: int, text: str) -> tuple[int, int, str] | None:
        """First match (start, end, matched) in `text`, which begins at character `offset`."""
        past = self._past - offset
        found = []
        for stop in self._strings:
            start = text.find(stop, max(0, past + 1 - len(stop)))
            if start >= 0:
                found.append((start, start + len(stop), stop))
        for pattern in self._patterns:
            # Overlapped: a match that lies behind `past` must not hide one that starts inside it.
            matches = pattern.finditer(text, overlapped=True, timeout=self._regex_time_limit)
            try:
                span = next((match.span() for match in matches if match.end() > past), None)
            except TimeoutError:
                raise StopRegexTimeout(
                    pattern.pattern, self._regex_time_limit, len(self._new.ids)
                ) from None
            if span is not None:
                found.append((*span, pattern.pattern))
        return min(found, key=lambda match: match[:2], default=None)


def _compile(pattern: str) -> Any:
    try:
        compiled = regex.compile(pattern)
    except regex.error as error:
        raise ValueError(
            f"`stop_regex` {pattern!r} is no regular expression: {error.msg} at position "
            f"{error.pos}; escape characters that stand for themselves, or use `stop`"
        ) from None
    if compiled.match("") is not None:
        raise ValueError(
            f"`stop_regex` {pattern!r} matches the empty string and would end the request at its "
            "first token: let it need at least one character (for example + instead of *)"
        )
    return compiled


def _enders(params: ResolvedParams, hidden: Mapping[str, int]) -> dict[int, Finish]:
    """The tokens that end the request by themselves, each with the first rule that names it."""
    enders = {token: Finish("eos", token) for token in params.ending_eos_ids}
    for token in params.stop_token_ids:
        enders.setdefault(token, Finish("stop", token))
    for stop in params.stop:
        if stop in hidden:
            enders.setdefault(hidden[stop], Finish("stop", stop))
            continue
        inside = next((text for text in hidden if text in stop), None)
        if inside is not None:
            raise ValueError(
                f"`stop` {stop!r} holds the special token {inside!r}, which is no text: give that "
                f"token alone as a stop string, or `stop_token_ids=[{hidden[inside]}]`"
            )
    return enders
