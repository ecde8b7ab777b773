"""Correct mass lost: the share of the base's correct probability that its modes have lost since.

Meaning: per problem, Σ max(0, π_base − π_t) / Σ π_base over the correct modes, averaged over problems. It weighs modes
by how much they mattered, and gains of other modes do not make up for losses: 0 is moderate sharpening, 1 means that
everything the base could do is gone.
Unit: share of the base's correct probability. 95 % t interval over problems with a variance floor; n counts problems.
The base itself has no row.
Limits: only where all accepted responses of a problem are listed; problems that the base cannot solve at all (every
mode at probability 0) have no share and are left out.
Source: [A] (arXiv 2601.15609), Def 2.1; the weighting is ours.

>>> import math
>>> from diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", [
...     ("base", "q1", "a", math.log(0.3)), ("base", "q1", "b", math.log(0.2)),
...     ("late", "q1", "a", math.log(0.9)), ("late", "q1", "b", math.log(0.05))])
>>> [(f.checkpoint_id, round(f.value, 4)) for f in compute(evidence)]
[('late', 0.3)]
"""

from __future__ import annotations

import numpy as np

from diagnostics.measures._exact import exact_modes
from diagnostics.measures._findings import comparisons, known, unknown
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.records.types import Finding
from diagnostics.statistics.intervals import share_interval


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per checkpoint but the base; unknown where a mode is not scored or the base can solve nothing."""
    modes = exact_modes(evidence)
    findings = []
    for checkpoint_id, why_not in comparisons(evidence, modes.why):
        if why_not:
            findings.append(unknown(MEASURE, checkpoint_id, why_not))
            continue
        share_M, solvable_P = modes.conditional_shares(evidence.base_id)
        if not solvable_P.any():
            findings.append(unknown(MEASURE, checkpoint_id, "base: every mode of every problem has probability 0"))
            continue
        change_M = modes.change_nats(evidence.base_id, checkpoint_id)
        lost_M = share_M * -np.expm1(np.minimum(change_M, 0.0))
        lost_P = np.minimum(modes.sum_by_problem(lost_M), 1.0)  # rounding may exceed 1 by 1e-16
        findings.append(known(MEASURE, checkpoint_id, share_interval(lost_P[solvable_P])))
    return findings


MEASURE = Measure(
    name="mass_lost",
    title="Correct mass lost",
    unit="share of probability",
    section="modes",
    needs=("mode_logps",),
    missing="the problems do not list every accepted response (modes), so exact probabilities are unknown",
    plot=Plot(x="step", y_label="share of the base's correct probability", y_range=(0.0, 1.0)),
    compute=compute,
    of_base=False,
)
