"""Pass@k that is corrected by gold labels (prediction-powered inference), with intervals over problems.

A judge grades all samples, and a person labels some. The labels come in sets: a set has the first ``K`` samples of a
random order of a problem's samples, and is labelled in this order up to its first correct sample. So it contains the
gold outcome of pass@k for every ``k`` up to ``K``: whether one of its first ``k`` samples is correct. The estimate is

    mean of the gold outcomes + λ · (judge's pass@k on all samples − mean of the judge's outcomes on the labelled sets)

It is unbiased for any errors of the judge, also if these depend on problem, style or checkpoint, because the sets are a
random sample. No model of the errors is needed. λ between 0 and 1 minimises the variance (power tuning).

Source: Angelopoulos, Duchi and Zrnic 2023, PPI++: Efficient Prediction-Powered Inference, arXiv:2311.01453; variance
over problems: Miller 2024, arXiv:2411.00640, section 2.2. The coverage is measured in
``benchmarks/results/judges.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import stdtrit

from oversharp.diagnostics.statistics.units import Interval

#: Fewest labels of a checkpoint, and fewest problems (or clusters) with a labelled set, for a corrected value.
LEAST_LABELS, LEAST_UNITS = 50, 10


def draw_sets(
    judge_PN: Bool[np.ndarray, "problem sample"],
    order_P: Int[np.ndarray, " problem"],
    *,
    n_labels: int,
    k: int,
    rng: np.random.Generator,
) -> tuple[Int[np.ndarray, " set"], Int[np.ndarray, "set k"]]:
    """Draw the sets to label: the problem of each, and the positions of its samples in the order of labelling.

    There are enough sets for about ``n_labels`` labels if the judge is right, and at least ``LEAST_UNITS``. The number
    of sets depends only on the judge's grades, so it causes no bias. ``order_P`` is a random order of the problems. If
    all are used, it starts again. With the same order at two checkpoints, their change has a smaller variance. Raises
    ``ValueError`` unless 1 ≤ k ≤ number of samples.

    >>> judge_PN = np.ones((20, 4), dtype=bool)
    >>> problem_S, sample_SK = draw_sets(judge_PN, np.arange(20), n_labels=12, k=2, rng=np.random.default_rng(0))
    >>> problem_S.tolist() == list(range(12)), sample_SK.shape
    (True, (12, 2))
    """
    n_samples = judge_PN.shape[1]
    if not 1 <= k <= n_samples:
        raise ValueError(f"a set needs 1 <= k <= {n_samples} samples, got {k}")
    problems: list[int] = []
    samples: list[np.ndarray] = []
    expected = 0
    while expected < n_labels or len(problems) < LEAST_UNITS:
        problem = int(order_P[len(problems) % len(order_P)])
        sample_K = rng.permutation(n_samples)[:k]
        judge_K = judge_PN[problem, sample_K]
        expected += int(judge_K.argmax()) + 1 if judge_K.any() else k
        problems.append(problem)
        samples.append(sample_K)
    return np.array(problems), np.stack(samples)


@dataclass(frozen=True, kw_only=True)
class LabelledOutcomes:
    """Judge's and gold outcomes of pass@k at one checkpoint, for one ``k``.

    Attributes:
        judged_P: pass@k of each problem by the judge's grades of all samples.
        problem_S: position of the problem of each labelled set.
        gold_S: whether one of the first ``k`` samples of the set is correct by the labels.
        judge_S: the same by the judge.
    """

    judged_P: Float[np.ndarray, " problem"]
    problem_S: Int[np.ndarray, " set"]
    gold_S: Bool[np.ndarray, " set"]
    judge_S: Bool[np.ndarray, " set"]

    @property
    def weight(self) -> float:
        """λ: the share of the judge's change that is used."""
        gold_S, judge_S = self.gold_S.astype(np.float64), self.judge_S.astype(np.float64)
        # one pseudo-set keeps λ near 1 if there are few sets
        covariance = float(np.mean((gold_S - gold_S.mean()) * (judge_S - judge_S.mean())))
        variance = float(np.var(judge_S))
        n = len(gold_S)
        share = (n * covariance + 1.0) / (n * variance + 1.0)
        return min(1.0, max(0.0, share)) * len(self.judged_P) / (len(self.judged_P) + n)

    def estimate(self) -> tuple[float, Float[np.ndarray, " problem"]]:
        """Return the corrected mean, and the influence of each problem on it."""
        weight, n = self.weight, len(self.gold_S)
        residual_S = self.gold_S - weight * self.judge_S
        influence_P = weight * (self.judged_P - self.judged_P.mean()) / len(self.judged_P)
        np.add.at(influence_P, self.problem_S, (residual_S - residual_S.mean()) / n)
        return float(residual_S.mean() + weight * self.judged_P.mean()), influence_P


def corrected_pass_at_k(
    late: LabelledOutcomes,
    base: LabelledOutcomes | None = None,
    *,
    confidence: float = 0.95,
    cluster_P: Int[np.ndarray, " problem"] | None = None,
) -> Interval:
    """Return the corrected pass@k of ``late``, or with ``base`` its change since the base.

    Both must have the same problems in the same order. The interval is clipped to the possible values. It has the
    variance floor of ``share_interval``: one more set that deviates by 1. There is none with fewer than
    ``LEAST_UNITS`` labelled problems (or clusters).

    >>> outcomes = np.arange(40) % 2 == 0
    >>> kept = LabelledOutcomes(judged_P=outcomes * 0.5, problem_S=np.arange(40), gold_S=outcomes, judge_S=outcomes)
    >>> round(corrected_pass_at_k(kept).mean, 3)
    0.375
    """
    mean, influence_P = late.estimate()
    floor, sets = 1.0 / len(late.gold_S) ** 2, [late.problem_S]
    bounds = (0.0, 1.0)
    if base is not None:
        base_mean, base_influence_P = base.estimate()
        mean, influence_P, bounds = mean - base_mean, influence_P - base_influence_P, (-1.0, 1.0)
        floor += 1.0 / len(base.gold_S) ** 2
        sets.append(base.problem_S)
    unit_P = np.arange(len(influence_P)) if cluster_P is None else np.unique(cluster_P, return_inverse=True)[1]
    n_units = min(len(np.unique(unit_P[problem_S])) for problem_S in sets)
    n = len(late.gold_S)
    if n_units < LEAST_UNITS:
        return Interval(mean=mean, low=None, high=None, n=n, why=f"the labels have only {n_units} independent problems")
    influence_U = np.bincount(unit_P, weights=influence_P)
    variance = float((influence_U**2).sum()) * n_units / (n_units - 1) + floor
    half = float(stdtrit(n_units - 1, 0.5 + confidence / 2.0)) * math.sqrt(variance)
    low, high = max(bounds[0], mean - half), min(bounds[1], mean + half)
    return Interval(mean=mean, low=low, high=high, n=n, over="problems" if cluster_P is None else "clusters")
