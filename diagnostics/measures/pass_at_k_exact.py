"""Pass@k without sampling noise, from the probabilities of all correct modes: as it is, and against the base."""

from __future__ import annotations

import itertools

from oversharp.diagnostics.measures._exact import NO_MODES, exact_modes, pass_at_k_from_success
from oversharp.diagnostics.measures._findings import comparisons, places, told
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.intervals import share_interval
from oversharp.diagnostics.statistics.units import Interval


def _exact(name: str, title: str, *, plot: Plot, doc: str, less_base: bool) -> Measure:
    """A finding per checkpoint and k; unknown where a mode is not scored."""

    def compute(evidence: Evidence) -> list[Finding]:
        modes = exact_modes(evidence)
        where = comparisons(evidence, modes.why) if less_base else places(evidence, modes.why)

        def of(checkpoint_id: str, k: int) -> Interval:
            value_P = pass_at_k_from_success(modes.success_probabilities(checkpoint_id), k)
            if not less_base:
                return share_interval(value_P, cluster_P=modes.cluster_P)
            before_P = pass_at_k_from_success(modes.success_probabilities(evidence.base_id), k)
            return share_interval(value_P - before_P, bounds=(-1.0, 1.0), cluster_P=modes.cluster_P)

        return [told(measure, i, why_not or of(i, k), k=k) for (i, why_not), k in itertools.product(where, evidence.ks)]

    measure = Measure(
        name=name,
        title=title,
        unit="probability",
        section="coverage",
        needs=("mode_logps",),
        missing=NO_MODES,
        plot=plot,
        compute=compute,
        signed=less_base,
        of_base=not less_base,
        doc=doc,
    )
    return measure


MEASURES = (
    _exact(
        "pass_at_k_exact",
        "Exact pass@k",
        less_base=False,
        plot=Plot(x="k", group="checkpoint", y_label="exact pass@k", log_x=True, y_range=(0.0, 1.0)),
        doc="""
Exact pass@k: coverage from the probabilities of all correct modes, without sampling noise.

Meaning: with p⁺ the sum of the probabilities of a problem's correct modes, pass@k = 1 − (1 − p⁺)^k, averaged over
problems. Any k is legal, because nothing is sampled.
Unit: probability. 95 % t interval over problems with a variance floor: it speaks about other problems like these;
on these problems the value is exact.
Limits: only where all accepted responses of a problem are listed. Probabilities are at temperature 1 without
truncation, whatever the sampling settings of the audit are.
Source: [A] (arXiv 2601.15609), section 2 (modes and their probabilities).

>>> import math
>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", [
...     ("base", "q", "6 * 7", math.log(0.25)), ("base", "q", "7 * 6", math.log(0.25))], ks=(1, 2))
>>> [(f.k, round(f.value, 4)) for f in compute(evidence)]
[(1, 0.5), (2, 0.75)]
""",
    ),
    _exact(
        "pass_at_k_exact_delta",
        "Exact pass@k against base",
        less_base=True,
        plot=Plot(x="step", group="k", y_label="exact pass@k − base"),
        doc="""
Exact pass@k against base: the paired difference, problem by problem, without sampling noise.

Meaning: coverage gained (above 0) or lost (below 0) since the base, computed from the probabilities of all correct
modes. The base itself has no row.
Unit: probability (difference, −1 to 1). 95 % paired t interval over problems with a variance floor: it speaks about
other problems like these; on these problems the value is exact.
Limits: only where all accepted responses of a problem are listed; temperature 1 without truncation.
Source: [A] (arXiv 2601.15609), Def 2.1: moderate sharpening cannot lower pass@k at any k.

>>> import math
>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", [
...     ("base", "q", "6 * 7", math.log(0.5)), ("late", "q", "6 * 7", math.log(0.25))], ks=(1, 2))
>>> [(f.checkpoint_id, f.k, round(f.value, 4)) for f in compute(evidence)]
[('late', 1, -0.25), ('late', 2, -0.3125)]
""",
    ),
)
