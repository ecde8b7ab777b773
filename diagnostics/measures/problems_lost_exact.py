"""Problems lost, exactly: success probability above 0.02 under the base and below 0.002 now.

Meaning: problems that the base solved within some 50 samples and the checkpoint does not within some 500, decided on
exact probabilities: no chance, no sampling budget. The papers call a problem a query, hence the name.
Unit: share of problems. 95 % t interval over problems with a variance floor. The base itself has no row.
Limits: only where all accepted responses of a problem are listed. Both thresholds are conventions, a decade apart so
that no small drift crosses them.
Source: coverage shrinkage, [C] (The Reasoning Boundary Paradox), section 4.2; the thresholds are ours.

>>> import math
>>> from diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", [
...     ("base", "q1", "a", math.log(0.03)), ("base", "q2", "b", math.log(0.03)),
...     ("late", "q1", "a", math.log(0.001)), ("late", "q2", "b", math.log(0.01))])
>>> [(f.checkpoint_id, f.value) for f in compute(evidence)]
[('late', 0.5)]
"""

from __future__ import annotations

import numpy as np

from diagnostics.measures._exact import exact_modes
from diagnostics.measures._findings import comparisons, known, unknown
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.records.types import Finding
from diagnostics.statistics.intervals import share_interval

SOLVABLE_ABOVE = 0.02
LOST_BELOW = 0.002


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per checkpoint but the base; unknown where a mode of either is not scored."""
    modes = exact_modes(evidence)
    findings = []
    for checkpoint_id, why_not in comparisons(evidence, modes.why):
        if why_not:
            findings.append(unknown(MEASURE, checkpoint_id, why_not))
            continue
        before_P, now_P = modes.success_probabilities(evidence.base_id), modes.success_probabilities(checkpoint_id)
        lost_P = (before_P > SOLVABLE_ABOVE) & (now_P < LOST_BELOW)
        findings.append(known(MEASURE, checkpoint_id, share_interval(lost_P.astype(np.float64))))
    return findings


MEASURE = Measure(
    name="problems_lost_exact",
    title="Problems lost (exact)",
    unit="share of problems",
    section="problems",
    needs=("mode_logps",),
    missing="the problems do not list every accepted response (modes), so exact probabilities are unknown",
    plot=Plot(x="step", y_label="share of problems", y_range=(0.0, 1.0)),
    compute=compute,
    of_base=False,
)
