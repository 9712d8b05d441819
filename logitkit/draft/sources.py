"""`as_source`: what `draft=` may be, as a draft source.

The door of the package; above every source, below `generation`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transformers import PreTrainedModel

from logitkit.draft.adjacency import AdjacencyDraft
from logitkit.draft.cascade import Cascade
from logitkit.draft.grammar import GrammarDraft
from logitkit.draft.model import ModelDraft
from logitkit.draft.ngram import NgramDraft
from logitkit.draft.source import DraftSource
from logitkit.draft.users import proposing
from logitkit.params.checks import kind

# Built anew at every call: a name remembers nothing. "auto" leaves out what rarely pays: beside
# n-grams, the table of successors brought nothing on SmolLM2 (modelled speed-up 1.97 with and
# without it, greedy), and it costs a look at every row of logits.
NAMES: dict[str, Callable[[], DraftSource]] = {
    "adjacency": AdjacencyDraft,
    "auto": lambda: Cascade(GrammarDraft(), NgramDraft()),
    "grammar": GrammarDraft,
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
    if (source := proposing(draft)) is not None:
        return source
    model = getattr(draft, "_orig_mod", draft)
    if isinstance(model, PreTrainedModel) or hasattr(model, "get_base_model"):
        return ModelDraft(draft)
    raise ValueError(
        f"`draft` is {kind(draft)}: give a draft source, a transformers model with the target's "
        f"tokenizer, or one of {', '.join(NAMES)}"
    )
