"""logitkit: everything between a language model's logits and its next token."""

from logitkit import stages
from logitkit.batch import Batch
from logitkit.draft import Draft
from logitkit.errors import BadLogitsError, EmptyRowError, RowError
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
    "LogitsPipeline",
    "Plan",
    "RowError",
    "Rows",
    "SamplingParams",
    "Stage",
    "stages",
]
