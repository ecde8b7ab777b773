"""A model with the input layouts that it supports. Short forward passes test this once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast, get_args

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from oversharp.diagnostics.models.cached_passes import innermost
from oversharp.trainers.batch import RolloutBatch
from oversharp.trainers.model.head import ResponseHead, find_head
from oversharp.trainers.model.layouts import Layout, hidden_states, pass_input

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

#: Maximum difference between the hidden states of two layouts, relative to the largest hidden state. Rounding is
#: smaller, and the error of a wrong mask is larger.
_ROUNDING = 1e-3


@dataclass(frozen=True, kw_only=True)
class Network:
    """Causal language model with the settings of its forward passes.

    Without a ``head``, the whole model computes all logits, and ``layouts`` is ``("rows",)``. ``trunk`` is the trunk of
    the head, compiled if requested. ``recomputed`` are the layers whose activations the backward pass recomputes. If
    ``adapter_off``, the model runs without its LoRA adapter.
    """

    model: PreTrainedModel
    head: ResponseHead | None = None
    trunk: Callable[..., Any] | None = None
    layouts: tuple[Layout, ...] = ("rows",)
    recomputed: tuple[nn.Module, ...] = ()
    adapter_off: bool = False

    @property
    def config(self) -> PretrainedConfig:
        """Configuration of the language model, even if the model is wrapped."""
        return innermost(self.model).config.get_text_config()

    def pass_context(self) -> AbstractContextManager[object]:
        """Return the context in which forward and backward passes must run."""
        off: AbstractContextManager[object] = (
            cast("Any", self.model).disable_adapter() if self.adapter_off else nullcontext()
        )
        return _recompute_layers(self.recomputed, off) if self.recomputed else off


def find_network(model: PreTrainedModel, *, recompute: bool = False, compiled: bool = False) -> Network:
    """Find the head of ``model`` and the layouts that it supports, by forward passes over a few tokens.

    With ``recompute``, the backward pass recomputes the activations of every layer. With ``compiled``, the trunk is
    compiled with ``torch.compile``, but generation uses the model without compilation.
    """
    network = Network(model=model, recomputed=_layers(model) if recompute else ())
    head = find_head(model)
    if head is None:
        return network
    network = replace(network, head=head, trunk=head.trunk)
    layouts = tuple(
        layout for layout in _candidate_layouts(network) if layout == "rows" or _matches_rows(network, layout)
    )
    trunk = torch.compile(head.trunk, dynamic=True) if compiled else head.trunk
    return replace(network, layouts=layouts, trunk=trunk)


def _candidate_layouts(network: Network) -> tuple[Layout, ...]:
    """Return the layouts that the attention in the model's configuration may support.

    The configuration is needed because tests with short passes cannot detect sliding windows.
    """
    config, model = network.config, innermost(network.model)
    kinds = set(getattr(config, "layer_types", None) or ("full_attention",))
    windowed = getattr(config, "sliding_window", None) is not None and getattr(config, "use_sliding_window", True)
    if kinds != {"full_attention"} or model._is_stateful or (windowed and not hasattr(config, "layer_types")):
        return ("rows",)
    # other attention implementations do not accept custom masks
    return get_args(Layout) if config._attn_implementation in ("sdpa", "eager") else ("rows",)


def _matches_rows(network: Network, layout: Layout) -> bool:
    """Return whether the hidden states in this layout equal those in the layout ``rows``.

    They may differ, for example, because the model computes positions itself.
    """
    device = network.model.device
    ids_PL = torch.tensor([[0, 3, 4], [5, 6, 7]], device=device) % network.config.vocab_size
    response_BT = torch.tensor([[5, 6, 7], [5, 8, 0], [3, 4, 5], [9, 3, 0]], device=device) % network.config.vocab_size
    mask_BT = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 1, 1], [1, 1, 0]], dtype=torch.bool, device=device)
    nothing_B, nothing_BT = torch.zeros(4, device=device), torch.zeros(4, 3, device=device)
    probe = RolloutBatch(
        group_size=2,
        prompt_ids_PL=ids_PL,
        prompt_mask_PL=torch.tensor([[0, 1, 1], [1, 1, 1]], dtype=torch.bool, device=device),
        response_ids_BT=response_BT,
        response_mask_BT=mask_BT,
        behaviour_logp_BT=nothing_BT,
        logp_sum_B=nothing_B,
        entropy_sum_B=nothing_B,
        truncated_B=nothing_B.bool(),
    )
    given = pass_input(probe, torch.arange(4, device=device))
    trunk = cast("Callable[..., Any]", network.trunk)
    with torch.no_grad():
        try:
            actual_ND = hidden_states(trunk, network.config, given, layout).float()
        except (TypeError, ValueError, RuntimeError, AttributeError, NotImplementedError):
            return False  # the model does not accept positions or masks in the usual way
        expected_ND = hidden_states(trunk, network.config, given, "rows").float()
    return bool((actual_ND - expected_ND).abs().max() <= _ROUNDING * expected_ND.abs().max())


def _layers(model: PreTrainedModel) -> tuple[nn.Module, ...]:
    from transformers.modeling_layers import GradientCheckpointingLayer

    return tuple(module for module in model.modules() if isinstance(module, GradientCheckpointingLayer))


@contextmanager
def _recompute_layers(layers: tuple[nn.Module, ...], inside: AbstractContextManager[object]) -> Iterator[None]:
    """Inside the block, keep only the input of every layer for the backward pass (gradient checkpointing).

    ``gradient_checkpointing_enable`` of transformers is not used, because it requires training mode, which enables
    dropout, and disables the KV cache during generation.
    """
    with inside:
        if not torch.is_grad_enabled():
            yield
            return
        for layer in layers:
            # preserve_rng_state is not needed, because layers in evaluation mode use no random numbers
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False)  # type: ignore[method-assign]
        try:
            yield
        finally:
            for layer in layers:
                del layer.forward
