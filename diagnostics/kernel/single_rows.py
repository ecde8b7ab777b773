"""The general path: per-row gradients by running one row at a time, for parameters that no known module kind covers.

Exact for every parameter of every model, whatever uses it: experts of a mixture, a bare ``nn.Parameter``, a weight that
two layers share. It costs about one more forward and backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from oversharp.diagnostics.kernel.certificate import SignedGradients
from oversharp.diagnostics.kernel.forward import response_logps
from oversharp.diagnostics.kernel.parameters import Extent, Trained, in_groups, workspace_bytes
from oversharp.diagnostics.kernel.pieces import Direct
from oversharp.diagnostics.kernel.products import KernelSum
from oversharp.diagnostics.kernel.rows import KernelBatch


def add_row_by_row(
    model: nn.Module,
    rows: Sequence[KernelBatch],
    trained: Sequence[Trained],
    kernel: KernelSum,
    gradients: SignedGradients,
    *,
    memory_bytes: int,
) -> None:
    """Add these parameters to ``kernel`` and ``gradients``; ``rows`` are batches of one row each.

    The certificate adds up the same gradients, which are autograd's own: another batch would round its forward pass
    differently, which alone moves a gradient by up to 6e-5 of its length on trained models. Raises ``KernelError``.
    """
    gradients.forget(trained)
    # nothing but the gradients themselves is known of them
    bare = [Trained(one.name, one.parameter, ()) for one in trained]
    extent = Extent(n_rows=len(rows), n_tokens=0, n_responses=0, head=None)
    for group in in_groups(bare, extent, memory_bytes):
        pieces: list[list[Direct]] = [[] for _ in group]
        for row in rows:
            of_row = row_gradients(model, row, [one.trained.parameter for one in group])
            for collected, one, gradient in zip(pieces, group, of_row, strict=True):
                if gradient is None:
                    continue
                if one.first == 0:
                    gradients.add(one.trained.name, row.segment, gradient)
                gradient_BOI = gradient.reshape(1, one.trained.n_out, one.trained.n_in)
                collected.append(Direct(row.members, gradient_BOI).part(one.first, one.last, own_memory=True))
        for collected, one in zip(pieces, group, strict=True):
            if collected:  # else no row uses it: its gradient is 0
                kernel.add(one.trained.name, collected, one.shape, workspace_bytes=workspace_bytes(memory_bytes))


def row_gradients(
    model: nn.Module, row: KernelBatch, parameters: Sequence[nn.Parameter]
) -> tuple[torch.Tensor | None, ...]:
    """∇ log π of one row, times its sign, by autograd; None for a parameter that it does not depend on."""
    before = {parameter: parameter.requires_grad for parameter in model.parameters()}
    try:
        for parameter in before:
            parameter.requires_grad_(False)
        for parameter in parameters:
            parameter.requires_grad_(True)
        with torch.enable_grad():
            total = response_logps(model, row) @ row.sign_T
            if not total.requires_grad:
                return (None,) * len(parameters)
            return torch.autograd.grad(total, list(parameters), allow_unused=True)
    finally:
        for parameter, wants in before.items():
            parameter.requires_grad_(wants)
