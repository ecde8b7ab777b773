"""Assumptions of Theorem 2.4: at how many problems they hold on the real kernel.

Meaning: what [A] assumes, or its proof uses, checked on the kernel of the checkpoint's own samples. Scopes: ``A2.1
aligned`` (no two modes have opposed gradients), ``A2.3 local`` (λ_min ≥ ρ_max), ``order`` (K ⪰ M(λ_min, ρ_min)),
``denominator`` (λ_min + (G−1)ρ_min > 0), ``weights`` (no entry of α = K⁺y is negative), ``no repeats`` (no response was
drawn twice; with repeats K has no inverse). The theory speaks of a model only as far as these are near 1.
Unit: share of problems whose own samples are part correct, part wrong. 95 % t interval over problems with a variance
floor; n counts problems.
Limits: as in the paper the sign of the advantage is in the gradient, and the modes are distinct responses. Assumption
2.2 is ``kernel_decay``.
Source: [A] (arXiv 2601.15609), Assumptions 2.1 and 2.3, Theorem 2.4 and its proof in Appendix E.

>>> from oversharp.diagnostics.measures._kernel_example import gradients, tiny_kernels
>>> evidence = tiny_kernels({"base": gradients((2, 0), (1, 2))}, [("q", "own", True), ("q", "own own", False)])
>>> [(f.scope, f.value) for f in compute(evidence)][:2]  # the wrong one is taken away: ⟨(2, 0), (−1, −2)⟩ < 0
[('A2.1 aligned', 0.0), ('A2.3 local', 1.0)]
>>> [(f.scope, f.value) for f in compute(evidence)][2:]
[('order', 0.0), ('denominator', 0.0), ('weights', 1.0), ('no repeats', 0.0)]
"""

from __future__ import annotations

import numpy as np

from oversharp.diagnostics.measures._batch import NO_ADVANTAGE, TrainingBatch
from oversharp.diagnostics.measures._kernel import NO_KERNEL, NO_OWN, RESOLUTION, Coupling
from oversharp.diagnostics.measures._kernel_findings import of_coupling, over_problems
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.theory.assumptions import coupling_flags

SCOPES = ("A2.1 aligned", "A2.3 local", "order", "denominator", "weights", "no repeats")


def compute(evidence: Evidence) -> list[Finding]:
    """Six findings per checkpoint; unknown where no own samples have an advantage."""
    return of_coupling(MEASURE, evidence, SCOPES, _at)


def _at(checkpoint_id: str, coupling: Coupling) -> list[Finding]:
    flags = [_flags(coupling, batch) for batch in coupling.informative()]
    why = NO_ADVANTAGE if len(coupling.own_S) else NO_OWN
    return [
        over_problems(
            MEASURE, checkpoint_id, [float(holds[scope]) for holds in flags], scope=scope, why=why, share=True
        )
        for scope in SCOPES
    ]


def _flags(coupling: Coupling, batch: TrainingBatch) -> dict[str, bool]:
    flags = coupling_flags(
        coupling.aligned_kernel(batch), np.abs(batch.targets), batch.mode_S, relative_cutoff=RESOLUTION
    )
    return {
        "A2.1 aligned": flags.gradients_aligned,
        "A2.3 local": flags.self_exceeds_cross,
        "order": flags.psd_order,
        "denominator": flags.denominator_positive,
        "weights": flags.n_negative_alpha == 0,
        "no repeats": flags.n_repeats == 0,
    }


MEASURE = Measure(
    name="kernel_assumptions",
    title="Assumptions of Theorem 2.4 that hold",
    unit="share of problems",
    section="kernel",
    needs=("kernel_runs", "kernel_members", "kernel_pairs"),
    missing=NO_KERNEL,
    plot=Plot(x="step", group="scope", y_label="share of problems", y_range=(0.0, 1.0)),
    compute=compute,
)
