"""A model with its cache and its mask: `tokens -> logits`, and nothing else.

Sits below `generation`, whose loop calls `prefill` once, then the object itself per step, then
`keep` when drafts were refused. Every fact that changes between transformers releases lives here:
which inputs a forward takes (`model`), the name of the cache and what it can undo (`cache`), where
a config keeps its sizes (`config`), how an output is built (`output`).
"""

from logitkit.causal_lm.config import table_length
from logitkit.causal_lm.model import CausalLM
from logitkit.causal_lm.output import DecoderOnlyOutput, decoder_only_output

__all__ = ["CausalLM", "DecoderOnlyOutput", "decoder_only_output", "table_length"]
