"""Prompts that are read once and lent to all responses after them: keys and values of plain attention."""

from __future__ import annotations

import inspect
from typing import Any

from jaxtyping import Bool, Int
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

#: Without the last a head would be given every position of every prompt.
_NEEDED = ("past_key_values", "position_ids", "logits_to_keep")


def innermost(model: Any) -> Any:
    """The model whose ``forward`` has the real signature; peft's wrapper takes anything."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def is_plain(cache: Cache) -> bool:
    """Whether every layer keeps the keys and values of all tokens, and nothing else."""
    return bool(cache.layers) and all(type(layer) is DynamicLayer for layer in cache.layers)


def lends_prompts(model: Any) -> bool:
    """Whether what the model keeps of a prompt is all that responses need of it, and can be handed to several.

    False for models with a window, a recurrent state or memories in place of a prompt, and where that is not known.
    """
    inner = innermost(model)
    accepted = inspect.signature(inner.forward).parameters
    if getattr(getattr(model, "active_peft_config", None), "is_prompt_learning", False):
        return False
    return all(name in accepted for name in _NEEDED) and is_plain(DynamicCache(config=inner.config))


def read_prompts(
    model: Any,
    ids_PL: Int[Tensor, "prompt token"],
    mask_PL: Bool[Tensor, "prompt token"],
    prompt_of_row_B: Int[Tensor, " row"],
) -> Cache | None:
    """The keys and values of prompts, padded on the left, repeated for the rows after them.

    None where the model kept something else than ``lends_prompts`` took it to keep.
    """
    position_PL = (mask_PL.long().cumsum(dim=1) - 1).clamp(min=0)
    output = model(
        input_ids=ids_PL, attention_mask=mask_PL.long(), position_ids=position_PL, use_cache=True, logits_to_keep=1
    )
    cache = output.past_key_values
    if not (isinstance(cache, Cache) and is_plain(cache)):
        return None
    cache.reorder_cache(prompt_of_row_B)  # type: ignore[arg-type]  # asks for its alias of int64
    return cache
