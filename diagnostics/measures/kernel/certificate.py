"""Measure of the numeric error of the gradient kernel: its certificate."""

from __future__ import annotations

from oversharp.diagnostics.measures.contract import Evidence, Plot
from oversharp.diagnostics.measures.declare import Input, Loaded, per_checkpoint
from oversharp.diagnostics.measures.kernel.gradients.coupling import NOT_STORED, number
from oversharp.diagnostics.statistics.units import Interval


def _load(evidence: Evidence) -> Loaded[float]:
    """Load the certificate of every stored kernel, or the stored reason for a missing kernel."""
    runs = evidence.frames["kernel_runs"].set_index("checkpoint_id")
    certificates = {str(i): float(value) for i, value in runs["certificate"].dropna().items()}
    stored = {i: runs["why"].get(i) for i in evidence.checkpoint_ids if i not in certificates}
    return certificates, {i: why if isinstance(why, str) else NOT_STORED for i, why in stored.items()}


@per_checkpoint(
    input=Input(
        load=_load,
        needs=("kernel_runs",),
        missing="no kernel was requested; run the audit with --kernel-problems 8",
    ),
    title="Certificate of the gradient kernel",
    unit="relative difference",
    section="health",
    plot=Plot(x="step", y_label="|cᵀKc − ‖∇Σc log π‖²|"),
)
def kernel_certificate(certificate: float) -> Interval:
    """Kernel certificate: the numeric error of the gradient kernel.

    Meaning: for random signs c, cᵀKc must equal the squared norm of one ordinary gradient, that of Σ c_i log π_i. The
    value is the relative difference between the two, as stored with the kernel. It detects a missing parameter, a wrong
    product or a padded position. Rounding in float32 causes 1e-9 to 1e-7. Above 1e-6 no kernel is stored.
    Unit: relative difference. n counts kernels. There is no interval, because it is a check and not an estimate.
    Limits: random signs detect an error that changes the norm of sums. They do not detect an error in a single entry
    far below the diagonal. For a checkpoint without a kernel, the reason is given here.
    Source: ours; the quadratic form is that of Hutchinson 1990 (Commun. Stat. Simul. 19:433).

    >>> from oversharp.diagnostics.measures.kernel.gradients.examples import gradients, tiny_kernels
    >>> evidence = tiny_kernels({"base": gradients((1, 0))}, [("q", "panel", True)], why={"late": "NaN in the weights"})
    >>> [(f.checkpoint_id, f.value, f.why) for f in kernel_certificate(evidence)]
    [('base', 1e-09, None), ('late', None, 'NaN in the weights')]
    """
    return number(certificate, 1)
