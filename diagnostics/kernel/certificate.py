"""Verify a kernel by ordinary backpropagation, independently of the kernel's products.

The kernel's backward pass runs on Σ c_i log π_i with a random sign c_i for every row. Rows do not depend on each other,
so the products are K'_ij = c_i·c_j·K_ij. In the same pass autograd's own weight gradients sum to ∇ Σ c_i log π_i, whose
square must be Σ_ij K'_ij. An omitted parameter, a missing cross-term and a dropped prompt change only one side.

A token that was added to another row of its batch changes neither side. To detect that, the row with the largest
gradient runs again alone: its product with the sum must be that of the kernel.

The certificate does not measure how float32 rounds the forward pass: both sides come from the same pass. On models with
very low entropy this rounding would exceed all other errors, because 1 − π cancels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from oversharp.diagnostics.kernel.parameters import Trained
from oversharp.diagnostics.kernel.products import KernelSum
from oversharp.diagnostics.kernel.rows import Segment
from oversharp.diagnostics.records.errors import KernelError

#: Largest accepted certificate.
MAX_CERTIFICATE = 1e-6
#: Largest accepted difference of the row that runs alone. Another batch rounds its forward pass differently, by up to
#: 6e-5 of the gradient on trained models; swapped rows differ by about the length of their gradients.
MAX_ROW_DIFFERENCE = 1e-3
#: Numbers squared in float64 at a time.
_NUMBERS_PER_SUM = 1 << 24


def draw_signs(n_rows: int, *, rng: np.random.Generator) -> Float[np.ndarray, " row"]:
    """Return +1 or −1 for every row."""
    return rng.choice([-1.0, 1.0], size=n_rows)


class SignedGradients:
    """∇ Σ c_i log π_i of every trained parameter, by segment of rows, as summed by autograd."""

    def __init__(self) -> None:
        self._sums: dict[str, dict[Segment, Tensor]] = {}

    @contextmanager
    def collect_pass(self, trained: Sequence[Trained]) -> Iterator[list[Trained]]:
        """Require gradients inside the block of the parameters that have none yet, and yield these."""
        new = [parameter for parameter in trained if parameter.name not in self._sums]
        self._sums.update({parameter.name: {} for parameter in new})
        try:
            for parameter in new:
                parameter.tensor.requires_grad_(True)
            yield new
        finally:
            for parameter in new:
                parameter.tensor.requires_grad_(False)

    @contextmanager
    def collect_batch(self, trained: Sequence[Trained], segment: Segment) -> Iterator[None]:
        """Add autograd's gradients of these parameters inside the block to the sums of ``segment``."""
        for parameter in trained:
            parameter.tensor.grad = self._sums[parameter.name].pop(segment, None)
        try:
            yield
        finally:
            for parameter in trained:
                if parameter.tensor.grad is not None:
                    self._sums[parameter.name][segment] = parameter.tensor.grad
                parameter.tensor.grad = None

    def forget(self, trained: Sequence[Trained]) -> None:
        """Drop the sums of these parameters, which ``add`` computes again."""
        for parameter in trained:
            self._sums[parameter.name] = {}

    def add(self, name: str, segment: Segment, gradient: Tensor) -> None:
        """Add the signed gradient of a row of this segment."""
        sums = self._sums[name]
        sums[segment] = sums[segment].add_(gradient) if segment in sums else gradient.clone()

    def column_sum(self, name: str) -> Tensor | None:
        """Return ∇ Σ c_j log π_j of one parameter over the kernel's columns; None if it is 0."""
        sums = self._sums[name]
        return _add(sums.get("both"), sums.get("column"))

    def product(self, name: str) -> float:
        """Return ⟨∇ Σ c_i log π_i, ∇ Σ c_j log π_j⟩ of one parameter, for rows i and columns j."""
        sums = self._sums[name]
        both = sums.get("both")
        if both is not None and len(sums) == 1:
            return float(torch.linalg.vector_norm(both, dtype=torch.float64)) ** 2
        sides = [_add(sums.get("row"), both), _add(both, sums.get("column"))]
        return 0.0 if sides[0] is None or sides[1] is None else _product(sides[0], sides[1])


@contextmanager
def gradients_set_aside(parameters: Iterable[nn.Parameter]) -> Iterator[None]:
    """Clear the gradients of these parameters inside the block, and restore them afterwards."""
    before = [(parameter, parameter.grad) for parameter in parameters]
    try:
        for parameter, _ in before:
            parameter.grad = None
        yield
    finally:
        for parameter, gradient in before:
            parameter.grad = gradient


def check_certificate(kernel: KernelSum, trained: Sequence[Trained], gradients: SignedGradients) -> float:
    """Return |Σ_ij K'_ij − ⟨∇ Σ c_i log π_i, ∇ Σ c_j log π_j⟩|, relative to the second or to its scale.

    The larger of the two is used. The scale is the second for average signs: unlike the second, it cannot cancel to
    nothing where rows resemble each other. Raises ``KernelError`` above ``MAX_CERTIFICATE``.
    """
    expected = {parameter.name: gradients.product(parameter.name) for parameter in trained}
    off = {name: abs(kernel.sums.get(name, 0.0) - product) for name, product in expected.items()}
    total = sum(expected.values())
    difference = abs(sum(kernel.sums.values()) - total)
    relative = difference / max(kernel.scale(), abs(total)) if difference else 0.0
    if not relative <= MAX_CERTIFICATE:
        worst = max(off, key=lambda name: off[name])
        raise KernelError(
            f"the gradient kernel: its certificate is {relative:.1e}, above {MAX_CERTIFICATE:.0e}, most of it in "
            f"{worst}; the kernel is wrong for this model: raise --kernel-memory-gib, or leave the kernel out"
        )
    return relative


@contextmanager
def product_with_columns(trained: Sequence[Trained], gradients: SignedGradients) -> Iterator[list[Tensor]]:
    """Multiply gradients of a backward pass inside the block with ∇ Σ c_j log π_j over columns.

    Yields the list of products, one number per parameter that has both. Each gradient is dropped after its product:
    there is never a second set of all gradients, and reused memory costs half of what fresh memory does on a CPU.
    Products are summed in float32 along the last axis, whose rounding is far below ``MAX_ROW_DIFFERENCE``.
    """
    products: list[Tensor] = []

    def multiply(name: str) -> Callable[[Tensor], None]:
        def take(parameter: Tensor) -> None:
            gradient, parameter.grad = parameter.grad, None
            columns = gradients.column_sum(name)
            if gradient is not None and columns is not None:
                row, column = torch.atleast_1d(gradient, columns)
                products.append(torch.linalg.vecdot(row, column).sum(dtype=torch.float64))

        return take

    before = [(parameter.tensor, parameter.tensor.requires_grad) for parameter in trained]
    hooks = []
    try:
        for parameter in trained:
            parameter.tensor.requires_grad_(True)
            hooks.append(parameter.tensor.register_post_accumulate_grad_hook(multiply(parameter.name)))
        yield products
    finally:
        for hook in hooks:
            hook.remove()
        for tensor, required in before:
            tensor.requires_grad_(required)
            tensor.grad = None


def require_rows_apart(kernel: KernelSum, row: int, products: Sequence[Tensor]) -> None:
    """Raise ``KernelError`` unless the gradient of ``row``, computed alone, has the kernel's products.

    ``products`` are those of ``product_with_columns``.
    """
    difference = abs(sum(map(float, products)) - float(kernel.kernel_RC[row].sum())) / kernel.scale_of_row(row)
    if not difference <= MAX_ROW_DIFFERENCE:
        raise KernelError(
            f"the gradient kernel: a row that was run alone differs by {difference:.1e} of its gradient; this model "
            "mixes the rows of a batch: leave the kernel out with --kernel-problems 0"
        )


def _add(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    if first is None or second is None:
        return second if first is None else first
    return first + second


def _product(first: Tensor, second: Tensor) -> float:
    parts = zip(first.reshape(-1).split(_NUMBERS_PER_SUM), second.reshape(-1).split(_NUMBERS_PER_SUM), strict=True)
    return sum(float(left.double() @ right.double()) for left, right in parts)
