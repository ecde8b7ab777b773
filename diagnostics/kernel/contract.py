"""What the gradient kernel of a model is computed from, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelRow:
    """A problem and one response to it, as tokens; the end token of the response included."""

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class GradientKernel:
    """K_ij = ⟨∇ log π(y_i|x_i), ∇ log π(y_j|x_j)⟩ over all trainable parameters, in nats² per squared parameter.

    log π is the sum over response tokens; the kernel of the means is ``K_ij / (T_i·T_j)`` with T response tokens.
    ``certificate`` is the relative difference between cᵀKc and ‖∇ Σ c_i log π_i‖² for random signs c of all rows, the
    second as autograd adds it up in the same backward pass: an omitted parameter or a wrong product shows in it, a
    token that was counted to another row of its batch does not.
    """

    kernel_NN: Float[np.ndarray, "row row"]
    logp_sum_N: Float[np.ndarray, " row"]
    certificate: float
