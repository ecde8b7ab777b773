"""Modes fallen: the share of correct modes whose probability is below the base's.

Meaning: how much of the correct repertoire lost probability at all, by more than the numeric noise of scoring (1e-4
nats).
Unit: share of modes, pooled over problems; n counts modes. 95 % interval over problems (ratio estimator with a
variance floor), because modes of one problem move together. The base itself has no row.
Limits: counts a fall of a thousandth like a fall of a million; ``modes_fallen_10x`` grades it. Only where all accepted
responses of a problem are listed.
Source: [A] (arXiv 2601.15609), Def 2.1; the grading is ours.

>>> import math
>>> from diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", [
...     ("base", "q1", "a", math.log(0.3)), ("base", "q1", "b", math.log(0.2)), ("base", "q2", "c", math.log(0.5)),
...     ("late", "q1", "a", math.log(0.9)), ("late", "q1", "b", math.log(0.01)), ("late", "q2", "c", math.log(0.4))])
>>> [(f.checkpoint_id, round(f.value, 4), f.n) for f in compute(evidence)]
[('late', 0.6667, 3)]
"""

from __future__ import annotations

import numpy as np

from diagnostics.measures._exact import NOISE_NATS, exact_modes
from diagnostics.measures._findings import comparisons, known, unknown
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.records.types import Finding
from diagnostics.statistics.intervals import ratio_interval


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per checkpoint but the base; unknown where a mode of either is not scored."""
    modes = exact_modes(evidence)
    modes_P = modes.sum_by_problem(np.ones(len(modes.problem_M)))
    findings = []
    for checkpoint_id, why_not in comparisons(evidence, modes.why):
        if why_not:
            findings.append(unknown(MEASURE, checkpoint_id, why_not))
            continue
        fell_M = modes.change_nats(evidence.base_id, checkpoint_id) < -NOISE_NATS
        interval = ratio_interval(modes.sum_by_problem(fell_M), modes_P, floor=True, bounds=(0.0, 1.0))
        findings.append(known(MEASURE, checkpoint_id, interval, n=len(fell_M)))
    return findings


MEASURE = Measure(
    name="modes_fallen",
    title="Modes fallen",
    unit="share of modes",
    section="modes",
    needs=("mode_logps",),
    missing="the problems do not list every accepted response (modes), so exact probabilities are unknown",
    plot=Plot(x="step", y_label="share of modes", y_range=(0.0, 1.0)),
    compute=compute,
    of_base=False,
)
