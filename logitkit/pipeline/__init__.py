"""The door to transformers' own loop: `LogitsPipeline`."""

from logitkit.pipeline.door import LogitsPipeline

__all__ = ["LogitsPipeline"]
