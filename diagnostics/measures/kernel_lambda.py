"""The extremes of λ, the diagonal of the kernel, over the fixed responses: summed over tokens, and per token."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from oversharp.diagnostics.measures._findings import findings_at, known, places
from oversharp.diagnostics.measures._kernel import NO_KERNEL, Rows, fixed_couplings
from oversharp.diagnostics.measures._kernel_findings import number
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding


def _extremes(
    name: str, title: str, *, divisor_of: Callable[[Rows], Float[np.ndarray, " row"]], y_label: str, doc: str
) -> Measure:
    """K_ii divided by what the normalisation says: smallest and largest over the fixed members."""

    def compute(evidence: Evidence) -> list[Finding]:
        fixed, why = fixed_couplings(evidence)

        def at(checkpoint_id: str) -> list[Finding]:
            rows = fixed[checkpoint_id]
            # A sum of squares that rounding left below 0 is 0; so is the gradient of what the model is certain of.
            diagonal_N = np.maximum(np.diag(rows.kernel_NN), 0.0) / divisor_of(rows)
            ends = {"min": diagonal_N.min(), "max": diagonal_N.max()}
            return [known(measure, checkpoint_id, number(end, len(rows)), scope=scope) for scope, end in ends.items()]

        return findings_at(measure, places(evidence, why), at, scopes=("min", "max"))

    measure = Measure(
        name=name,
        title=title,
        unit="squared gradient norm",
        section="kernel",
        needs=("kernel_runs", "kernel_members", "kernel_pairs"),
        missing=NO_KERNEL,
        plot=Plot(x="step", group="scope", y_label=y_label),
        compute=compute,
        doc=doc,
    )
    return measure


MEASURES = (
    _extremes(
        "kernel_lambda",
        "Self-influence λ",
        divisor_of=lambda rows: np.ones(len(rows)),
        y_label="‖∇ log π‖², summed over tokens",
        doc="""
Smallest and largest λ: how far the log-probability of single responses moves per step on itself.

Meaning: λ is the diagonal of the gradient kernel, ‖∇ log π(y|x)‖², over the fixed responses (the panel and the
modes). A step of size ε along a response's own gradient moves its log-probability by ε·λ. Scopes ``min`` and ``max``
are the extremes that the bounds of [A] rest on.
Unit: squared gradient norm of log π summed over tokens (nats² per squared parameter); n counts responses. No interval:
extremes of a fixed set.
Limits: λ grows with the length of a response and falls as the model becomes sure of it, so it compares checkpoints, not
models. Extremes follow single responses; ``kernel_lambda_per_token`` has the length taken out.
Source: [A] (arXiv 2601.15609), section 2.3, λ_min and λ_max.

>>> from oversharp.diagnostics.measures._kernel_example import gradients, tiny_kernels
>>> evidence = tiny_kernels({"base": gradients((1, 0), (1, 2))}, [("q", "panel", True), ("q", "panel", False)])
>>> [(f.scope, f.value, f.n) for f in compute(evidence)]
[('min', 1.0, 2), ('max', 5.0, 2)]
""",
    ),
    _extremes(
        "kernel_lambda_per_token",
        "Self-influence λ per token",
        divisor_of=lambda rows: rows.n_tokens_N.astype(np.float64) ** 2,
        y_label="‖∇ log π‖², mean over tokens",
        doc="""
Smallest and largest λ per token: self-influence with the length of the response taken out.

Meaning: ``kernel_lambda`` for log-probabilities averaged over tokens instead of summed: K_ii/T_i², over the fixed
responses. Scopes ``min`` and ``max``.
Unit: squared gradient norm of the mean log π per token; n counts responses. No interval: extremes of a fixed set.
Limits: falls roughly as 1/T, because gradients of distant tokens hardly align: neither normalisation makes λ a constant
of the model. Extremes follow single responses.
Source: [A] (arXiv 2601.15609), section 2.3, λ_min and λ_max, with the log-probability of [C] (The Reasoning Boundary
Paradox), Eq 16.

>>> from oversharp.diagnostics.measures._kernel_example import gradients, tiny_kernels
>>> rows = [("q", "panel", True), ("q", "panel", False)]
>>> evidence = tiny_kernels({"base": gradients((1, 0), (2, 4))}, rows, n_tokens=[1, 5])
>>> [(f.scope, f.value) for f in compute(evidence)]  # 1/1² and 20/5²
[('min', 0.8), ('max', 1.0)]
""",
    ),
)
