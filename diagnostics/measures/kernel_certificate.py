"""Kernel certificate: whether the gradient kernel holds every parameter and every product.

Meaning: for random signs c, cᵀKc must equal the squared norm of one ordinary gradient, that of Σ c_i log π_i. The
largest relative difference over several sign vectors, as stored with the kernel. A parameter that was left out, a
wrong product or a padded position shows here. Rounding in float32 leaves 1e-9 to 1e-7; above 1e-6 no kernel is stored.
Unit: relative difference; n counts kernels. No interval: it is a check, not an estimate.
Limits: random signs find an error that moves the norm of sums, not one in a single entry far below the diagonal. A
checkpoint without a kernel has the reason here.
Source: ours; the quadratic form is that of Hutchinson 1990 (Commun. Stat. Simul. 19:433).

>>> from oversharp.diagnostics.measures._kernel_example import gradients, tiny_kernels
>>> evidence = tiny_kernels({"base": gradients((1, 0))}, [("q", "panel", True)], why={"late": "NaN in the weights"})
>>> [(f.checkpoint_id, f.value, f.why) for f in compute(evidence)]
[('base', 1e-09, None), ('late', None, 'NaN in the weights')]
"""

from __future__ import annotations

from oversharp.diagnostics.measures._findings import checkpoint_ids, known, unknown
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.units import Interval


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per checkpoint; unknown, with the stored reason, where there is no kernel."""
    runs = evidence.frames["kernel_runs"].set_index("checkpoint_id")
    certified = runs["certificate"].dropna()
    findings = []
    for checkpoint_id in checkpoint_ids(evidence):
        if checkpoint_id in certified.index:
            interval = Interval(mean=float(certified[checkpoint_id]), low=None, high=None, n=1)
            findings.append(known(MEASURE, checkpoint_id, interval))
            continue
        why = runs["why"].get(checkpoint_id)
        told = why if isinstance(why, str) else "this checkpoint has no kernel; run the audit again"
        findings.append(unknown(MEASURE, checkpoint_id, told))
    return findings


MEASURE = Measure(
    name="kernel_certificate",
    title="Certificate of the gradient kernel",
    unit="relative difference",
    section="health",
    needs=("kernel_runs",),
    missing="no kernel was asked for; run the audit with --kernel-problems 8",
    plot=Plot(x="step", y_label="|cᵀKc − ‖∇Σc log π‖²|"),
    compute=compute,
)
