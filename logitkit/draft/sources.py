"""`as_source`: what `draft=` may be, as a draft source.

The door of the package; above every source, below `generation`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from logitkit.draft.adjacency import AdjacencyDraft
from logitkit.draft.cascade import Cascade
from logitkit.draft.model import ModelDraft
from logitkit.draft.ngram import NgramDraft
from logitkit.draft.source import Draft, DraftSource
from logitkit.params.checks import kind

# Built anew at every call: a name remembers nothing.
NAMES: dict[str, Callable[[], DraftSource]] = {
    "adjacency": AdjacencyDraft,
    "auto": lambda: Cascade(NgramDraft(), AdjacencyDraft()),
    "ngram": NgramDraft,
}


def as_source(draft: Any) -> DraftSource:
    """The source that `draft` names or is: a source, a transformers model, or a name.

    An object with a method `propose(batch, k)` alone is a source too. Errors: ValueError.
    """
    if isinstance(draft, str):
        if draft not in NAMES:
            raise ValueError(
                f"`draft`={draft!r} is no source's name; the names are {', '.join(NAMES)}"
            )
        return NAMES[draft]()
    if isinstance(draft, type):
        raise ValueError(f"`draft` is the class {draft.__name__}: give an object of it")
    if isinstance(draft, DraftSource):
        return draft
    model = getattr(draft, "_orig_mod", draft)
    if isinstance(model, PreTrainedModel) or hasattr(model, "get_base_model"):
        return ModelDraft(draft)
    if callable(getattr(draft, "propose", None)):
        return UsersSource(draft)
    raise ValueError(
        f"`draft` is {kind(draft)}: give a draft source, a transformers model with the target's "
        f"tokenizer, or one of {', '.join(NAMES)}"
    )


class UsersSource(DraftSource):
    """An object with `propose` and perhaps the other methods, which are taken as they are."""

    def __init__(self, source: Any) -> None:
        for name, count in (("propose", 2), ("start", 1), ("observe", 3)):
            method = getattr(source, name, None)
            if method is None:
                continue
            try:
                inspect.signature(method).bind(*range(count))
            except TypeError as error:
                names = ("batch, k", "batch", "batch, num_tokens, logits")[(2, 1, 3).index(count)]
                raise ValueError(
                    f"`draft`: {type(source).__name__}.{name} must take ({names}): {error}"
                ) from None
        self.source = source
        self.label = str(getattr(source, "label", "") or type(source).__name__)
        self.cost = float(getattr(source, "cost", 0.0))

    def start(self, batch: Any) -> None:
        """Hand on to the object, if it wants to know."""
        if hasattr(self.source, "start"):
            self.source.start(batch)

    def propose(self, batch: Any, k: int) -> Draft:
        """What the object proposes."""
        draft: Draft = self.source.propose(batch, k)
        return draft

    def observe(self, batch: Any, num_tokens: Tensor, logits: Tensor) -> None:
        """Hand on to the object, if it wants to know."""
        if hasattr(self.source, "observe"):
            self.source.observe(batch, num_tokens, logits)
