"""Plan a kernel's computation within the memory budget.

Plans depend only on the shapes of model and rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from oversharp.diagnostics.kernel.layers import find_layers, kept_bytes
from oversharp.diagnostics.kernel.parameters import (
    Extent,
    Slice,
    Trained,
    find_trained,
    group_slices,
    make_budget_error,
    require_budget,
)
from oversharp.diagnostics.models.cached_passes import innermost
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.errors import KernelError, KernelTooLargeError
from oversharp.diagnostics.records.memory import free_bytes

#: Smallest default memory budget.
LEAST_BYTES = 1 << 30
#: Limit on the activations of one batch. Larger batches are hardly faster.
ACTIVATION_BYTES = 1 << 30
#: Limit on the activations of one batch on a CPU, if several batches run through the whole model.
ACTIVATION_BYTES_ON_A_CPU = 1 << 28
#: Share of the free memory that the kernel may use. The rest is left to other programs.
USED_SHARE = 0.8
#: Largest number of runs of the whole model under the default budget. If more are needed, fewer rows are computed.
MAX_RUNS = 4

Kind = Literal["at once", "kept", "layer by layer", "whole model"]


@dataclass(frozen=True)
class MemoryPlan:
    """Order of the computation. ``oversharp.diagnostics.kernel.streaming`` explains the kinds.

    ``groups`` are the groups of slices that are computed together. They are empty for layer by layer. ``memory_bytes``
    is the budget.
    """

    kind: Kind
    groups: Sequence[Sequence[Slice]]
    memory_bytes: int

    def describe(self, extent: Extent) -> str | None:
        """Return a line that describes a long computation, None for a short one."""
        rows = f"{plural(extent.n_rows, 'row')} of {extent.n_tokens:,} tokens"
        if self.kind == "layer by layer":
            return f"{rows}, layer by layer, with {self.memory_bytes / 2**30:.3g} GiB for gradients"
        if self.kind == "whole model":
            return f"{rows}, in {plural(len(self.groups), 'run')} of the whole model"
        return None


def find_plan(
    model: nn.Module, trained: Sequence[Trained], extent: Extent, memory_bytes: int | None, *, at_once: bool
) -> MemoryPlan:
    """Return the plan for these rows within ``memory_bytes``.

    None means a default budget within the free memory. The default budget starts at ``LEAST_BYTES``. It doubles until
    the plan is not ``whole model``, or needs at most ``MAX_RUNS`` runs. On a CPU it starts at half of ``LEAST_BYTES``.
    There, batches through the whole model are faster than layer by layer, but take more memory than their budget. They
    are chosen only if half of ``LEAST_BYTES`` is enough for all factors, or twice the budget is too small for layer by
    layer. Raises ``KernelTooLargeError`` with the share of the rows that would fit.
    """
    if memory_bytes is not None:
        return _plan_within(model, trained, extent, memory_bytes, at_once=at_once)
    most = max_budget(model, trained)
    least = min(LEAST_BYTES, most)
    on_cpu = next(model.parameters()).device.type == "cpu"
    budget = least // 2 if on_cpu and least == LEAST_BYTES else least

    while True:
        try:
            plan = _plan_within(model, trained, extent, budget, at_once=at_once)
        except KernelTooLargeError:
            if budget == most:
                raise
        else:
            if on_cpu and budget >= least and plan.kind in ("kept", "whole model"):
                for layer_budget in (budget, min(2 * budget, most)):
                    if _fits_layers(model, extent, layer_budget):
                        return MemoryPlan("layer by layer", [], layer_budget)
            if plan.kind != "whole model" or (budget >= least and len(plan.groups) <= MAX_RUNS):
                return plan
            if budget == most:
                break
        budget = min(2 * budget, most)
    if not find_layers(model):
        return plan  # the model has no layers that could run one at a time, so fewer rows would hardly help
    needed = 2 * kept_bytes(model, extent.n_tokens)
    raise make_budget_error(most, max(needed, most + 1))


def predict_shortage(
    outline: nn.Module,
    device: torch.device,
    *,
    n_rows: int,
    row_tokens: int,
    response_tokens: int,
    memory_bytes: int | None,
) -> str | None:
    """Return a warning if a kernel of ``n_rows`` rows of maximum length does not fit in memory, else None.

    The maximum length is ``row_tokens``, of which ``response_tokens`` are the response. ``outline`` is the model on
    torch's meta device, with all weights trained.
    """
    trained = find_trained(outline)
    head = innermost(outline).get_output_embeddings()
    extent = Extent(n_rows=n_rows, n_tokens=n_rows * row_tokens, n_responses=n_rows * response_tokens, head=head)
    most = max_budget(outline, trained, device) if memory_bytes is None else memory_bytes
    try:
        require_budget(trained, n_rows, most)
        plan = _plan_within(outline, trained, extent, most, at_once=False)
    except KernelTooLargeError as error:
        share = error.share
    else:
        too_many_runs = memory_bytes is None and plan.kind == "whole model" and len(plan.groups) > MAX_RUNS
        if not too_many_runs or not find_layers(outline):
            return None
        share = most / (2 * kept_bytes(outline, extent.n_tokens))
    return (
        f"{n_rows} rows of {row_tokens:,} tokens do not fit in {most / 2**30:.3g} GiB; about {int(n_rows * share)} "
        "rows fit, so kernels cover fewer problems if responses are this long"
    )


def max_budget(model: nn.Module, trained: Sequence[Trained], device: torch.device | None = None) -> int:
    """Return the largest budget that leaves memory for activations and weight gradients.

    ``device`` is the device on which the model will be loaded, or None if it is loaded already.
    """
    is_loaded = device is None
    device = device or next(model.parameters()).device
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else free_bytes()
    if free == float("inf"):
        return LEAST_BYTES
    gradient = sum(4 * parameter.tensor.numel() for parameter in trained)
    # half-precision weights are converted to float32 during the computation
    tensors = list(model.parameters())
    growth = sum((4 - tensor.element_size()) * tensor.numel() for tensor in tensors if tensor.element_size() < 4)
    weights = 0 if is_loaded else sum(tensor.element_size() * tensor.numel() for tensor in tensors)
    return max(1, int(USED_SHARE * free) - gradient - growth - weights - ACTIVATION_BYTES)


def _plan_within(
    model: nn.Module, trained: Sequence[Trained], extent: Extent, memory_bytes: int, *, at_once: bool
) -> MemoryPlan:
    if at_once:
        slices = [Slice(parameter, 0, parameter.n_out, dense=False) for parameter in trained]
        return MemoryPlan("at once", [slices], memory_bytes)
    fits_layers = _fits_layers(model, extent, memory_bytes)
    try:
        groups = group_slices(trained, extent, memory_bytes)
    except KernelError:
        if not fits_layers:
            raise
        return MemoryPlan("layer by layer", [], memory_bytes)
    if len(groups) == 1:
        return MemoryPlan("kept", groups, memory_bytes)
    if fits_layers:
        return MemoryPlan("layer by layer", [], memory_bytes)
    return MemoryPlan("whole model", groups, memory_bytes)


def _fits_layers(model: nn.Module, extent: Extent, memory_bytes: int) -> bool:
    return bool(find_layers(model)) and 2 * kept_bytes(model, extent.n_tokens) <= memory_bytes
