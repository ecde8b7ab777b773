"""KV-cache reuse: share a prompt's cache among responses, continue from a cached prefix.

For attention layers and many recurrent models, continuing from a cache gives the same result as one pass over all
tokens. Some models and adapters silently compute a different result, so each model is checked.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

#: Arguments of ``forward`` that sharing a prompt's cache requires. Without ``logits_to_keep``, the head would run on
#: every position.
_NEEDED = ("past_key_values", "position_ids", "logits_to_keep")
#: Model types whose recurrent layers do not mask left padding.
_READS_PADDING = ("recurrent_gemma",)
#: Trial of a continued pass: tokens of each of its two passes, and the largest allowed mean difference of
#: log-probabilities, as a share of their standard deviation over the vocabulary. The limit is above half-precision
#: rounding and below the effect of a lost recurrent state.
_TRIAL_TOKENS, _TRIAL_SHARE = 6, 0.03


@dataclass(frozen=True, kw_only=True)
class ReadingRules:
    """Kinds of KV-cache reuse and batching that a model supports.

    Attributes:
        shares_prompts: several responses can share the keys and values of a prompt.
        continues: a pass may continue from a cache, if ``can_continue`` accepts the cache.
        pads: prompts of different lengths may be padded and processed in one batch.
        changes_above: number of tokens above which all positions of a row are computed differently, None without a
            limit. Longer rows must not share a batch with shorter rows.
    """

    shares_prompts: bool
    continues: bool
    pads: bool
    changes_above: int | None

    def is_beyond(self, tokens: int) -> bool:
        """Return whether a row of ``tokens`` tokens is longer than ``changes_above``."""
        return self.changes_above is not None and tokens > self.changes_above


def innermost(model: Any) -> Any:
    """Return the model inside peft's wrapper, whose ``forward`` accepts any arguments."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def is_plain(cache: Cache) -> bool:
    """Return whether every layer of the cache stores only the keys and values of all tokens."""
    return _all_of(cache, DynamicLayer)


def find_reading_rules(model: Any) -> ReadingRules:
    """Return the rules for this model and its adapter.

    Where they are unknown, the most restrictive rule applies.
    """
    inner = innermost(model)
    accepted = inspect.signature(inner.forward).parameters
    adapter = getattr(model, "active_peft_config", None)
    # soft prompts are vectors between padding and prompt, or replace the cache; they do not accept position_ids
    is_soft = bool(getattr(adapter, "is_prompt_learning", False))
    # an aLoRA adapter needs its activation tokens in the same pass
    is_activated = bool(getattr(adapter, "alora_invocation_tokens", None))
    limit = _longrope_limit(inner.config)
    continues = not (is_soft or is_activated or limit is not None)
    return ReadingRules(
        shares_prompts=continues and all(name in accepted for name in _NEEDED) and _plans_plain_cache(inner.config),
        continues=continues,
        pads=not is_soft and getattr(inner.config, "model_type", None) not in _READS_PADDING,
        changes_above=limit,
    )


def can_continue(model: Any, cache: Any) -> bool:
    """Return whether a pass over further tokens may continue from ``cache``.

    It may for attention layers, with or without a sliding window. Other layers are tested by a short trial.
    """
    if cache is None or not find_reading_rules(model).continues:
        return False
    return _all_of(cache, DynamicLayer, DynamicSlidingWindowLayer) or _passes_trial(model)


def read_prompts(
    model: Any,
    ids_PL: Int[Tensor, "prompt token"],
    mask_PL: Bool[Tensor, "prompt token"],
    prompt_of_row_B: Int[Tensor, " row"],
) -> Cache | None:
    """Return the KV cache of left-padded prompts, with one copy per row.

    Returns None for an unsupported kind of cache.
    """
    output = model(
        input_ids=ids_PL,
        attention_mask=mask_PL.long(),
        position_ids=positions(mask_PL),
        use_cache=True,
        logits_to_keep=1,
    )
    cache = output.past_key_values
    if not (isinstance(cache, Cache) and is_plain(cache)):
        return None
    cache.reorder_cache(prompt_of_row_B)  # type: ignore[arg-type]  # asks for its alias of int64
    return cache


def adapter_starts(model: Any, prompt_BP: Int[Tensor, "row token"]) -> list[int | None] | None:
    """Return the distance of an aLoRA adapter's activation tokens from each prompt's end.

    The distance is in tokens.

    Returns None for any other model. An entry is None if the prompt lacks the activation tokens. Without these
    distances, peft would search for the tokens in every pass, and would find them in responses too, unlike in
    generation.
    """
    if not getattr(getattr(model, "active_peft_config", None), "alora_invocation_tokens", None):
        return None
    from peft.tuners.lora.variants import calculate_alora_offsets

    return list(calculate_alora_offsets(model.peft_config, model.active_adapter, prompt_BP))


def positions(mask_BL: Bool[Tensor, "row token"]) -> Int[Tensor, "row token"]:
    """Return the position of every token in its row, not counting padding."""
    return (mask_BL.long().cumsum(dim=1) - 1).clamp(min=0)


def _all_of(cache: Any, *kinds: type) -> bool:
    # exact types only: a subclass of Cache may store more than its layers
    return (
        type(cache) in (Cache, DynamicCache)
        and bool(cache.layers)
        and all(type(layer) in kinds for layer in cache.layers)
    )


def _plans_plain_cache(config: Any) -> bool:
    try:
        return is_plain(DynamicCache(config=config))
    except (AttributeError, KeyError, TypeError, ValueError):  # transformers does not know this configuration
        return False


def _longrope_limit(config: Any) -> int | None:
    """Return the length above which LongRoPE (as in Phi-3) changes all positions, or None.

    The length is in tokens.
    """
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None)
    if not isinstance(rope, Mapping):
        return None
    parts = [part for part in (rope, *rope.values()) if isinstance(part, Mapping)]
    if not any("longrope" in (part.get("rope_type"), part.get("type")) for part in parts):
        return None
    limits = [part.get("original_max_position_embeddings") for part in parts]
    limits.append(getattr(config, "original_max_position_embeddings", None))
    return next((int(limit) for limit in limits if limit), 0)


@torch.inference_mode()
def _passes_trial(model: Any) -> bool:
    """Return whether two passes over a few tokens give the same result as one pass."""
    inner = innermost(model)
    device = next(
        (parameter.device for parameter in inner.parameters() if parameter.device.type != "meta"), torch.device("cpu")
    )
    n_words = int(inner.get_input_embeddings().weight.shape[0])
    ids_1L = (torch.arange(1, 2 * _TRIAL_TOKENS + 1, device=device) % n_words)[None]
    start_1L, end_1L = ids_1L.split(_TRIAL_TOKENS, dim=1)
    try:
        whole_LV = model(input_ids=ids_1L, use_cache=False).logits[0, _TRIAL_TOKENS:]
        start = model(input_ids=start_1L, use_cache=True)
        end = model(
            input_ids=end_1L,
            attention_mask=torch.ones_like(ids_1L),
            past_key_values=start.past_key_values,
            use_cache=True,
        )
        logp_LV, parts_LV = (logits.float().log_softmax(dim=-1) for logits in (whole_LV, end.logits[0]))
        difference = (logp_LV - parts_LV).abs().mean()
    except Exception:  # noqa: BLE001  # a model that cannot continue may raise any error; it gets full passes
        return False
    return bool(difference <= _TRIAL_SHARE * logp_LV.std(dim=-1).mean())
