"""Assumptions of Theorem 2.4 of [A], checked on the real kernel."""

from __future__ import annotations

import numpy as np

from oversharp.diagnostics.measures.contract import Plot, Results
from oversharp.diagnostics.measures.declare import per_checkpoint
from oversharp.diagnostics.measures.kernel.gradients.batch import NO_ADVANTAGE, TrainingBatch
from oversharp.diagnostics.measures.kernel.gradients.coupling import (
    COUPLINGS,
    NO_OWN,
    RESOLUTION,
    Coupling,
    mean_over_problems,
)
from oversharp.diagnostics.theory.assumptions import coupling_flags

SCOPES = ("A2.1 aligned", "A2.3 local", "order", "denominator", "weights", "no repeats")


@per_checkpoint(
    input=COUPLINGS,
    scopes=SCOPES,
    title="Assumptions of Theorem 2.4 that hold",
    unit="share of problems",
    section="kernel",
    rank=130,
    folded=True,
    plot=Plot(x="step", group="scope", y_label="share of problems", y_range=(0.0, 1.0)),
)
def kernel_assumptions(coupling: Coupling) -> Results:
    """Assumptions of Theorem 2.4: the share of problems for which they hold on the real kernel.

    Meaning: the assumptions of [A], and steps of its proof, checked on the kernel of the checkpoint's own samples.
    Scopes: ``A2.1 aligned`` (no two modes have opposed gradients), ``A2.3 local`` (λ_min ≥ ρ_max), ``order``
    (K ⪰ M(λ_min, ρ_min)), ``denominator`` (λ_min + (G−1)ρ_min > 0), ``weights`` (no entry of α = K⁺y is negative),
    ``no repeats`` (no response was sampled twice; with repeats K has no inverse). The theory applies to a model only
    if these are near 1.
    Unit: share of problems whose own samples are partly correct, partly wrong. 95 % t interval over problems with a
    variance floor; n counts problems.
    Limits: as in the paper the sign of the advantage is in the gradient, and the modes are distinct responses.
    Assumption 2.2 is ``kernel_decay``.
    Source: [A] (arXiv 2601.15609), Assumptions 2.1 and 2.3, Theorem 2.4 and its proof in Appendix E.

    >>> from oversharp.diagnostics.measures.kernel.gradients.examples import gradients, tiny_kernels
    >>> evidence = tiny_kernels({"base": gradients((2, 0), (1, 2))}, [("q", "own", True), ("q", "own own", False)])
    >>> findings = kernel_assumptions(evidence)
    >>> [(f.scope, f.value) for f in findings][:2]  # the wrong one is subtracted: ⟨(2, 0), (−1, −2)⟩ < 0
    [('A2.1 aligned', 0.0), ('A2.3 local', 1.0)]
    >>> [(f.scope, f.value) for f in findings][2:]
    [('order', 0.0), ('denominator', 0.0), ('weights', 1.0), ('no repeats', 0.0)]
    """
    flags = [_flags(coupling, batch) for batch in coupling.informative()]
    why = NO_ADVANTAGE if len(coupling.own_S) else NO_OWN
    return {
        scope: mean_over_problems([float(of_problem[scope]) for of_problem in flags], why_none=why, is_share=True)
        for scope in SCOPES
    }


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
