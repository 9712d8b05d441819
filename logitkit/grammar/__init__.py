"""Structured output: grammars compiled to byte machines, and the masks that enforce them."""

from logitkit.grammar.compile import compile_grammar, compile_grammars
from logitkit.grammar.machine import Budget
from logitkit.grammar.matcher import CompiledGrammar, Matcher
from logitkit.grammar.matcher_batch import MatcherBatch
from logitkit.grammar.spec import Choice, Ebnf, JsonSchema, Regex, StructuralTag
from logitkit.grammar.vocabulary import Vocabulary

__all__ = [
    "Budget",
    "Choice",
    "CompiledGrammar",
    "Ebnf",
    "JsonSchema",
    "Matcher",
    "MatcherBatch",
    "Regex",
    "StructuralTag",
    "Vocabulary",
    "compile_grammar",
    "compile_grammars",
]
