"""Squeeze: how much probability a correct mode gained, against how likely the base found it.

Meaning: π_t − π_base, averaged over all correct modes whose base probability p lies in one bin; the scopes are the bins
``base p 0-0.001`` to ``base p 0.1-1``. Gains of likely modes beside losses of unlikely ones are the squeeze: on-policy
learning feeds what the base preferred. Moderate sharpening loses in no bin.
Unit: probability, signed. 95 % interval over problems (ratio estimator), because modes of one problem move together;
n counts modes. The base itself has no row. Both probabilities are exact, so no bin regresses to the mean.
Limits: a likely mode has more to lose, an unlikely one more to gain, and a mean near 0 can hide gains beside losses:
``modes_fallen`` counts the losses. Few problems with a large gain make the interval too short. Only where all accepted
responses of a problem are listed; a bin without modes has no row.
Source: [C] (The Reasoning Boundary Paradox), section 5, Eq 8 and Fig 5; the bins are ours.

>>> import math
>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", [
...     ("base", "q1", "a", math.log(0.3)), ("base", "q1", "b", math.log(0.05)), ("base", "q2", "c", math.log(0.5)),
...     ("late", "q1", "a", math.log(0.9)), ("late", "q1", "b", math.log(0.01)), ("late", "q2", "c", math.log(0.7))])
>>> [(f.scope, round(f.value, 4), f.n) for f in compute(evidence)]
[('base p 0.01-0.1', -0.04, 1), ('base p 0.1-1', 0.4, 2)]
"""

from __future__ import annotations

import numpy as np

from oversharp.diagnostics.measures._exact import NO_MODES, exact_modes
from oversharp.diagnostics.measures._findings import among, comparisons, known, unknown
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.intervals import ratio_interval

EDGES = (0.001, 0.01, 0.1)
#: Spelt so that the order of letters is the order of probabilities.
SCOPES = ("base p 0-0.001", "base p 0.001-0.01", "base p 0.01-0.1", "base p 0.1-1")


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per checkpoint but the base and per bin that holds modes; unknown where a mode is not scored."""
    modes = exact_modes(evidence)
    findings = []
    for checkpoint_id, why_not in comparisons(evidence, modes.why):
        if why_not:
            findings.append(unknown(MEASURE, checkpoint_id, why_not))
            continue
        before_M = np.exp(modes.logp_M[evidence.base_id])
        gain_M = np.exp(modes.logp_M[checkpoint_id]) - before_M
        bin_M = np.digitize(before_M, EDGES)
        for number, scope in enumerate(SCOPES):
            inside_M = bin_M == number
            modes_P = modes.sum_by_problem(inside_M)
            held_P = modes_P > 0
            if not held_P.any():
                continue
            gain_P = modes.sum_by_problem(np.where(inside_M, gain_M, 0.0))
            # No variance floor: gains are exact, and on the scale of an unlikely mode a full point would hide them all.
            interval = ratio_interval(
                gain_P[held_P],
                modes_P[held_P],
                floor=False,
                bounds=(-1.0, 1.0),
                cluster_P=among(modes.cluster_P, held_P),
            )
            findings.append(known(MEASURE, checkpoint_id, interval, scope=scope, n=int(inside_M.sum())))
    return findings


MEASURE = Measure(
    name="squeeze",
    title="Gain of a mode by its base probability",
    unit="probability",
    section="dynamics",
    needs=("mode_logps",),
    missing=NO_MODES,
    plot=Plot(x="step", group="scope", y_label="gain in probability of a correct mode"),
    compute=compute,
    signed=True,
    of_base=False,
)
