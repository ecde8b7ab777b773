"""Bounds of Theorem 2.4: at how many problems the printed bound fails on the real kernel.

Meaning: [A] bounds the shift of an unseen response from above (Case 1) and of a seen one from below (Case 2), in terms
of λ and ρ alone. Beside the exact shift kᵀK⁺y of the checkpoint's own samples: scopes ``unseen fails`` (some unseen
correct response moves by more than the bound), ``seen fails`` (some own sample moves by less), and ``unseen no bound``
and ``seen no bound`` (a denominator of the printed form is not positive, so it says nothing).
Unit: share of problems whose own samples are part correct, part wrong; those without an unseen correct response do not
count for Case 1. 95 % t interval over problems with a variance floor; n counts problems.
Limits: as in the paper the sign of the advantage is in the gradient. η is 1, because source and target are one
problem: the case most favourable to the bounds. 0 does not mean that the theorem holds: see ``kernel_assumptions``.
Source: [A] (arXiv 2601.15609), Theorem 2.4, as printed; K ⪰ M(λ_min, ρ_min) does not follow from bounds on entries.

>>> from diagnostics.measures._kernel_example import gradients, tiny_kernels
>>> rows = [("q", "own", True), ("q", "own", False), ("q", "panel", True)]
>>> evidence = tiny_kernels({"base": gradients((2, 0), (0, -1), (1, 1))}, rows)
>>> [(f.scope, f.value) for f in compute(evidence)]  # λ 1 to 4, ρ 0: at most 0 for the unseen one, which moves by 3/4
[('unseen fails', 1.0), ('unseen no bound', 0.0), ('seen fails', 0.0), ('seen no bound', 0.0)]
"""

from __future__ import annotations

from diagnostics.measures._batch import NO_ADVANTAGE
from diagnostics.measures._kernel import NO_KERNEL, NO_OWN, Coupling
from diagnostics.measures._kernel_bounds import seen_case, unseen_case
from diagnostics.measures._kernel_findings import of_coupling, over_problems
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.records.types import Finding

SCOPES = ("unseen fails", "unseen no bound", "seen fails", "seen no bound")


def compute(evidence: Evidence) -> list[Finding]:
    """Four findings per checkpoint; unknown where no own samples have an advantage."""
    return of_coupling(MEASURE, evidence, SCOPES, _at)


def _at(checkpoint_id: str, coupling: Coupling) -> list[Finding]:
    verdicts: dict[str, list[float]] = {scope: [] for scope in SCOPES}
    batches = coupling.informative()
    for batch in batches:
        for name, case in (("unseen", unseen_case(coupling, batch)), ("seen", seen_case(coupling, batch))):
            if case is not None:
                verdicts[f"{name} fails"].append(float(case.fails))
                verdicts[f"{name} no bound"].append(float(case.bound is None))
    if not len(coupling.own_S):
        why = NO_OWN
    else:
        why = "no unseen correct response beside a batch with advantages" if batches else NO_ADVANTAGE
    return [over_problems(MEASURE, checkpoint_id, verdicts[s], scope=s, why=why, share=True) for s in SCOPES]


MEASURE = Measure(
    name="kernel_bound_failures",
    title="Bounds of Theorem 2.4 that fail",
    unit="share of problems",
    section="kernel",
    needs=("kernel_runs", "kernel_members", "kernel_pairs"),
    missing=NO_KERNEL,
    plot=Plot(x="step", group="scope", y_label="share of problems", y_range=(0.0, 1.0)),
    compute=compute,
)
