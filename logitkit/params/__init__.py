"""What a caller wants: `SamplingParams`, its checks, and the spellings of other systems."""

from logitkit.params.sampling_params import ResolvedParams, SamplingParams, resolve

__all__ = ["ResolvedParams", "SamplingParams", "resolve"]
