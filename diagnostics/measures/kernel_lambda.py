"""Smallest and largest λ: how far the log-probability of single responses moves per step on itself.

Meaning: λ is the diagonal of the gradient kernel, ‖∇ log π(y|x)‖², over the fixed responses (the panel and the
modes). A step of size ε along a response's own gradient moves its log-probability by ε·λ. Scopes ``min`` and ``max``
are the extremes that the bounds of [A] rest on.
Unit: squared gradient norm of log π summed over tokens (nats² per squared parameter); n counts responses. No interval:
extremes of a fixed set.
Limits: λ grows with the length of a response and falls as the model becomes sure of it, so it compares checkpoints, not
models. Extremes follow single responses; ``kernel_lambda_per_token`` has the length taken out.
Source: [A] (arXiv 2601.15609), section 2.3, λ_min and λ_max.

>>> from diagnostics.measures._kernel_example import gradients, tiny_kernels
>>> evidence = tiny_kernels({"base": gradients((1, 0), (1, 2))}, [("q", "panel", True), ("q", "panel", False)])
>>> [(f.scope, f.value, f.n) for f in compute(evidence)]
[('min', 1.0, 2), ('max', 5.0, 2)]
"""

from __future__ import annotations

import numpy as np

from diagnostics.measures._kernel import NO_KERNEL
from diagnostics.measures._kernel_findings import lambda_findings
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.records.types import Finding


def compute(evidence: Evidence) -> list[Finding]:
    """Two findings per checkpoint, ``min`` and ``max``; unknown where it has no kernel."""
    return lambda_findings(MEASURE, evidence, lambda rows: np.ones(len(rows)))


MEASURE = Measure(
    name="kernel_lambda",
    title="Self-influence λ",
    unit="squared gradient norm",
    section="kernel",
    needs=("kernel_runs", "kernel_members", "kernel_pairs"),
    missing=NO_KERNEL,
    plot=Plot(x="step", group="scope", y_label="‖∇ log π‖², summed over tokens"),
    compute=compute,
)
