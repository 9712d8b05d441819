"""Our own loop: `generate`, its door, and the strategies behind it."""

from logitkit.generation.door import generate
from logitkit.generation.speculation import ForwardMode, Speculation
from logitkit.generation.speculative import Speculative
from logitkit.generation.strategy import GenerationStrategy, Sampling

__all__ = [
    "ForwardMode",
    "GenerationStrategy",
    "Sampling",
    "Speculation",
    "Speculative",
    "generate",
]
