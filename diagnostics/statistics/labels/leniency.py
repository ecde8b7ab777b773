"""Whether a judge became more lenient from one checkpoint to another, compared with a second grader.

The judge's extra accepts are the samples that only the judge accepts. Their share also changes if neither grader
changes: a judge with constant error rates has fewer extra accepts if the model has fewer wrong responses, and a second
grader that refuses some correct responses causes more if the model has more correct ones. Both effects are linear in
the share of correct responses. So the change of the extra accepts is regressed on the change of the second grader's
accepts over problems, and the intercept is tested: the extra accepts that no change of accuracy explains.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.special import stdtr, stdtrit

from oversharp.diagnostics.statistics.units import Interval, by_cluster, few_clusters, named_clusters

#: Level of the one-sided test. Measured false alarms are in ``benchmarks/results/judges.md``.
LEVEL = 0.03
#: Smallest number of problems for the test.
LEAST_PROBLEMS = 20


@dataclass(frozen=True, kw_only=True)
class JointShares:
    """Grades of two graders at one checkpoint, per problem.

    Attributes:
        n: number of samples of each problem that both graded.
        extra_P: share of samples that only the judge accepts.
        other_P: share of samples that the second grader accepts.
    """

    n: int
    extra_P: Float[np.ndarray, " problem"]
    other_P: Float[np.ndarray, " problem"]


@dataclass(frozen=True, kw_only=True)
class LeniencyChange:
    """Extra accepts that changes of accuracy do not explain: change with 95 % interval, and one-sided p value."""

    change: Interval
    p: float

    @property
    def is_found(self) -> bool:
        """Whether the judge accepts significantly more than at the first checkpoint."""
        return self.p <= LEVEL


def leniency_change(
    base: JointShares, late: JointShares, *, cluster_P: Int[np.ndarray, " problem"] | None = None
) -> LeniencyChange | str:
    """Return the change of the judge's leniency from ``base`` to ``late``, or why it cannot be tested.

    The slope is corrected for the sampling error of the shares, which would bias it (a moment estimator for errors in
    variables). Source: Fuller 1987, Measurement Error Models, section 2.2. Assumes that the error rates of both graders
    do not depend on the checkpoint, and that the judge's differ between problems independently of their changes.
    """
    n_problems = len(base.extra_P)
    if n_problems < LEAST_PROBLEMS:
        return f"only {n_problems} problems; the test needs {LEAST_PROBLEMS}"
    if why := few_clusters(cluster_P):
        return why
    moved_P, accuracy_P = late.extra_P - base.extra_P, late.other_P - base.other_P
    noise, shared_noise = 0.0, 0.0
    for shares in (base, late):
        degrees = max(1, shares.n - 1)
        noise += float(np.mean(shares.other_P * (1.0 - shares.other_P))) / degrees
        shared_noise -= float(np.mean(shares.other_P * shares.extra_P)) / degrees
    deviation_P = accuracy_P - accuracy_P.mean()
    spread = float(np.mean(deviation_P**2)) - noise
    shared = float(np.mean(deviation_P * moved_P)) - shared_noise
    slope = min(1.0, max(-1.0, shared / spread)) if spread > 0.1 * noise and spread > 0.0 else 0.0
    change = float(moved_P.mean() - slope * accuracy_P.mean())
    leverage_P = 1.0 - (accuracy_P.mean() * deviation_P / spread if slope else 0.0)
    influence_P = (moved_P - change - slope * accuracy_P) * leverage_P
    influence_U = by_cluster(influence_P, named_clusters(cluster_P))
    n_units = len(influence_U)
    error = math.sqrt(float(np.var(influence_U, ddof=1)) / n_units)
    if error == 0.0:
        return LeniencyChange(change=Interval(mean=change, low=None, high=None, n=n_problems), p=float(change <= 0.0))
    half = float(stdtrit(n_units - 1, 0.975)) * error
    interval = Interval(mean=change, low=max(-1.0, change - half), high=min(1.0, change + half), n=n_problems)
    return LeniencyChange(change=interval, p=float(stdtr(n_units - 1, -change / error)))
