"""Proves a kernel by ordinary backpropagation, which knows nothing of how the kernel came about.

The backward pass that the kernel is made of runs on Σ c_i log π_i with a random sign c_i for every row. Rows do not
depend on each other, so that what comes out is K'_ij = c_i·c_j·K_ij, and in the same pass autograd's own weight
gradients add up to ∇ Σ c_i log π_i, whose square must be Σ_ij K'_ij. An omitted parameter, a missing cross-term, a
dropped prompt: all show in it. What does not is a token that was counted to another row of its batch, as the sum is the
same. For that the row with the largest gradient is run once more, alone: its product with the sum must be that of the
kernel.

How float32 rounds the forward pass does not show either, as both sides come from one; it would drown the rest on models
that are sure of what they say, where 1 − π is all cancellation.
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

#: A kernel whose certificate is larger is refused.
LARGEST_RESIDUAL = 1e-6
#: The same for the row that is run alone: another batch rounds its forward pass differently, by up to 6e-5 of its
#: gradient on trained models, and rows that were mixed up differ by about as much as they are long.
LARGEST_DIFFERENCE_OF_A_ROW = 1e-3
#: Numbers that are squared in float64 at one time.
_NUMBERS_PER_SUM = 1 << 24


def draw_signs(n_rows: int, *, rng: np.random.Generator) -> Float[np.ndarray, " row"]:
    """+1 or −1 for every row."""
    return rng.choice([-1.0, 1.0], size=n_rows)


class SignedGradients:
    """∇ Σ c_i log π_i of every trained parameter, for each segment of rows, as autograd adds it up."""

    def __init__(self) -> None:
        self._sums: dict[str, dict[Segment, Tensor]] = {}

    @contextmanager
    def of_pass(self, trained: Sequence[Trained]) -> Iterator[list[Trained]]:
        """Inside, those parameters ask for a gradient that had none yet; they are given."""
        new = [one for one in trained if one.name not in self._sums]
        self._sums.update({one.name: {} for one in new})
        try:
            for one in new:
                one.parameter.requires_grad_(True)
            yield new
        finally:
            for one in new:
                one.parameter.requires_grad_(False)

    @contextmanager
    def of_batch(self, trained: Sequence[Trained], segment: Segment) -> Iterator[None]:
        """Inside, autograd adds what it finds for these parameters to the sums of ``segment``."""
        for one in trained:
            one.parameter.grad = self._sums[one.name].pop(segment, None)
        try:
            yield
        finally:
            for one in trained:
                if one.parameter.grad is not None:
                    self._sums[one.name][segment] = one.parameter.grad
                one.parameter.grad = None

    def forget(self, trained: Sequence[Trained]) -> None:
        """Drop what was found for these parameters: ``add`` gives it anew."""
        for one in trained:
            self._sums[one.name] = {}

    def add(self, name: str, segment: Segment, gradient: Tensor) -> None:
        """Add the signed gradient of a row of this segment."""
        sums = self._sums[name]
        sums[segment] = sums[segment].add_(gradient) if segment in sums else gradient.clone()

    def of_columns(self, name: str) -> Tensor | None:
        """∇ Σ c_j log π_j over the kernel's columns, of one parameter; None where no column depends on it."""
        sums = self._sums[name]
        return _sum(sums.get("both"), sums.get("column"))

    def product(self, name: str) -> float:
        """⟨∇ Σ c_i log π_i over the kernel's rows, ∇ Σ c_j log π_j over its columns⟩, of one parameter."""
        sums = self._sums[name]
        both = sums.get("both")
        if both is not None and len(sums) == 1:
            return float(torch.linalg.vector_norm(both, dtype=torch.float64)) ** 2
        sides = [_sum(sums.get("row"), both), _sum(both, sums.get("column"))]
        return 0.0 if sides[0] is None or sides[1] is None else _product(sides[0], sides[1])


@contextmanager
def gradients_put_aside(parameters: Iterable[nn.Parameter]) -> Iterator[None]:
    """None of them has a gradient at first inside the block; after it each has the one that it had."""
    held = [(parameter, parameter.grad) for parameter in parameters]
    try:
        for parameter, _ in held:
            parameter.grad = None
        yield
    finally:
        for parameter, gradient in held:
            parameter.grad = gradient


def residual(kernel: KernelSum, trained: Sequence[Trained], gradients: SignedGradients) -> float:
    """|Σ_ij K'_ij − ⟨∇ Σ c_i log π_i, ∇ Σ c_j log π_j⟩| relative to the second, or to its scale where that is larger.

    The scale is what the second is for an average draw of the signs: unlike it, it cannot cancel to nothing where rows
    resemble each other. Raises ``KernelError`` above ``LARGEST_RESIDUAL``.
    """
    expected = {one.name: gradients.product(one.name) for one in trained}
    off = {name: abs(kernel.sums.get(name, 0.0) - product) for name, product in expected.items()}
    total = sum(expected.values())
    difference = abs(sum(kernel.sums.values()) - total)
    relative = difference / max(kernel.scale(), abs(total)) if difference else 0.0
    if not relative <= LARGEST_RESIDUAL:
        worst = max(off, key=lambda name: off[name])
        raise KernelError(
            f"the gradient kernel: its certificate is {relative:.1e}, above {LARGEST_RESIDUAL:.0e}, most of it in "
            f"{worst}; it does not hold for this model: raise --kernel-memory-gib, or leave the kernel out"
        )
    return relative


@contextmanager
def product_with_columns(trained: Sequence[Trained], gradients: SignedGradients) -> Iterator[list[Tensor]]:
    """What is run backward inside multiplies ∇ of itself with ∇ Σ c_j log π_j over the kernel's columns.

    Gives the products, a number for each parameter that has both. A parameter's gradient is dropped once it is
    multiplied: no second set of all gradients is there, and memory that was just used is used again, which on a CPU
    costs half of what fresh memory does. Products are summed in float32 along the last axis, as
    ``LARGEST_DIFFERENCE_OF_A_ROW`` is far above what that rounds.
    """
    products: list[Tensor] = []

    def multiply(name: str) -> Callable[[Tensor], None]:
        def take(parameter: Tensor) -> None:
            gradient, parameter.grad = parameter.grad, None
            columns = gradients.of_columns(name)
            if gradient is not None and columns is not None:
                one, other = torch.atleast_1d(gradient, columns)
                products.append(torch.linalg.vecdot(one, other).sum(dtype=torch.float64))

        return take

    before = [(one.parameter, one.parameter.requires_grad) for one in trained]
    hooks = []
    try:
        for one in trained:
            one.parameter.requires_grad_(True)
            hooks.append(one.parameter.register_post_accumulate_grad_hook(multiply(one.name)))
        yield products
    finally:
        for hook in hooks:
            hook.remove()
        for parameter, wants in before:
            parameter.requires_grad_(wants)
            parameter.grad = None


def require_rows_apart(kernel: KernelSum, row: int, products: Sequence[Tensor]) -> None:
    """Raise ``KernelError`` unless the signed gradient of ``row``, from its own pass, has the kernel's products.

    ``products`` are those of ``product_with_columns``.
    """
    found = sum(map(float, products))
    difference = abs(found - float(kernel.kernel_RC[row].sum())) / kernel.scale_of_row(row)
    if not difference <= LARGEST_DIFFERENCE_OF_A_ROW:
        raise KernelError(
            f"the gradient kernel: a row that was run alone differs by {difference:.1e} of its gradient; this model "
            "mixes the rows of a batch: leave the kernel out with --kernel-problems 0"
        )


def _sum(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other


def _product(one: Tensor, other: Tensor) -> float:
    parts = zip(one.reshape(-1).split(_NUMBERS_PER_SUM), other.reshape(-1).split(_NUMBERS_PER_SUM), strict=True)
    return sum(float(left.double() @ right.double()) for left, right in parts)
