"""Gain of correct modes by their probability under the base."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from oversharp.diagnostics.measures.contract import Plot, Result, Results
from oversharp.diagnostics.measures.counts import select_clusters
from oversharp.diagnostics.measures.declare import against_base
from oversharp.diagnostics.measures.modes.exact import EXACT_MODES, ExactModes
from oversharp.diagnostics.statistics.intervals import ratio_interval

EDGES = (0.001, 0.01, 0.1)
#: In alphabetical order, which is the order of probabilities.
SCOPES = ("base p 0-0.001", "base p 0.001-0.01", "base p 0.01-0.1", "base p 0.1-1")


@against_base(
    input=EXACT_MODES,
    title="Gain of a mode by its base probability",
    unit="probability",
    section="dynamics",
    rank=20,
    plot=Plot(x="step", group="scope", y_label="gain in probability of a correct mode"),
    signed=True,
)
def squeeze(base: ExactModes, late: ExactModes) -> Results:
    """Squeeze: the probability that a correct mode gained, by its probability under the base.

    Meaning: π_t − π_base, averaged over all correct modes whose base probability p is in one bin; the scopes are the
    bins ``base p 0-0.001`` to ``base p 0.1-1``. Gains of likely modes together with losses of unlikely ones are the
    squeeze: on-policy learning reinforces what the base preferred. Moderate sharpening loses in no bin.
    Unit: probability, signed. 95 % interval over problems (ratio estimator), because modes of one problem are
    correlated; n counts modes. The base has no row. Both probabilities are exact, so no bin regresses to the mean.
    Limits: a likely mode has more to lose, an unlikely one more to gain, and a mean near 0 can hide gains together
    with losses: ``modes_fallen`` counts the losses. If few problems have a large gain, the interval is too narrow. Only
    for problems that list all accepted responses; a bin without modes has no row.
    Source: [C] (The Reasoning Boundary Paradox), section 5, Eq 8 and Fig 5; the bins are ours.

    >>> import math
    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", [
    ...     ("base", "q1", "a", math.log(0.3)), ("base", "q1", "b", math.log(0.05)), ("base", "q2", "c", math.log(0.5)),
    ...     ("late", "q1", "a", math.log(0.9)), ("late", "q1", "b", math.log(0.01)),
    ...     ("late", "q2", "c", math.log(0.7))])
    >>> [(f.scope, round(f.value, 4), f.n) for f in squeeze(evidence)]
    [('base p 0.01-0.1', -0.04, 1), ('base p 0.1-1', 0.4, 2)]
    """
    before_M = np.exp(base.logp_M)
    gain_M = np.exp(late.logp_M) - before_M
    bin_M = np.digitize(before_M, EDGES)
    results: dict[str, Result] = {}
    for number, scope in enumerate(SCOPES):
        is_inside_M = bin_M == number
        modes_P = late.sum_by_problem(is_inside_M)
        has_modes_P = modes_P > 0
        if not has_modes_P.any():
            continue
        gain_P = late.sum_by_problem(np.where(is_inside_M, gain_M, 0.0))
        # no variance floor: gains are exact, and a floor of 1 would exceed the probability of unlikely modes
        interval = ratio_interval(
            gain_P[has_modes_P],
            modes_P[has_modes_P],
            floor=False,
            bounds=(-1.0, 1.0),
            cluster_P=select_clusters(late.cluster_P, has_modes_P),
        )
        results[scope] = replace(interval, n=int(is_inside_M.sum()))
    return results
