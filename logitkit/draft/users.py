"""`proposing`: a user's own object as a draft source, whatever class it is of.

Above `draft.source`, below `draft.cascade` and the door.
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

from torch import Tensor

from logitkit.draft.source import Draft, DraftSource
from logitkit.params.checks import kind, shown

_SIGNATURES = {
    "propose": ("batch", "k"),
    "start": ("batch",),
    "observe": ("batch", "num_tokens", "logits"),
}


def proposing(source: Any) -> DraftSource | None:
    """`source` if it is a `DraftSource`, wrapped if it has a method `propose`, else None.

    Errors: ValueError for a class in the place of an object, for a `cost` that is no number from 0,
    and for methods that cannot be called as a source's are.
    """
    if isinstance(source, type):
        raise ValueError(f"`draft` is the class {source.__name__}: give an object of it")
    if not isinstance(source, DraftSource) and not callable(getattr(source, "propose", None)):
        return None
    cost = getattr(source, "cost", 0.0)
    is_number = isinstance(cost, int | float) and not isinstance(cost, bool)
    if not is_number or not 0 <= cost < float("inf"):
        raise ValueError(
            f"`draft`: the `cost` of {type(source).__name__} is {shown(cost)}: give the time of "
            "one proposed token in plain steps, a number from 0"
        )
    return source if isinstance(source, DraftSource) else UsersSource(source)


class UsersSource(DraftSource):
    """An object with `propose` and perhaps the other methods, which are taken as they are."""

    def __init__(self, source: Any) -> None:
        for name, arguments in _SIGNATURES.items():
            method = getattr(source, name, None)
            if method is None:
                continue
            try:
                inspect.signature(method).bind(*arguments)
            except TypeError as error:
                raise ValueError(
                    f"`draft`: {type(source).__name__}.{name} must take "
                    f"({', '.join(arguments)}): {error}"
                ) from None
        self.source = source
        self.label = str(getattr(source, "label", "") or type(source).__name__)
        self.cost = float(getattr(source, "cost", 0.0))

    def start(self, batch: Any) -> None:
        """Hand on to the object, if it wants to know."""
        if hasattr(self.source, "start"):
            self.source.start(batch)

    def propose(self, batch: Any, k: int) -> Draft:
        """What the object proposes, under its name."""
        draft = self.source.propose(batch, k)
        if not isinstance(draft, Draft):
            raise ValueError(
                f"`draft`: {type(self.source).__name__}.propose returned {kind(draft)}: "
                "return an lk.Draft(tokens, lengths)"
            )
        return draft if draft.label else dataclasses.replace(draft, label=self.label)

    def observe(self, batch: Any, num_tokens: Tensor, logits: Tensor) -> None:
        """Hand on to the object, if it wants to know."""
        if hasattr(self.source, "observe"):
            self.source.observe(batch, num_tokens, logits)
