"""The weights of a model under the names of its plain architecture, adapters merged, for engines that know no other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from oversharp.diagnostics.records.errors import TrainingError


def count_plain_weights(model: Any) -> int:
    """The number of weights that ``plain_weights`` gives, without making them."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    return sum(parameter.numel() for name, parameter in inner.named_parameters() if ".lora_" not in name)


@torch.no_grad()
def plain_weights(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Names and live tensors; a weight with adapters on it is a new tensor, the sum of both.

    The model stays as it is: merging in place and taking it back would move the frozen weights by rounding. Raises
    ``TrainingError`` for DoRA, whose weights are not a sum.
    """
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    adapted: dict[str, Any] = {
        name: module for name, module in inner.named_modules() if hasattr(module, "get_delta_weight")
    }
    if any(getattr(module, "lora_magnitude_vector", None) for module in adapted.values()):
        raise TrainingError("DoRA adapters cannot be merged into plain weights; train plain LoRA, or use --engine own")
    for name, parameter in inner.named_parameters():
        owner, _, leaf = name.rpartition(".base_layer.")
        if ".lora_" in name:
            continue
        if not owner:
            yield name, parameter.detach()
        elif leaf != "weight":
            yield f"{owner}.{leaf}", parameter.detach()
        else:
            layer = adapted[owner]
            yield f"{owner}.weight", parameter.detach() + sum(map(layer.get_delta_weight, layer.active_adapters))
