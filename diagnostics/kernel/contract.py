"""Input rows and result record of the gradient kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelRow:
    """Token ids of a prompt and of one response, including the response's end token."""

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class GradientKernel:
    """K_ij = ⟨∇ log π(y_i|x_i), ∇ log π(y_j|x_j)⟩, in nats² per squared parameter.

    The inner product is over all trainable parameters, and log π is the sum over response tokens. The kernel of
    per-token means is ``K_ij / (T_i·T_j)``, where T_i is the number of response tokens of row i.

    ``certificate`` is the relative difference between cᵀKc and ‖∇ Σ c_i log π_i‖², with a random sign c_i for each row.
    Autograd computes the second term in the same backward pass. The certificate detects an omitted parameter and a
    wrong product. It does not detect a token that was counted for another row of its batch.
    """

    kernel_NN: Float[np.ndarray, "row row"]
    logp_sum_N: Float[np.ndarray, " row"]
    certificate: float
