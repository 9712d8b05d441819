"""logitkit: everything between a language model's logits and its next token."""

from logitkit import chains, stages
from logitkit.batch import Batch
from logitkit.draft import Draft, DraftSource
from logitkit.draft.adjacency import AdjacencyDraft
from logitkit.draft.cascade import Cascade
from logitkit.draft.grammar import GrammarDraft
from logitkit.draft.model import ModelDraft
from logitkit.draft.ngram import NgramDraft, NgramMemory
from logitkit.errors import BadLogitsError, EmptyRowError, GrammarError, RowError
from logitkit.generation import (
    ForwardMode,
    GenerationStrategy,
    Sampling,
    Speculation,
    Speculative,
    generate,
)
from logitkit.grammar import (
    Budget,
    Choice,
    CompiledGrammar,
    Ebnf,
    JsonSchema,
    Matcher,
    MatcherBatch,
    Regex,
    StructuralTag,
    Vocabulary,
    compile_grammar,
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
    "Budget",
    "Cascade",
    "Choice",
    "CompiledGrammar",
    "Draft",
    "DraftSource",
    "Ebnf",
    "EmptyRowError",
    "ForwardMode",
    "GenerationStrategy",
    "GrammarDraft",
    "GrammarError",
    "JsonSchema",
    "LogitsPipeline",
    "Matcher",
    "MatcherBatch",
    "ModelDraft",
    "NgramDraft",
    "NgramMemory",
    "Plan",
    "Regex",
    "RowError",
    "Rows",
    "Sampling",
    "SamplingParams",
    "Speculation",
    "Speculative",
    "Stage",
    "StructuralTag",
    "Vocabulary",
    "chains",
    "compile_grammar",
    "generate",
    "stages",
]
