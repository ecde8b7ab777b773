"""Proves a kernel by ordinary backpropagation, which knows nothing of how the kernel came about.

For signs c that are zero but on a few rows, cᵀKc = ‖∇ Σ c_i log π_i‖². The right side comes from autograd's own
gradients of the weights, in a pass of its own. An omitted parameter, a missing cross-term, a dropped prompt, rows that
were mixed up: all show in it. How float32 rounds the forward pass does not, as both run the same rows together; it
would drown the rest on models that are sure of what they say, where 1 − π is all cancellation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from diagnostics.errors import KernelError
from diagnostics.kernel.forward import response_logps
from diagnostics.kernel.parameters import Trained
from diagnostics.kernel.products import KernelSum
from diagnostics.kernel.rows import Batch

#: A kernel whose certificate is larger is refused.
LARGEST_RESIDUAL = 1e-6
#: Rows with a sign: an eighth of all, but so many at least. Each costs its forward and backward pass once more.
LEAST_ROWS = 4
_ROWS_PER_SIGN = 8
#: Numbers that are squared in float64 at one time.
_NUMBERS_PER_SUM = 1 << 24


def draw_signs(start: int, end: int, n_rows: int, *, rng: np.random.Generator) -> Float[np.ndarray, " row"]:
    """+1 or −1 for rows that are drawn from ``start`` to ``end``, 0 for all others."""
    sign_N = np.zeros(n_rows)
    n_drawn = min(end - start, max(LEAST_ROWS, (end - start) // _ROWS_PER_SIGN))
    drawn = start + rng.choice(end - start, size=n_drawn, replace=False)
    sign_N[drawn] = rng.choice([-1.0, 1.0], size=n_drawn)
    return sign_N


def signed_gradient(
    model: nn.Module, batches: Sequence[Batch], sign_N: Tensor, trained: Sequence[Trained]
) -> list[Tensor]:
    """∇ Σ c_i log π_i for each trained parameter, by ordinary backpropagation; zeros where nothing depends on it."""
    parameters = [one.parameter for one in trained]
    before = {parameter: parameter.requires_grad for parameter in model.parameters()}
    totals = [torch.zeros_like(parameter) for parameter in parameters]
    try:
        for parameter in before:
            parameter.requires_grad_(False)
        for parameter in parameters:
            parameter.requires_grad_(True)
        for batch in batches:
            sign_T = sign_N[list(batch.members)].float()[batch.member_T]
            signed = (response_logps(model, batch) * sign_T).sum()
            for total, gradient in zip(totals, torch.autograd.grad(signed, parameters, allow_unused=True), strict=True):
                if gradient is not None:
                    total += gradient
    finally:
        for parameter, wants in before.items():
            parameter.requires_grad_(wants)
    return totals


def residual(
    kernel: KernelSum,
    trained: Sequence[Trained],
    gradients: Sequence[Tensor],
    other_gradients: Sequence[Tensor],
    *,
    scale: float,
) -> float:
    """|cᵀKd − ⟨∇ Σ c_i log π_i, ∇ Σ d_j log π_j⟩| relative to ``scale`` or the second, the larger of the two.

    ``scale`` is what the second is for an average draw of the signs: unlike it, it cannot cancel to nothing where rows
    resemble each other. Raises ``KernelError`` above ``LARGEST_RESIDUAL``.
    """
    names = [one.name for one in trained]
    expected = [_product(one, other) for one, other in zip(gradients, other_gradients, strict=True)]
    off = {name: abs(kernel.certified.get(name, 0.0) - product) for name, product in zip(names, expected, strict=True)}
    total = sum(expected)
    difference = abs(sum(kernel.certified.values()) - total)
    relative = difference / max(scale, abs(total)) if difference else 0.0
    if not relative <= LARGEST_RESIDUAL:
        worst = max(off, key=lambda name: off[name])
        raise KernelError(
            f"the gradient kernel: its certificate is {relative:.1e}, above {LARGEST_RESIDUAL:.0e}, most of it in "
            f"{worst}; it does not hold for this model: raise --kernel-memory-gib, or leave the kernel out"
        )
    return relative


def _product(one: Tensor, other: Tensor) -> float:
    parts = zip(one.reshape(-1).split(_NUMBERS_PER_SUM), other.reshape(-1).split(_NUMBERS_PER_SUM), strict=True)
    return sum(float(left.double() @ right.double()) for left, right in parts)
