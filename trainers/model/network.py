"""A model and the ways in which passes may run it, found by trying them once."""

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

#: Hidden states of two layouts may differ by this share of the largest: rounding, and nothing that a wrong mask does.
_ROUNDING = 1e-3


@dataclass(frozen=True, kw_only=True)
class Network:
    """A causal language model and how to run it.

    ``head`` is None where the model's logits can only be had from the model itself; then whole logits are made and
    ``layouts`` is ``("rows",)``. ``trunk`` is the head's, compiled or not. ``recomputed`` are the layers whose
    activations the backward pass makes again, and ``adapter_off`` runs the model under its LoRA adapter.
    """

    model: PreTrainedModel
    head: ResponseHead | None = None
    trunk: Callable[..., Any] | None = None
    layouts: tuple[Layout, ...] = ("rows",)
    recomputed: tuple[nn.Module, ...] = ()
    adapter_off: bool = False

    @property
    def config(self) -> PretrainedConfig:
        """The configuration of the language model, without a wrapper's."""
        return innermost(self.model).config.get_text_config()

    def running(self) -> AbstractContextManager[object]:
        """To be entered around every pass."""
        off: AbstractContextManager[object] = (
            cast("Any", self.model).disable_adapter() if self.adapter_off else nullcontext()
        )
        return _recomputing(self.recomputed, off) if self.recomputed else off


def find_network(model: PreTrainedModel, *, recompute: bool = False, compiled: bool = False) -> Network:
    """The layouts and head of ``model``, found by a few passes over a handful of tokens, none of which changes it.

    ``recompute`` trades activations for time in every layer of the model. ``compiled`` hands the trunk to
    ``torch.compile``; generation goes on with the model as it is.
    """
    network = Network(model=model, recomputed=_layers(model) if recompute else ())
    head = find_head(model)
    if head is None:
        return network
    able = replace(network, head=head, trunk=head.trunk)
    layouts = tuple(layout for layout in _candidates(able) if layout == "rows" or _agrees(able, layout))
    trunk = torch.compile(head.trunk, dynamic=True) if compiled else head.trunk
    return replace(able, layouts=layouts, trunk=trunk)


def _candidates(network: Network) -> tuple[Layout, ...]:
    """The layouts that could work, by what the configuration says of attention; windows do not show in short probes."""
    config, model = network.config, innermost(network.model)
    kinds = set(getattr(config, "layer_types", None) or ("full_attention",))
    windowed = getattr(config, "sliding_window", None) is not None and getattr(config, "use_sliding_window", True)
    if kinds != {"full_attention"} or model._is_stateful or (windowed and not hasattr(config, "layer_types")):
        return ("rows",)
    # kernels of other kinds take no mask of our own
    return get_args(Layout) if config._attn_implementation in ("sdpa", "eager") else ("rows",)


def _agrees(network: Network, layout: Layout) -> bool:
    """Whether the model gives the same hidden states in this layout as in rows; positions may be its own affair."""
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
            found_ND = hidden_states(trunk, network.config, given, layout).float()
        except (TypeError, ValueError, RuntimeError, AttributeError, NotImplementedError):
            return False  # a model that does not take positions, masks or caches as others do
        expected_ND = hidden_states(trunk, network.config, given, "rows").float()
    return bool((found_ND - expected_ND).abs().max() <= _ROUNDING * expected_ND.abs().max())


def _layers(model: PreTrainedModel) -> tuple[nn.Module, ...]:
    from transformers.modeling_layers import GradientCheckpointingLayer

    return tuple(module for module in model.modules() if isinstance(module, GradientCheckpointingLayer))


@contextmanager
def _recomputing(layers: tuple[nn.Module, ...], inside: AbstractContextManager[object]) -> Iterator[None]:
    """Every layer keeps only its input for the backward pass while the block runs.

    Not by the library's own switch: that one acts in training mode alone, which would turn dropout on, and it takes
    the cache from a model that is generating.
    """
    with inside:
        if not torch.is_grad_enabled():
            yield
            return
        for layer in layers:
            # in eval mode nothing is random, so there is no random state to restore
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False)  # type: ignore[method-assign]
        try:
            yield
        finally:
            for layer in layers:
                del layer.forward
