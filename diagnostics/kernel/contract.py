"""Inputs and result of the gradient kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelRow:
    """Tokens of a prompt and of one response, its end token included."""

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class GradientKernel:
    """K_ij = ⟨∇ log π(y_i|x_i), ∇ log π(y_j|x_j)⟩ over all trainable parameters, in nats² per squared parameter.

    log π is the sum over response tokens; the kernel of the means is ``K_ij / (T_i·T_j)`` with T response tokens.
    ``certificate`` is the relative difference between cᵀKc and ‖∇ Σ c_i log π_i‖² for random signs c of all rows. The
    second is autograd's sum in the same backward pass. An omitted parameter or a wrong product makes them differ; a
    token that was added to another row of its batch does not.
    """

    kernel_NN: Float[np.ndarray, "row row"]
    logp_sum_N: Float[np.ndarray, " row"]
    certificate: float
