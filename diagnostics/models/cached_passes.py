"""How a model may be read in more than one pass: prompts lent to several responses, one pass going on from another.

A pass goes on from what an earlier one left in its cache. That is the same computation as one pass over all tokens for
attention, and for many models with a recurrent state; some models and adapters compute something else, without a word.
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

#: What a prompt is lent through. Without the last a head would be given every position of every prompt.
_NEEDED = ("past_key_values", "position_ids", "logits_to_keep")
#: Models whose recurrence reads the padding in front of a prompt as if it were text.
_READS_PADDING = ("recurrent_gemma",)
#: A trial's passes are of so many tokens each. Log-probabilities of the second may differ from those of one pass by
#: this share of how much they vary over the vocabulary: between what half precision rounds and a state that was lost.
_TRIAL_TOKENS, _TRIAL_SHARE = 6, 0.03


@dataclass(frozen=True, kw_only=True)
class ReadingRules:
    """What a model allows.

    ``lends``: keys and values of a prompt are all that responses need of it, and can be handed to several. ``goes_on``:
    a pass may go on from another where ``may_go_on`` says so of its cache. ``pads``: prompts of different lengths may
    be padded to one. ``turns_at``: a row of more tokens than that is computed otherwise from its first token on, so
    that it must not lie in a batch with shorter ones.
    """

    lends: bool
    goes_on: bool
    pads: bool
    turns_at: int | None

    def is_beyond(self, tokens: int) -> bool:
        """Whether a row of so many tokens is computed in the other way."""
        return self.turns_at is not None and tokens > self.turns_at


def innermost(model: Any) -> Any:
    """The model whose ``forward`` has the real signature; peft's wrapper takes anything."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def is_plain(cache: Cache) -> bool:
    """Whether every layer keeps the keys and values of all tokens, and nothing else."""
    return _all_of(cache, DynamicLayer)


def how_to_read(model: Any) -> ReadingRules:
    """What this model and the adapter on it allow; where that is not known, the least."""
    inner = innermost(model)
    accepted = inspect.signature(inner.forward).parameters
    adapter = getattr(model, "active_peft_config", None)
    # its vectors stand between the padding and the prompt, or in place of a cache; it takes no positions
    is_soft = bool(getattr(adapter, "is_prompt_learning", False))
    # it switches itself on behind tokens that must be in the same pass
    waits = bool(getattr(adapter, "alora_invocation_tokens", None))
    turns_at = _turning_point(inner.config)
    goes_on = not (is_soft or waits or turns_at is not None)
    return ReadingRules(
        lends=goes_on and all(name in accepted for name in _NEEDED) and _plans_plain_cache(inner.config),
        goes_on=goes_on,
        pads=not is_soft and getattr(inner.config, "model_type", None) not in _READS_PADDING,
        turns_at=turns_at,
    )


def may_go_on(model: Any, cache: Any) -> bool:
    """Whether a pass over further tokens may go on from ``cache``, which the pass before it left.

    Attention may, with or without a window; of other layers a short trial tells.
    """
    if cache is None or not how_to_read(model).goes_on:
        return False
    return _all_of(cache, DynamicLayer, DynamicSlidingWindowLayer) or _goes_on_in_a_trial(model)


def read_prompts(
    model: Any,
    ids_PL: Int[Tensor, "prompt token"],
    mask_PL: Bool[Tensor, "prompt token"],
    prompt_of_row_B: Int[Tensor, " row"],
) -> Cache | None:
    """The keys and values of prompts, padded on the left, repeated for the rows after them.

    None where the model kept something else than ``how_to_read`` took it to keep.
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
    """Tokens from the end of each prompt to where an adapter that waits for its own tokens (aLoRA) begins.

    None for any other model, and for a row whose prompt does not hold them. peft looks for them anew in every pass, and
    so in a response, too, where generation does not.
    """
    if not getattr(getattr(model, "active_peft_config", None), "alora_invocation_tokens", None):
        return None
    from peft.tuners.lora.variants import calculate_alora_offsets

    return list(calculate_alora_offsets(model.peft_config, model.active_adapter, prompt_BP))


def positions(mask_BL: Bool[Tensor, "row token"]) -> Int[Tensor, "row token"]:
    """The place of every token among those of its row that are no padding."""
    return (mask_BL.long().cumsum(dim=1) - 1).clamp(min=0)


def _all_of(cache: Any, *kinds: type) -> bool:
    # a class of its own keeps more than its layers
    return (
        type(cache) in (Cache, DynamicCache) and bool(cache.layers) and all(type(one) in kinds for one in cache.layers)
    )


def _plans_plain_cache(config: Any) -> bool:
    try:
        return is_plain(DynamicCache(config=config))
    except (AttributeError, KeyError, TypeError, ValueError):  # a configuration of other names than the library's
        return False


def _turning_point(config: Any) -> int | None:
    """Tokens beyond which rotary positions have other factors, for the whole of a row: longrope, as in Phi-3."""
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    stated = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None)
    if not isinstance(stated, Mapping):
        return None
    kinds = [one for one in (stated, *stated.values()) if isinstance(one, Mapping)]
    if not any("longrope" in (one.get("rope_type"), one.get("type")) for one in kinds):
        return None
    known = [one.get("original_max_position_embeddings") for one in kinds]
    known.append(getattr(config, "original_max_position_embeddings", None))
    return next((int(one) for one in known if one), 0)


@torch.inference_mode()
def _goes_on_in_a_trial(model: Any) -> bool:
    """Whether two passes over a few tokens give what one does."""
    inner = innermost(model)
    device = next((one.device for one in inner.parameters() if one.device.type != "meta"), torch.device("cpu"))
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
        off = (logp_LV - parts_LV).abs().mean()
    except Exception:  # noqa: BLE001  # models fail in it in many ways, and one that does is read anew
        return False
    return bool(off <= _TRIAL_SHARE * logp_LV.std(dim=-1).mean())
