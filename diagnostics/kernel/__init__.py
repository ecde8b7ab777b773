"""The exact gradient kernel of a causal language model. Nothing heavy is imported before one is computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from oversharp.diagnostics.kernel.contract import GradientKernel, KernelRow

if TYPE_CHECKING:
    from oversharp.diagnostics.models.load import LoadedModel


def gradient_kernel(
    loaded: LoadedModel,
    rows: Sequence[KernelRow],
    *,
    memory_bytes: int | None = None,
    seed: int = 0,
    note: Callable[[str], None] = lambda line: None,
) -> GradientKernel:
    """K_ij = ⟨∇ log π(y_i|x_i), ∇ log π(y_j|x_j)⟩ for every pair of rows, over every parameter that is trained.

    Trained are the parameters that require a gradient; of an adapter that was loaded for use, where none does, the
    active adapter's: its kernel is that of the adapter alone. The model computes in float32 whatever its dtype, sums
    over chunks of parameters are float64, and the model is given back as it was. log π is in nats and summed over
    the response; gradients flow through the prompt. Rows may repeat: each is computed once.

    ``memory_bytes`` bounds what is kept beside the activations of one batch; batches are cut so that the activations
    take about as much again, but no more than 1 GiB, and hold one row at least. None: 1 GiB, and more where that spares
    time and is free. The result does not depend on it but for rounding. ``seed`` draws the signs of the certificate,
    ``note`` is told what will be done where it takes long.

    Raises ``KernelError`` for fewer than two rows, an empty prompt or response, a token outside the embedding, a row
    beyond the context, NaN or infinite numbers, and a certificate above 1e-6; ``KernelTooLargeError`` for more rows
    than fit in the budget.

    Source: *When Sharpening Becomes Collapse* (arXiv 2601.15609) section 2.3; *The Reasoning Boundary Paradox*,
    section 3.1.
    """
    from oversharp.diagnostics.kernel.exact import square_kernel

    return square_kernel(loaded, rows, memory_bytes=memory_bytes, seed=seed, note=note)


def cross_kernel(
    loaded: LoadedModel,
    rows: Sequence[KernelRow],
    columns: Sequence[KernelRow],
    *,
    memory_bytes: int,
    seed: int = 0,
) -> Float[np.ndarray, "row column"]:
    """⟨∇ log π(row), ∇ log π(column)⟩ alone: the influence of a training batch (columns) on a panel (rows).

    To first order, a step of plain SGD with learning rate η on Σ_j A_j log π_j changes log π_i by η·Σ_j K_ij A_j.
    Parameters, precision, memory, certificate and errors as for ``gradient_kernel``; one row on each side is enough.

    Source: *The Reasoning Boundary Paradox*, Proposition 3.1.
    """
    from oversharp.diagnostics.kernel.exact import rectangular_kernel

    return rectangular_kernel(loaded, rows, columns, memory_bytes=memory_bytes, seed=seed)


__all__ = ["GradientKernel", "KernelRow", "cross_kernel", "gradient_kernel"]
