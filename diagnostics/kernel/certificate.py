"""Verify a kernel against the weight gradients that autograd computes.

The kernel's backward pass runs on Σ c_i log π_i, with a random sign c_i for each row. Rows do not depend on each other,
so the products of the rows' gradients are K'_ij = c_i·c_j·K_ij. In the same pass autograd computes the weight gradients
∇ Σ c_i log π_i. Their squared norm must equal Σ_ij K'_ij. An omitted parameter, a missing cross-term or a dropped
prompt changes only one of the two sides.

A token that was counted for another row of its batch changes neither side. To detect that, one row of a batch runs
again alone. The inner product of its gradient with ∇ Σ c_j log π_j must equal the sum of its kernel row. These products
are computed as soon as a part of the model is complete. So layer by layer, the gradients of all parts are never in
memory together.

The certificate does not measure the rounding error of the float32 forward pass, because both sides come from the same
pass. For models with very low entropy this error would exceed all others, because 1 − π cancels.
"""

from __future__ import annotations

import sys
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

#: Largest accepted value of the certificate.
MAX_CERTIFICATE = 1e-6
#: Largest accepted relative difference of the row that runs alone. On trained models, rounding in another batch changes
#: the gradient by up to 6e-5. Swapped rows would differ by about the length of their gradients.
MAX_ROW_DIFFERENCE = 1e-3
#: Size of the chunks that are converted to float64 and multiplied.
_NUMBERS_PER_SUM = 1 << 22


def draw_signs(n_rows: int, *, rng: np.random.Generator) -> Float[np.ndarray, " row"]:
    """Return +1 or −1 for every row."""
    return rng.choice([-1.0, 1.0], size=n_rows)


class SignedGradients:
    """Autograd's ∇ Σ c_i log π_i of each trained parameter, for each segment of rows, and its products.

    Attributes:
        products: ⟨∇ Σ c_i log π_i, ∇ Σ c_j log π_j⟩ of each parameter, for rows i and columns j.
        row_products: inner products of the gradient of the row that ran alone with ∇ Σ c_j log π_j over the columns.
            A parameter has one number per backward pass.
    """

    def __init__(self) -> None:
        self._sums: dict[str, dict[Segment, Tensor]] = {}
        self.products: dict[str, float] = {}
        self.row_products: dict[str, list[Float[Tensor, ""]]] = {}

    @contextmanager
    def collect_pass(self, trained: Sequence[Trained]) -> Iterator[list[Trained]]:
        """Enable autograd inside the block for parameters without gradients, and yield these."""
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
        """Add the gradients that autograd computes inside the block to the sums of ``segment``."""
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
        """Drop sums and products of these parameters, so that ``add`` can compute them again."""
        for parameter in trained:
            self._sums[parameter.name] = {}
            self.products.pop(parameter.name, None)
            self.row_products.pop(parameter.name, None)

    def add(self, name: str, segment: Segment, gradient: Tensor) -> None:
        """Add the gradient of one row of ``segment``, times the row's sign."""
        sums = self._sums[name]
        sums[segment] = sums[segment].add_(gradient) if segment in sums else gradient.clone()

    def multiply_row(self, name: str, gradient: Tensor) -> None:
        """Multiply the gradient of the row that ran alone with ∇ Σ c_j log π_j over the kernel's columns.

        Products are summed in float32 along the last axis. The rounding error is far below ``MAX_ROW_DIFFERENCE``.
        """
        for segment, columns in self._sums[name].items():
            if segment != "row":
                self.row_products.setdefault(name, []).append(_float32_product(gradient, columns))

    @contextmanager
    def multiply_row_pass(self, trained: Sequence[Trained]) -> Iterator[None]:
        """Call ``multiply_row`` with each gradient of the backward passes inside the block.

        Each gradient is dropped after its product, so the gradients of all parameters are never in memory together. On
        a CPU, reusing that memory costs half as much as allocating new memory.
        """

        def take(name: str) -> Callable[[Tensor], None]:
            def multiply(parameter: Tensor) -> None:
                gradient, parameter.grad = parameter.grad, None
                if gradient is not None:
                    self.multiply_row(name, gradient)

            return multiply

        hooks = []
        try:
            for parameter in trained:
                parameter.tensor.requires_grad_(True)
                hooks.append(parameter.tensor.register_post_accumulate_grad_hook(take(parameter.name)))
            yield
        finally:
            for hook in hooks:
                hook.remove()
            for parameter in trained:
                parameter.tensor.requires_grad_(False)
                parameter.tensor.grad = None

    def finish(self, trained: Sequence[Trained]) -> None:
        """Compute ``products`` of these parameters, and drop their gradients."""
        for parameter in trained:
            self.products[parameter.name] = _product_of_sums(self._sums[parameter.name])
            self._sums[parameter.name] = {}


@contextmanager
def gradients_set_aside(parameters: Iterable[nn.Parameter]) -> Iterator[None]:
    """Clear the gradients of ``parameters`` inside the block, and restore them afterwards."""
    before = [(parameter, parameter.grad) for parameter in parameters]
    try:
        for parameter, _ in before:
            parameter.grad = None
        yield
    finally:
        for parameter, gradient in before:
            parameter.grad = gradient


def check_certificate(kernel: KernelSum, trained: Sequence[Trained], gradients: SignedGradients) -> float:
    """Return the relative difference between Σ_ij K'_ij and ⟨∇ Σ c_i log π_i, ∇ Σ c_j log π_j⟩.

    The absolute difference is divided by the second term, or by its typical size for random signs (``KernelSum.scale``)
    if that is larger. The second term alone can cancel to almost 0 if rows resemble each other. Raises ``KernelError``
    above ``MAX_CERTIFICATE``.
    """
    products = {parameter.name: gradients.products[parameter.name] for parameter in trained}
    off = {name: abs(kernel.sums.get(name, 0.0) - product) for name, product in products.items()}
    total = sum(products.values())
    difference = abs(sum(kernel.sums.values()) - total)
    relative = difference / max(kernel.scale(), abs(total)) if difference else 0.0
    if not relative <= MAX_CERTIFICATE:
        worst = max(off, key=lambda name: off[name])
        raise KernelError(
            f"the gradient kernel: its certificate is {relative:.1e}, above {MAX_CERTIFICATE:.0e}, mostly from "
            f"{worst}; the kernel is wrong for this model: raise --kernel-memory-gib, or pass --kernel-problems 0"
        )
    return relative


def require_rows_apart(kernel: KernelSum, row: int, gradients: SignedGradients) -> None:
    """Raise ``KernelError`` unless the row that ran alone agrees with the kernel.

    The sum of its products with the columns' gradients must equal the sum of the kernel's row.
    """
    product = sum(float(product) for products in gradients.row_products.values() for product in products)
    _refuse_mixed_rows(abs(product - float(kernel.kernel_RC[row].sum())), kernel.scale_of_row(row))


def require_equal_gradients(layered_LH: Float[Tensor, "token hidden"], alone_LH: Float[Tensor, "token hidden"]) -> None:
    """Raise ``KernelError`` unless both gradients at the first layer's input agree.

    ``layered_LH`` was computed layer by layer in the row's batch, ``alone_LH`` by the whole model with the row alone.
    They differ if the layers exchange more than hidden states.
    """
    difference, scale = (torch.linalg.vector_norm(numbers) for numbers in (layered_LH - alone_LH, alone_LH))
    _refuse_mixed_rows(float(difference), float(scale))


def _refuse_mixed_rows(difference: float, scale: float) -> None:
    relative = difference / max(scale, sys.float_info.min)
    if not relative <= MAX_ROW_DIFFERENCE:
        raise KernelError(
            f"the gradient kernel: a row that ran alone differs by {relative:.1e} of its gradient from the same row "
            "in its batch; this model mixes the rows of a batch: pass --kernel-problems 0"
        )


def _product_of_sums(sums: dict[Segment, Tensor]) -> float:
    both = sums.get("both")
    if both is not None and len(sums) == 1:
        parts = both.reshape(-1).split(_NUMBERS_PER_SUM)
        return sum(float(torch.linalg.vector_norm(part, dtype=torch.float64)) ** 2 for part in parts)
    sides = [_add(sums.get("row"), both), _add(both, sums.get("column"))]
    return 0.0 if sides[0] is None or sides[1] is None else _product(sides[0], sides[1])


def _add(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    if first is None or second is None:
        return second if first is None else first
    return first + second


def _product(first: Tensor, second: Tensor) -> float:
    parts = zip(first.reshape(-1).split(_NUMBERS_PER_SUM), second.reshape(-1).split(_NUMBERS_PER_SUM), strict=True)
    return sum(float(left.double() @ right.double()) for left, right in parts)


def _float32_product(first: Tensor, second: Tensor) -> Float[Tensor, ""]:
    first, second = torch.atleast_1d(first, second)
    n_entries = max(1, _NUMBERS_PER_SUM // max(1, first[0].numel()))  # vecdot needs memory for all products
    parts = zip(first.split(n_entries), second.split(n_entries), strict=True)
    return torch.stack([torch.linalg.vecdot(left, right).sum(dtype=torch.float64) for left, right in parts]).sum()
