"""Measures of pass@k without sampling noise, from the probabilities of all correct modes."""

from __future__ import annotations

from oversharp.diagnostics.measures.contract import Plot
from oversharp.diagnostics.measures.declare import against_base, per_checkpoint
from oversharp.diagnostics.measures.modes.exact import EXACT_MODES, ExactModes, pass_at_k_from_success
from oversharp.diagnostics.statistics.intervals import share_interval
from oversharp.diagnostics.statistics.units import Interval


@per_checkpoint(
    input=EXACT_MODES,
    by_k=True,
    title="Exact pass@k",
    unit="probability",
    section="coverage",
    rank=80,
    plot=Plot(x="k", group="checkpoint", y_label="exact pass@k", log_x=True, y_range=(0.0, 1.0)),
)
def pass_at_k_exact(modes: ExactModes, k: int) -> Interval:
    """Exact pass@k: coverage from the probabilities of all correct modes.

    Meaning: p⁺ is the sum of the probabilities of a problem's correct modes. Then pass@k = 1 − (1 − p⁺)^k, averaged
    over problems. k can be arbitrarily large, because nothing is sampled.
    Unit: probability. 95 % t interval over problems with a variance floor. The interval is for the population these
    problems were sampled from. For these problems the value is exact.
    Limits: only for problems that list all accepted responses. Probabilities are at temperature 1 without truncation
    (no top-p or top-k), even if the audit samples with other settings.
    Source: [A] (arXiv 2601.15609), section 2 (modes and their probabilities).

    >>> import math
    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", [
    ...     ("base", "q", "6 * 7", math.log(0.25)), ("base", "q", "7 * 6", math.log(0.25))], ks=(1, 2))
    >>> [(f.k, round(f.value, 4)) for f in pass_at_k_exact(evidence)]
    [(1, 0.5), (2, 0.75)]
    """
    return share_interval(pass_at_k_from_success(modes.success_probability, k), cluster_P=modes.cluster_P)


@against_base(
    input=EXACT_MODES,
    by_k=True,
    title="Exact pass@k against base",
    unit="probability",
    section="coverage",
    rank=90,
    plot=Plot(x="step", group="k", y_label="exact pass@k − base"),
    signed=True,
)
def pass_at_k_exact_delta(base: ExactModes, late: ExactModes, k: int) -> Interval:
    """Exact pass@k against base: the paired difference, without sampling noise.

    Meaning: coverage gained (above 0) or lost (below 0) since the base, computed from the probabilities of all correct
    modes. The base has no finding.
    Unit: probability (difference, −1 to 1). 95 % paired t interval over problems with a variance floor. The interval is
    for the population these problems were sampled from. For these problems the value is exact.
    Limits: only for problems that list all accepted responses. Probabilities are at temperature 1 without truncation.
    Source: [A] (arXiv 2601.15609), Def 2.1: moderate sharpening cannot lower pass@k at any k.

    >>> import math
    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", [
    ...     ("base", "q", "6 * 7", math.log(0.5)), ("late", "q", "6 * 7", math.log(0.25))], ks=(1, 2))
    >>> [(f.checkpoint_id, f.k, round(f.value, 4)) for f in pass_at_k_exact_delta(evidence)]
    [('late', 1, -0.25), ('late', 2, -0.3125)]
    """
    change_P = pass_at_k_from_success(late.success_probability, k) - pass_at_k_from_success(base.success_probability, k)
    return share_interval(change_P, bounds=(-1.0, 1.0), cluster_P=late.cluster_P)
