"""`CausalLM`: the forward, with the positions, the mask and the widths of its rows.

Above `cache`, `config` and `checks`, below the loops of `generation`.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, GenerationMixin, PreTrainedModel

from logitkit.causal_lm import cache as caches
from logitkit.causal_lm import checks, config

_MASK_HEADROOM = 256
_MAX_WIDTH_RATIO = 1.25


class CausalLM:
    """A decoder-only model that remembers: new tokens in, logits out, rejected tokens forgotten.

    Rows are strangers: a row answers as if it were alone and unpadded. Positions count a row's own
    tokens, and the mask hides padding and whatever `keep` refused.

    The model and its config are not modified and it stays in the mode (train or eval) that it is
    in, as in `model.generate`. Forwards run under `no_grad`, not `inference_mode`: that would mark
    the logits and the cache that the user gets, and buffers that a model makes in its forward, so
    that they could not be edited in place or trained with afterwards.

    input_ids: [B, L] integers. attention_mask: [B, L] of 0 and 1, None for all ones; padding must
    be on the left and is never guessed from token ids. position_ids: [B, L], or [C, B, L] for
    models with several position axes; None counts a row's own tokens, or asks models that place
    images (`model_inputs`). model_inputs: further inputs of `forward` (pixel_values, ...); they
    reach the first forward only, but for `token_type_ids`, which go on with their last value.

    vocab_size: the width of the logits. num_tokens: the ids below it that have an embedding, which
    alone may be fed. context_length: the positions that the config promises, None when it names
    none. position_limit: `context_length` for models with a finite table of positions (no rotary),
    else None; later positions are held at the last one, so that finished rows and padding behind
    short drafts cannot overrun the table. lengths: [B] int64 on the device of the embedding, the
    tokens that each row has been given so far, prompt included.

    Errors: ValueError for encoder-decoder models, for models whose forward takes no cache, for
    ids, masks and positions of a wrong shape or value, for unknown inputs.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        *,
        position_ids: Tensor | None = None,
        **model_inputs: Any,
    ) -> None:
        base = config.unwrapped(model)
        text_config = base.config.get_text_config(decoder=True)
        parameters = inspect.signature(base.forward).parameters
        model_inputs = {name: value for name, value in model_inputs.items() if value is not None}
        self._cache_name = checks.cache_name(base, parameters, caches.NAMES)
        checks.check_inputs(base, parameters, model_inputs)

        embedding = base.get_input_embeddings()
        attention_mask = checks.checked_mask(input_ids, attention_mask)
        checks.check_ids(input_ids, None if model_inputs else embedding.num_embeddings)

        self._model = model
        self._cache: Any = None
        if getattr(base, "_supports_default_dynamic_cache", lambda: True)():
            self._cache = DynamicCache(config=base.config)
        self.vocab_size = config.vocab_size(base, text_config)
        self.num_tokens = min(self.vocab_size, int(embedding.num_embeddings))
        self.context_length = config.context_length(text_config)
        self._takes_positions = "position_ids" in parameters
        self.position_limit = config.table_length(model) if self._takes_positions else None
        self._takes_logits_to_keep = "logits_to_keep" in parameters
        # GPT-Neo takes positions, but its local layers have a mask that counts columns.
        self._by_column = not self._takes_positions or "local" in getattr(
            text_config, "attention_layers", ()
        )
        counts_columns = not self._takes_positions and hasattr(
            text_config, "max_position_embeddings"
        )
        self._needs_equal_rows = counts_columns and len(input_ids) > 1
        if counts_columns and not attention_mask.all():
            raise ValueError(
                f"`attention_mask` has padding, but {type(base).__name__} takes no `position_ids` "
                "and would count the padding: pass prompts of one length, or one at a time"
            )

        # Weights that accelerate keeps elsewhere are on "meta"; its hook then moves the inputs.
        weight_device = embedding.weight.device
        self._device: torch.device = (
            input_ids.device if weight_device.type == "meta" else weight_device
        )
        mask = attention_mask.to(self._device, torch.int64)
        self.lengths = mask.sum(1)
        self._width = mask.shape[1]
        self._fed = 0
        # Ones from the start: a step only has to read one column more.
        self._mask = torch.nn.functional.pad(mask, (0, _MASK_HEADROOM), value=1)

        self._prompt: dict[str, Any] | None = {
            "input_ids": input_ids.to(self._device, torch.int64),
            **model_inputs,
        }
        self._masks_past = True
        self._token_types: Tensor | None = model_inputs.get("token_type_ids")
        self._before: list[caches.Entries | None] = []
        self._start_positions(base, position_ids)

    def _start_positions(self, base: Any, position_ids: Tensor | None) -> None:
        """Place the prompt, and remember how far its last token is from its place in the row."""
        assert self._prompt is not None
        own = getattr(type(base), "_prepare_position_ids_for_generation", None)
        places_images = own not in (None, GenerationMixin._prepare_position_ids_for_generation)
        mask = self._mask[:, : self._width]
        self._offset: Tensor | None = None
        if position_ids is None and len(self._prompt) > 1 and places_images:
            inputs = {**self._prompt, "attention_mask": mask}
            inputs["position_ids"] = None
            ids = inputs.pop("input_ids")
            position_ids = base._prepare_position_ids_for_generation(ids, inputs)
        if position_ids is None:
            position_ids = (mask.cumsum(1) - 1).clamp_(min=0)
        else:
            if not self._takes_positions:
                raise ValueError(f"`position_ids`: {type(base).__name__}.forward takes none")
            if position_ids.shape[-2:] != mask.shape or position_ids.ndim not in (2, 3):
                raise ValueError(
                    f"`position_ids` has shape {tuple(position_ids.shape)}: give one position per "
                    f"token, {tuple(mask.shape)} (with the position axes in front, if any)"
                )
            position_ids = position_ids.to(self._device)
            self._offset = position_ids[..., -1] + 1 - self.lengths  # [B] or [C, B]
        last = int(position_ids.max())
        if self.position_limit is not None and last >= self.position_limit:
            raise ValueError(
                f"`input_ids` reach position {last}, but {type(base).__name__} has "
                f"{self.position_limit} positions: shorten the prompt"
            )
        self._prompt_positions = position_ids

    def prefill(self) -> Tensor:
        """Run the prompt once; return the logits of its last token, [B, V], in the model's dtype.

        They are on the device where the model's output is.
        """
        assert self._prompt is not None, "prefill runs once"
        inputs, self._prompt = self._prompt, None
        if self._takes_logits_to_keep:
            inputs["logits_to_keep"] = 1
        logits = self._forward(inputs, self._prompt_positions)
        assert logits.shape[-1] == self.vocab_size
        layers = caches.layers(self._cache)
        # A release that does not know our name for the cache swallows it; so does a model with
        # gradient checkpointing in train mode. Each later token would then be without context.
        if self._cache is None or not any(getattr(x, "is_initialized", True) for x in layers):
            raise ValueError(
                f"`model`: {type(self._model).__name__} did not fill its cache; if gradient "
                "checkpointing is on, call `model.eval()` first"
            )
        self._sliding = any(map(caches.is_sliding, layers))
        # A purely recurrent model would spread a mask that is longer than its input over it.
        self._masks_past = any(hasattr(layer, "keys") for layer in layers)
        # A copy lets go of the other positions' logits where the model computed them all.
        return logits[:, -1] if self._takes_logits_to_keep else logits[:, -1].clone()

    def __call__(self, tokens: Tensor, *, chain: bool = False) -> Tensor:
        """Append `tokens` [B, n] to the rows and return their logits [B, n, V]; one forward.

        The logits are in the model's dtype, on the device where the model's output is. `chain`: the
        next `keep` speaks of these tokens and of those fed before, since the last `keep`.
        """
        assert self._prompt is None, "prefill first"
        n = tokens.shape[1]
        tokens = tokens.to(self._device)
        positions = self.lengths if self._offset is None else self.lengths + self._offset
        positions = positions.unsqueeze(-1)  # [B, 1] or [C, B, 1]
        if n > 1:
            positions = positions + torch.arange(n, device=self._device)
        if self.position_limit is not None:
            positions = positions.clamp(max=self.position_limit - 1)
        # What sliding layers drop in the forward, `keep` may need again.
        fed = self._fed if chain else 0
        if not fed:
            needed = (n > 1 or chain) and self._sliding
            self._before = caches.sliding_entries(self._cache) if needed else []
        self._fed = fed + n
        self._width += n
        self.lengths = self.lengths + n
        if self._width > self._mask.shape[1]:
            self._mask = torch.nn.functional.pad(self._mask, (0, self._width), value=1)
        inputs: dict[str, Any] = {"input_ids": tokens}
        if self._token_types is not None:
            inputs["token_type_ids"] = self._token_types[:, -1:].expand(-1, n)
        return self._forward(inputs, positions)

    def _forward(self, inputs: dict[str, Any], positions: Tensor) -> Tensor:
        # Always explicit: a model that derives positions from the cache would count padding.
        if self._takes_positions:
            inputs["position_ids"] = positions
        inputs[self._cache_name] = self._cache
        with torch.no_grad():
            outputs = self._model(
                attention_mask=self._mask[:, : self._width] if self._masks_past else None,
                use_cache=True,
                return_dict=True,
                **inputs,
            )
        returned = getattr(outputs, self._cache_name, None)
        if returned is not None:  # models with a cache class of their own make it in the forward
            self._cache = returned
        logits: Tensor = outputs.logits
        return logits

    @property
    def cache(self) -> Any:
        """The model's cache after `prefill`, for the output of a generation."""
        return self._cache

    @property
    def croppable(self) -> bool:
        """Whether `keep` can refuse tokens: every cache layer has one entry per token.

        Recurrent and hybrid models have not. Known after `prefill`.
        """
        return not (
            caches.uncroppable(self._cache) or self._needs_equal_rows or self.longest_block == 0
        )

    @property
    def longest_block(self) -> int | None:
        """The most tokens of a forward of which some can be refused; None: any number.

        Sliding windows forget what came before a longer one. Known after `prefill`.
        """
        return caches.longest_block(self._cache)

    @property
    def columns_left(self) -> int | None:
        """How many more tokens a row may be fed where a table counts columns; None: any number."""
        if not self._by_column or self.context_length is None:
            return None
        return self.context_length - self._width

    def check_croppable(self) -> None:
        """Raise ValueError naming what keeps the model from forgetting a rejected draft."""
        if self._needs_equal_rows:
            raise ValueError(
                f"`model`: {type(self._model).__name__} takes no `position_ids`, so that its rows "
                "must keep equally many tokens: generate without drafts, or one prompt at a time"
            )
        if names := caches.uncroppable(self._cache):
            raise ValueError(
                f"`model`: {type(self._model).__name__} cannot forget rejected tokens, its cache "
                f"is made of {', '.join(sorted(names))}: generate without drafts"
            )

    def keep(self, num_tokens: Tensor) -> None:
        """Forget all but the first `num_tokens` [B] of the n tokens of each row fed last.

        0 <= num_tokens <= n. What all rows reject is cut off. Beyond that, rejected entries stay as
        masked holes until the cache is 1.25 times as wide as the longest row; then, or at once
        where distance is counted in columns (sliding windows, no `position_ids`), the rows are
        moved together, so that they are left-padded again. Nothing rejected costs nothing.

        Errors: ValueError naming the cache layer that cannot forget, or a window that is too short.
        """
        n, self._fed = self._fed, 0
        counts = num_tokens.tolist()
        assert len(counts) == len(self.lengths) and all(0 <= count <= n for count in counts)
        fewest, most = min(counts), max(counts)
        if fewest == n:
            return
        self.check_croppable()
        longest_block = self.longest_block
        if longest_block is not None and n > longest_block:
            raise ValueError(
                f"`num_draft_tokens`: of {n} tokens at once none can be refused, as the model's "
                f"sliding window is {longest_block + 1}: draft fewer"
            )
        kept = num_tokens.to(self._device)
        self.lengths = self.lengths - (n - kept)
        if not self._sliding and most < n:
            self._cache.crop(most - n)  # strictly negative: 0 and positive numbers changed meaning
            self._width -= n - most
            n = most
        if not self._sliding and fewest == n:
            return
        arange = torch.arange(n, device=self._device)
        self._mask[:, self._width - n : self._width] = arange < kept[:, None]
        longest = int(self.lengths.max())
        if self._sliding or self._by_column or self._width > _MAX_WIDTH_RATIO * longest:
            self._gather(longest, n)
        self._before = []

    def _gather(self, longest: int, n: int) -> None:
        """Leave `longest` columns: padding, then each row's own entries at the right end."""
        caches.gather(self._cache, self._mask[:, : self._width], longest, n, self._before)
        self._width = longest
        arange = torch.arange(longest, device=self._device)
        self._mask.fill_(1)
        self._mask[:, :longest] = arange >= longest - self.lengths[:, None]
