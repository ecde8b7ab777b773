"""Smallest and largest λ per token: self-influence with the length of the response taken out.

Meaning: ``kernel_lambda`` for log-probabilities averaged over tokens instead of summed: K_ii/T_i², over the fixed
responses. Scopes ``min`` and ``max``.
Unit: squared gradient norm of the mean log π per token; n counts responses. No interval: extremes of a fixed set.
Limits: falls roughly as 1/T, because gradients of distant tokens hardly align: neither normalisation makes λ a constant
of the model. Extremes follow single responses.
Source: [A] (arXiv 2601.15609), section 2.3, λ_min and λ_max, with the log-probability of [C] (The Reasoning Boundary
Paradox), Eq 16.

>>> from diagnostics.measures._kernel_example import gradients, tiny_kernels
>>> rows = [("q", "panel", True), ("q", "panel", False)]
>>> evidence = tiny_kernels({"base": gradients((1, 0), (2, 4))}, rows, n_tokens=[1, 5])
>>> [(f.scope, f.value) for f in compute(evidence)]  # 1/1² and 20/5²
[('min', 0.8), ('max', 1.0)]
"""

from __future__ import annotations

import numpy as np

from diagnostics.measures._kernel import NO_KERNEL
from diagnostics.measures._kernel_findings import lambda_findings
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.records.types import Finding


def compute(evidence: Evidence) -> list[Finding]:
    """Two findings per checkpoint, ``min`` and ``max``; unknown where it has no kernel."""
    return lambda_findings(MEASURE, evidence, lambda rows: rows.n_tokens_N.astype(np.float64) ** 2)


MEASURE = Measure(
    name="kernel_lambda_per_token",
    title="Self-influence λ per token",
    unit="squared gradient norm",
    section="kernel",
    needs=("kernel_runs", "kernel_members", "kernel_pairs"),
    missing=NO_KERNEL,
    plot=Plot(x="step", group="scope", y_label="‖∇ log π‖², mean over tokens"),
    compute=compute,
)
