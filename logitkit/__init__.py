"""logitkit: everything between a language model's logits and its next token."""

from logitkit import chains, stages
from logitkit.batch import Batch
from logitkit.draft import Draft
from logitkit.errors import BadLogitsError, EmptyRowError, RowError
from logitkit.generation import GenerationStrategy, Sampling, generate
from logitkit.params import SamplingParams
from logitkit.pipeline import LogitsPipeline
from logitkit.plan import Plan
from logitkit.rows import Rows
from logitkit.stage import Stage
from logitkit.stages import DEFAULT_STAGES

__all__ = [
    "DEFAULT_STAGES",
    "BadLogitsError",
    "Batch",
    "Draft",
    "EmptyRowError",
    "GenerationStrategy",
    "LogitsPipeline",
    "Plan",
    "RowError",
    "Rows",
    "Sampling",
    "SamplingParams",
    "Stage",
    "chains",
    "generate",
    "stages",
]
