"""Extremes of λ, the diagonal of the kernel, over the fixed responses: summed over tokens, and per token."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from oversharp.diagnostics.measures.contract import Plot, Results
from oversharp.diagnostics.measures.declare import per_checkpoint
from oversharp.diagnostics.measures.kernel.gradients.coupling import FIXED_ROWS, Rows, number


@per_checkpoint(
    input=FIXED_ROWS,
    scopes=("min", "max"),
    title="Self-influence λ",
    unit="squared gradient norm",
    section="kernel",
    rank=150,
    folded=True,
    plot=Plot(x="step", group="scope", y_label="‖∇ log π‖², summed over tokens", log_y=True),
)
def kernel_lambda(rows: Rows) -> Results:
    """Self-influence λ: how much a step on a response changes its own log-probability.

    Meaning: λ is the diagonal of the gradient kernel, ‖∇ log π(y|x)‖², over the fixed responses (the panel and the
    modes). A step of size ε along a response's own gradient moves its log-probability by ε·λ. Scopes ``min`` and
    ``max`` are the extremes that the bounds of [A] use.
    Unit: squared gradient norm of log π summed over tokens (nats² per squared parameter); n counts responses. No
    interval: extremes of a fixed set.
    Limits: λ grows with the length of a response and falls as the model becomes certain of it, so compare checkpoints,
    not models. Extremes depend on single responses; ``kernel_lambda_per_token`` corrects for length.
    Source: [A] (arXiv 2601.15609), section 2.3, λ_min and λ_max.

    >>> from oversharp.diagnostics.measures.kernel.gradients.examples import gradients, tiny_kernels
    >>> evidence = tiny_kernels({"base": gradients((1, 0), (1, 2))}, [("q", "panel", True), ("q", "panel", False)])
    >>> [(f.scope, f.value, f.n) for f in kernel_lambda(evidence)]
    [('min', 1.0, 2), ('max', 5.0, 2)]
    """
    return _extremes(rows, np.ones(len(rows)))


@per_checkpoint(
    input=FIXED_ROWS,
    scopes=("min", "max"),
    title="Self-influence λ per token",
    unit="squared gradient norm",
    section="kernel",
    rank=160,
    folded=True,
    plot=Plot(x="step", group="scope", y_label="‖∇ log π‖², mean over tokens", log_y=True),
)
def kernel_lambda_per_token(rows: Rows) -> Results:
    """Self-influence λ per token: self-influence corrected for the length of the response.

    Meaning: ``kernel_lambda`` for log-probabilities averaged over tokens instead of summed: K_ii/T_i², over the fixed
    responses. Scopes ``min`` and ``max``.
    Unit: squared gradient norm of the mean log π per token; n counts responses. No interval: extremes of a fixed set.
    Limits: falls roughly as 1/T, because gradients of distant tokens hardly align: neither normalisation makes λ a
    constant of the model. Extremes depend on single responses.
    Source: [A] (arXiv 2601.15609), section 2.3, λ_min and λ_max, with the log-probability of [C] (The Reasoning
    Boundary Paradox), Eq 16.

    >>> from oversharp.diagnostics.measures.kernel.gradients.examples import gradients, tiny_kernels
    >>> rows = [("q", "panel", True), ("q", "panel", False)]
    >>> evidence = tiny_kernels({"base": gradients((1, 0), (2, 4))}, rows, n_tokens=[1, 5])
    >>> [(f.scope, f.value) for f in kernel_lambda_per_token(evidence)]  # 1/1² and 20/5²
    [('min', 0.8), ('max', 1.0)]
    """
    return _extremes(rows, rows.n_tokens_N.astype(np.float64) ** 2)


def _extremes(rows: Rows, divisor_N: Float[np.ndarray, " row"]) -> Results:
    # rounding can make a sum of squares negative; the gradient of a certain response is 0
    diagonal_N = np.maximum(np.diag(rows.kernel_NN), 0.0) / divisor_N
    return {"min": number(diagonal_N.min(), len(rows)), "max": number(diagonal_N.max(), len(rows))}
