"""How a kernel is computed within the memory that there is: decided by shapes alone, before anything runs."""

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
    in_groups,
    require_budget,
    too_small,
    trained_parameters,
)
from oversharp.diagnostics.models.cached_passes import innermost
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.errors import KernelError, KernelTooLargeError
from oversharp.diagnostics.records.memory import free_bytes

#: The budget where nobody names one, if all that is computed at one time fits in it.
LEAST_BYTES = 1 << 30
#: Activations of one batch take no more than this, whatever the budget: larger batches are hardly faster.
ACTIVATION_BYTES = 1 << 30
#: On a CPU, where several batches are run through the whole model: larger ones are no faster there.
ACTIVATION_BYTES_ON_A_CPU = 1 << 28
#: Of the free memory, this share is used; the rest is for what other programs take meanwhile.
USED_SHARE = 0.8
#: Runs of the whole model beyond which, where nobody names a budget, fewer rows are computed instead.
MOST_RUNS = 4

Kind = Literal["at once", "kept", "layer by layer", "whole model"]


@dataclass(frozen=True)
class MemoryPlan:
    """How: all rows ``at once``; in batches, all factors ``kept``; ``layer by layer``; ``whole model`` for every group.

    ``groups`` of slices that are computed one after the other, empty layer by layer. ``memory_bytes`` is the budget.
    """

    kind: Kind
    groups: Sequence[Sequence[Slice]]
    memory_bytes: int

    def says(self, extent: Extent) -> str | None:
        """What a user who waits for it should know; None where it is soon done."""
        rows = f"{plural(extent.n_rows, 'row')} of {extent.n_tokens:,} tokens"
        if self.kind == "layer by layer":
            return f"{rows}, layer by layer, with {self.memory_bytes / 2**30:.3g} GiB for gradients"
        if self.kind == "whole model":
            return f"{rows}, in {plural(len(self.groups), 'run')} of the whole model"
        return None


def find_plan(
    model: nn.Module, trained: Sequence[Trained], extent: Extent, memory_bytes: int | None, *, at_once: bool
) -> MemoryPlan:
    """The plan for these rows: within ``memory_bytes``, or where that is None within what is free.

    Then the budget is the least power of two from ``LEAST_BYTES`` on with which no layer is run in vain; on a CPU half
    of it already, where that is enough to go layer by layer. There the whole model is run, which is faster and takes
    more memory than its budget, only where half of it is enough to keep all factors, or where twice as much would not
    do for layers. Raises ``KernelTooLargeError`` with the share of the rows that would fit.
    """
    if memory_bytes is not None:
        return _within(model, trained, extent, memory_bytes, at_once=at_once)
    most = most_bytes(model, trained)
    least = min(LEAST_BYTES, most)
    on_cpu = next(model.parameters()).device.type == "cpu"
    budget = least // 2 if on_cpu and least == LEAST_BYTES else least

    def by_layers(memory_bytes: int) -> bool:
        return _goes_by_layers(model, extent, memory_bytes)

    while True:
        try:
            plan = _within(model, trained, extent, budget, at_once=at_once)
        except KernelTooLargeError:
            if budget == most:
                raise
        else:
            if on_cpu and budget >= least and plan.kind in ("kept", "whole model"):
                with_layers = next((one for one in (budget, min(2 * budget, most)) if by_layers(one)), None)
                if with_layers is not None:
                    return MemoryPlan("layer by layer", [], with_layers)
            few_runs = plan.kind != "whole model" or (budget >= least and len(plan.groups) <= MOST_RUNS)
            if few_runs:
                return plan
            if budget == most:
                break
        budget = min(2 * budget, most)
    if not find_layers(model):
        return plan  # fewer rows would hardly help: it is the model that cannot be taken apart
    needed = 2 * kept_bytes(model, extent.n_tokens)
    raise too_small(most, max(needed, most + 1))


def foresee(
    outline: nn.Module,
    device: torch.device,
    *,
    n_rows: int,
    row_tokens: int,
    response_tokens: int,
    memory_bytes: int | None,
) -> str | None:
    """What to expect of a kernel of so many rows at their longest; None where it will fit.

    ``outline`` is the model on torch's meta device, all of whose weights are trained.
    """
    trained = trained_parameters(outline)
    head = innermost(outline).get_output_embeddings()
    extent = Extent(n_rows=n_rows, n_tokens=n_rows * row_tokens, n_responses=n_rows * response_tokens, head=head)
    most = most_bytes(outline, trained, device) if memory_bytes is None else memory_bytes
    try:
        require_budget(trained, n_rows, most)
        plan = _within(outline, trained, extent, most, at_once=False)
    except KernelTooLargeError as error:
        fits = error.share
    else:
        runs_in_vain = memory_bytes is None and plan.kind == "whole model" and len(plan.groups) > MOST_RUNS
        if not runs_in_vain or not find_layers(outline):
            return None
        fits = most / (2 * kept_bytes(outline, extent.n_tokens))
    return (
        f"{n_rows} rows of {row_tokens:,} tokens would not fit in {most / 2**30:.3g} GiB, about {int(n_rows * fits)} "
        "would: where responses are so long, kernels hold fewer problems"
    )


def most_bytes(model: nn.Module, trained: Sequence[Trained], device: torch.device | None = None) -> int:
    """What the budget may be with the memory that is free: activations and a gradient of all weights lie beside it.

    ``device``: where the model will be, if it is not there yet.
    """
    loaded = device is None
    device = device or next(model.parameters()).device
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else free_bytes()
    if free == float("inf"):
        return LEAST_BYTES
    gradient = sum(4 * one.parameter.numel() for one in trained)
    # in float32 for the kernel alone, so that not all of it is there yet
    still = sum((4 - one.element_size()) * one.numel() for one in model.parameters() if one.element_size() < 4)
    weights = 0 if loaded else sum(one.element_size() * one.numel() for one in model.parameters())
    return max(1, int(USED_SHARE * free) - gradient - still - weights - ACTIVATION_BYTES)


def _within(
    model: nn.Module, trained: Sequence[Trained], extent: Extent, memory_bytes: int, *, at_once: bool
) -> MemoryPlan:
    if at_once:
        return MemoryPlan("at once", [[Slice(one, 0, one.n_out, dense=False) for one in trained]], memory_bytes)
    by_layers = _goes_by_layers(model, extent, memory_bytes)
    try:
        groups = in_groups(trained, extent, memory_bytes)
    except KernelError:
        if not by_layers:
            raise
        return MemoryPlan("layer by layer", [], memory_bytes)
    if len(groups) == 1:
        return MemoryPlan("kept", groups, memory_bytes)
    return (
        MemoryPlan("layer by layer", [], memory_bytes) if by_layers else MemoryPlan("whole model", groups, memory_bytes)
    )


def _goes_by_layers(model: nn.Module, extent: Extent, memory_bytes: int) -> bool:
    return bool(find_layers(model)) and 2 * kept_bytes(model, extent.n_tokens) <= memory_bytes
