"""The errors that callers may want to catch; everything else is a plain `ValueError` at the door.

    RuntimeError
      RowError              one or more rows of a step could not be decided
        EmptyRowError       every token of the row is masked
        BadLogitsError      the row holds NaN or +inf

A `RowError` is raised before anything of the step is committed, so the healthy requests can go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


class RowError(RuntimeError):
    """Some rows of a step could not be decided.

    `slots` are the requests concerned, `tokens` [R] the tokens that the healthy rows drew (-1 where
    there is none). `lk.generate` finishes the other requests first and then raises, with their
    result in `output`.
    """

    def __init__(self, message: str, slots: Sequence[int], tokens: torch.Tensor | None = None):
        super().__init__(message)
        self.slots = tuple(slots)
        self.tokens = tokens
        self.output: Any = None


class EmptyRowError(RowError):
    """A row has no token left; the message names the request and the stage that emptied it."""


class BadLogitsError(RowError):
    """A row holds NaN or +inf; the message names the request and where it was seen first."""


class GrammarError(ValueError):
    """A grammar cannot be enforced, is wrong, or exceeds a budget; the message says where and why.

    `where` is the JSON pointer or the line and column in the grammar's text, if known.
    """

    def __init__(self, message: str, where: str | None = None):
        super().__init__(message if where is None else f"{message} (at {where})")
        self.where = where
