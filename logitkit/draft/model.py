"""`ModelDraft`: a smaller model with the same tokenizer guesses what the target will draw.

A draft source, above `batch` and `causal_lm`. The guess is drawn by the target's own plan with the
target's own noise, so that both draw the same token wherever their distributions nearly agree
(Gumbel coupling: Daliri et al., 2024).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from logitkit import randomness
from logitkit.batch import Batch
from logitkit.causal_lm import CausalLM, table_length
from logitkit.causal_lm.checks import check_model
from logitkit.draft.source import Draft, DraftSource
from logitkit.ops import OK

# Models of one family pad the same vocabulary to different widths (Qwen2.5: 151,936 and 152,064).
MOST_PADDING = 1024


class ModelDraft(DraftSource):
    """Proposes what `model` would write in the target's place.

    Its logits, in float32 and brought to the width of the target's, go through every stage of the
    target's plan as the draft's own prefix stands: once, and nowhere else. `model` and its config
    stay as they are.

    Errors: ValueError for what is no model, for encoder-decoder models and models with a cache that
    cannot forget, and, when a generation starts, for a vocabulary more than 1,024 ids wider or
    narrower than the target's (that the ids mean the same is not checked).
    """

    label = "model"

    def __init__(self, model: PreTrainedModel, *, cost: float = 0.25) -> None:
        check_model(model)
        name = type(model).__name__
        if getattr(model.config, "is_encoder_decoder", False):
            raise ValueError(
                f"`draft`: {name} is an encoder-decoder model; give a decoder-only one"
            )
        self.model = model
        self.cost = cost
        self._batch: Batch | None = None

    def start(self, batch: Batch) -> None:
        """Read the prompts: one forward of the draft model over what the history holds."""
        heads = batch.history.head.tolist()
        width = max(heads)
        rows = batch.history.tokens.new_zeros(len(batch), width)
        for row, tokens, head in zip(rows, batch.history.tokens, heads, strict=True):
            row[width - head :] = tokens[:head]
        mask = torch.arange(width, device=rows.device) >= width - batch.history.head[:, None]
        name, table = type(self.model).__name__, table_length(self.model)
        if table is not None and width > table:
            raise ValueError(
                f"`draft`: {name} has {table} positions, and a prompt has {width} tokens: give "
                "another model, or generate without it"
            )
        embedding: Any = self.model.get_input_embeddings()
        self._num_embeddings = int(embedding.num_embeddings)
        self._lm = CausalLM(self.model, self._known(rows), mask.long())
        self._is_full = False
        size = self._lm.vocab_size
        if abs(size - batch.vocab_size) > MOST_PADDING:
            raise ValueError(
                f"`draft`: {name} has a vocabulary of {size} ids and the target one of "
                f"{batch.vocab_size}: give a model with the target's tokenizer"
            )
        self._logits = self._widened(self._lm.prefill(), batch)  # [B, V] behind the last token
        if not self._lm.croppable:
            raise ValueError(
                f"`draft`: {name} cannot forget refused tokens (its cache is a "
                f"{type(self._lm.cache).__name__} with recurrent or unknown layers); give another"
            )
        self._batch = batch
        self._heads = batch.history.head.clone()
        self._chain = rows[:, :0]  # the drafted tokens that the cache holds behind the heads

    def propose(self, batch: Batch, k: int, *, coupled: bool = True, round: int = 0) -> Draft:
        """`k` tokens per request, fewer where one cannot be drawn; `logits` is None.

        None at all once the text is longer than a table of columns that the model may have.

        With `coupled=False` the noise is the draft's own (stream 1, fresh in every `round`), and
        `logits` [B, k, V] are the log-probabilities that the tokens were drawn from.
        """
        self._catch_up(batch)
        for block in (self._lm.longest_block, self._lm.columns_left):
            if block is not None:  # the last token of a chain is not fed
                k = min(k, block + 1)
        if self._is_full:
            k = 0
        logits, tokens, drawn_from = self._logits, self._chain, []
        lengths = torch.zeros_like(batch.history.head)
        for depth in range(k):
            if depth:
                fed = self._lm(self._known(tokens[:, -1:]), chain=True)
                self._chain = tokens
                logits = self._widened(fed[:, -1], batch)
            rows = batch.rows(Draft(tokens, lengths))
            rows = rows.select(rows.depth == depth)
            if coupled:
                drawn, status = batch.plan.draw(logits, rows)
            else:
                processed, status = batch.plan.process(logits, rows)
                drawn = _own_draw(processed, rows.seed[rows.slot], rows.position, round)
                drawn_from.append(processed.log_softmax(-1))
            lengths = lengths + ((lengths == depth) & (status == OK))
            tokens = torch.cat([tokens, torch.where(status == OK, drawn, 0)[:, None]], 1)
            if not bool((lengths > depth).any()):
                break
        q = torch.stack(drawn_from, 1) if drawn_from else None
        return Draft(tokens, lengths, q, self.label)

    def _catch_up(self, batch: Batch) -> None:
        """Let the cache hold the history and nothing else; `_logits` are behind its last token."""
        history = batch.history
        if batch is not self._batch or bool((history.head < self._heads).any()):
            self.start(batch)
            return
        ahead = torch.arange(self._chain.shape[1], device=history.head.device)
        place = self._heads[:, None] + ahead
        same = self._chain == history.tokens.gather(1, place.clamp_max(history.tokens.shape[1] - 1))
        # The last token is fed in any case, for the logits behind it.
        same &= place < history.head[:, None] - 1
        kept = same.cumprod(1).sum(1)
        self._lm.keep(kept)
        self._chain = self._chain[:, :0]
        first = self._heads + kept
        counts = history.head - first
        self._heads = history.head.clone()
        width = int(counts.max())
        left = self._lm.columns_left
        self._is_full |= left is not None and width > left
        if not width or self._is_full:
            return
        place = first[:, None] + torch.arange(width, device=first.device)
        unseen = history.tokens.gather(1, place.clamp_max(history.tokens.shape[1] - 1))
        unseen = unseen.masked_fill(place >= history.head[:, None], 0)
        block = self._lm.longest_block or width  # sliding windows take a long text in parts
        for begin in range(0, width, block):
            part = unseen[:, begin : begin + block]
            logits = self._lm(self._known(part), chain=True)
            taken = (counts - begin).clamp(0, part.shape[1])
            self._lm.keep(taken)
            last = (taken - 1).clamp_min(0).to(logits.device)
            behind = logits[torch.arange(len(last), device=last.device), last]
            fresh = self._widened(behind, batch)
            self._logits = torch.where((taken > 0)[:, None], fresh, self._logits)

    def _known(self, tokens: Tensor) -> Tensor:
        """`tokens` with 0 for ids that the draft model lacks: nothing worse than a bad guess."""
        return tokens.masked_fill(tokens >= self._num_embeddings, 0)

    def _widened(self, logits: Tensor, batch: Batch) -> Tensor:
        """float32 logits [B, V] of the target's width; ids that only the target has get -inf."""
        logits = logits.to(batch.device, torch.float32)[:, : batch.vocab_size]
        missing = batch.vocab_size - logits.shape[1]
        return torch.nn.functional.pad(logits, (0, missing), value=-torch.inf)


def _own_draw(logits: Tensor, seed: Tensor, position: Tensor, round: int) -> Tensor:
    """A draw from `logits` [B, V] with the draft's own noise, [B]."""
    tokens = torch.arange(logits.shape[1], device=logits.device)
    noise = randomness.noise(
        seed[:, None], tokens[None], position[:, None], randomness.DRAFT_STREAM, round
    )
    return (logits - noise).argmax(-1)
