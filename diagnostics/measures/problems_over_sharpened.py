"""Problems over-sharpened: the share of problems with a correct mode whose probability fell below the base's.

Meaning: Definition 2.1 of [A] decided problem by problem. Sharpening is moderate where no correct mode lost
probability; it is over-sharpening where any did. Equality counts as moderate, and so does a fall within the numeric
noise of scoring (1e-4 nats).
Unit: share of problems. 95 % t interval over problems with a variance floor. The base itself has no row.
Limits: strict. Any training moves some mode down a little, so the share soon saturates near 1: read it with its
grades ``modes_fallen_10x`` and ``mass_lost``. Only where all accepted responses of a problem are listed.
Source: [A] (arXiv 2601.15609), Def 2.1.

>>> import math
>>> from diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", [
...     ("base", "q1", "a", math.log(0.3)), ("base", "q1", "b", math.log(0.2)), ("base", "q2", "c", math.log(0.5)),
...     ("late", "q1", "a", math.log(0.8)), ("late", "q1", "b", math.log(0.1)), ("late", "q2", "c", math.log(0.5))])
>>> [(f.checkpoint_id, f.value) for f in compute(evidence)]
[('late', 0.5)]
"""

from __future__ import annotations

import numpy as np

from diagnostics.measures._exact import NOISE_NATS, exact_modes
from diagnostics.measures._findings import comparisons, known, unknown
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.records.types import Finding
from diagnostics.statistics.intervals import share_interval


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per checkpoint but the base; unknown where a mode of either is not scored."""
    modes = exact_modes(evidence)
    findings = []
    for checkpoint_id, why_not in comparisons(evidence, modes.why):
        if why_not:
            findings.append(unknown(MEASURE, checkpoint_id, why_not))
            continue
        fell_M = modes.change_nats(evidence.base_id, checkpoint_id) < -NOISE_NATS
        any_fell_P = modes.sum_by_problem(fell_M) > 0
        findings.append(known(MEASURE, checkpoint_id, share_interval(any_fell_P.astype(np.float64))))
    return findings


MEASURE = Measure(
    name="problems_over_sharpened",
    title="Problems over-sharpened (Definition 2.1)",
    unit="share of problems",
    section="modes",
    needs=("mode_logps",),
    missing="the problems do not list every accepted response (modes), so exact probabilities are unknown",
    plot=Plot(x="step", y_label="share of problems", y_range=(0.0, 1.0)),
    compute=compute,
    of_base=False,
)
