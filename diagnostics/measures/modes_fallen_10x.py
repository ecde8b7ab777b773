"""Modes fallen more than tenfold: the share of correct modes with less than a tenth of the base's probability.

Meaning: how much of the correct repertoire is practically given up. A mode that fell tenfold needs ten times the
samples to be seen again.
Unit: share of modes, pooled over problems; n counts modes. 95 % interval over problems (ratio estimator with a
variance floor), because modes of one problem move together. The base itself has no row.
Limits: the factor is a convention. A mode that was negligible under the base counts like a leading one; ``mass_lost``
weighs them. Only where all accepted responses of a problem are listed.
Source: [A] (arXiv 2601.15609), Def 2.1; the grading is ours.

>>> import math
>>> from diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", [
...     ("base", "q1", "a", math.log(0.3)), ("base", "q1", "b", math.log(0.2)), ("base", "q2", "c", math.log(0.5)),
...     ("late", "q1", "a", math.log(0.9)), ("late", "q1", "b", math.log(0.01)), ("late", "q2", "c", math.log(0.4))])
>>> [(f.checkpoint_id, round(f.value, 4), f.n) for f in compute(evidence)]
[('late', 0.3333, 3)]
"""

from __future__ import annotations

import math

import numpy as np

from diagnostics.measures._exact import exact_modes
from diagnostics.measures._findings import comparisons, known, unknown
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.records.types import Finding
from diagnostics.statistics.intervals import ratio_interval

TENFOLD_NATS = math.log(10.0)


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per checkpoint but the base; unknown where a mode of either is not scored."""
    modes = exact_modes(evidence)
    modes_P = modes.sum_by_problem(np.ones(len(modes.problem_M)))
    findings = []
    for checkpoint_id, why_not in comparisons(evidence, modes.why):
        if why_not:
            findings.append(unknown(MEASURE, checkpoint_id, why_not))
            continue
        fell_M = modes.change_nats(evidence.base_id, checkpoint_id) < -TENFOLD_NATS
        interval = ratio_interval(modes.sum_by_problem(fell_M), modes_P, floor=True, bounds=(0.0, 1.0))
        findings.append(known(MEASURE, checkpoint_id, interval, n=len(fell_M)))
    return findings


MEASURE = Measure(
    name="modes_fallen_10x",
    title="Modes fallen more than tenfold",
    unit="share of modes",
    section="modes",
    needs=("mode_logps",),
    missing="the problems do not list every accepted response (modes), so exact probabilities are unknown",
    plot=Plot(x="step", y_label="share of modes", y_range=(0.0, 1.0)),
    compute=compute,
    of_base=False,
)
