"""Exact pass@k against base: the paired difference, problem by problem, without sampling noise.

Meaning: coverage gained (above 0) or lost (below 0) since the base, computed from the probabilities of all correct
modes. The base itself has no row.
Unit: probability (difference, −1 to 1). 95 % paired t interval over problems with a variance floor: it speaks about
other problems like these; on these problems the value is exact.
Limits: only where all accepted responses of a problem are listed; temperature 1 without truncation.
Source: [A] (arXiv 2601.15609), Def 2.1: moderate sharpening cannot lower pass@k at any k.

>>> import math
>>> from diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", [
...     ("base", "q", "6 * 7", math.log(0.5)), ("late", "q", "6 * 7", math.log(0.25))], ks=(1, 2))
>>> [(f.checkpoint_id, f.k, round(f.value, 4)) for f in compute(evidence)]
[('late', 1, -0.25), ('late', 2, -0.3125)]
"""

from __future__ import annotations

import itertools

from diagnostics.measures._exact import exact_modes, pass_at_k_from_success
from diagnostics.measures._findings import comparisons, known, unknown
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.records.types import Finding
from diagnostics.statistics.intervals import share_interval


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per k and checkpoint but the base; unknown where a mode of either is not scored."""
    modes = exact_modes(evidence)
    findings = []
    for (checkpoint_id, why_not), k in itertools.product(comparisons(evidence, modes.why), evidence.ks):
        if why_not:
            findings.append(unknown(MEASURE, checkpoint_id, why_not, k=k))
            continue
        now_P = pass_at_k_from_success(modes.success_probabilities(checkpoint_id), k)
        before_P = pass_at_k_from_success(modes.success_probabilities(evidence.base_id), k)
        interval = share_interval(now_P - before_P, bounds=(-1.0, 1.0))
        findings.append(known(MEASURE, checkpoint_id, interval, k=k))
    return findings


MEASURE = Measure(
    name="pass_at_k_exact_delta",
    title="Exact pass@k against base",
    unit="probability",
    section="coverage",
    needs=("mode_logps",),
    missing="the problems do not list every accepted response (modes), so exact probabilities are unknown",
    plot=Plot(x="step", group="k", y_label="exact pass@k − base"),
    compute=compute,
    signed=True,
    of_base=False,
)
