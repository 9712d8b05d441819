"""logitkit: everything between a language model's logits and its next token."""

from logitkit import chains, stages
from logitkit.batch import Batch
from logitkit.draft import Draft, DraftSource
from logitkit.draft.adjacency import AdjacencyDraft
from logitkit.draft.cascade import Cascade
from logitkit.draft.model import ModelDraft
from logitkit.draft.ngram import NgramDraft, NgramMemory
from logitkit.errors import BadLogitsError, EmptyRowError, RowError
from logitkit.generation import (
    ForwardMode,
    GenerationStrategy,
    Sampling,
    Speculation,
    Speculative,
    generate,
)
from logitkit.params import SamplingParams
from logitkit.pipeline import LogitsPipeline
from logitkit.plan import Plan
from logitkit.rows import Rows
from logitkit.stage import Stage
from logitkit.stages import DEFAULT_STAGES

__all__ = [
    "DEFAULT_STAGES",
    "AdjacencyDraft",
    "BadLogitsError",
    "Batch",
    "Cascade",
    "Draft",
    "DraftSource",
    "EmptyRowError",
    "ForwardMode",
    "GenerationStrategy",
    "LogitsPipeline",
    "ModelDraft",
    "NgramDraft",
    "NgramMemory",
    "Plan",
    "RowError",
    "Rows",
    "Sampling",
    "SamplingParams",
    "Speculation",
    "Speculative",
    "Stage",
    "chains",
    "generate",
    "stages",
]
