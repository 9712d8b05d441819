"""Our own loop: `generate`, its door, and the strategies behind it."""

from logitkit.generation.door import generate
from logitkit.generation.strategy import GenerationStrategy, Sampling

__all__ = ["GenerationStrategy", "Sampling", "generate"]
