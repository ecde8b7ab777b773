"""Compute the partition function Z′(q) of [A] Theorem 2.2 from own samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from scipy.special import stdtrit

from oversharp.diagnostics.measures.contract import Evidence, cached_per_evidence
from oversharp.diagnostics.measures.declare import Input, Loaded
from oversharp.diagnostics.measures.kernel.gradients.batch import BETA, TrainingBatch, make_batch
from oversharp.diagnostics.measures.panel.own import NO_OWN_LOGPS, load_own_samples
from oversharp.diagnostics.statistics.units import Interval
from oversharp.diagnostics.theory.sampling_bias import PartitionBounds, batch_optimal_policy, partition_bounds

#: |log Z′| below this value counts as rounding, because π_ref comes from float32 log-probabilities.
ROUNDING = 1e-9
#: Replaces a probability of 0. Such a mode has no effect on Z′, but the logarithm must be finite.
LEAST_PROBABILITY = 1e-300
NONE_MIXED = "the own samples of each problem are all correct or all wrong; a larger --panel gives more mixed batches"


@dataclass(frozen=True, kw_only=True)
class Partition:
    """One problem's sampled modes. The last entry is all other responses together."""

    batch: TrainingBatch
    reference_M: Float[np.ndarray, " mode"]
    count_M: Int[np.ndarray, " mode"]
    advantage_M: Float[np.ndarray, " mode"]
    correct_M: Bool[np.ndarray, " mode"]

    def log_z(self, beta: float) -> float:
        """Return log Z′. The log-probability of each unsampled mode changes by −log Z′ nats."""
        if not self.batch.is_informative:
            return 0.0
        return batch_optimal_policy(self.reference_M, self.count_M, self.advantage_M, beta=beta).log_partition

    def is_above_one(self, beta: float) -> bool:
        """Return whether Z′ exceeds 1 by more than rounding. Then unsampled modes lose probability."""
        return self.log_z(beta) > ROUNDING

    def bounds(self) -> PartitionBounds:
        """Return the lower bounds of Theorem 2.3 at β = 1."""
        return partition_bounds(self.reference_M, self.count_M, self.advantage_M, self.correct_M, beta=BETA)


def build_partitions(rows: pd.DataFrame) -> list[Partition]:
    """Return the partition of each problem, from one checkpoint's rows of ``own_logps``."""
    problem_R, problem_ids = pd.factorize(rows["problem_id"], sort=True)
    order_R = np.argsort(problem_R, kind="stable")
    response_R = rows["response_id"].to_numpy(dtype=object)
    correct_R = rows["correct"].to_numpy(dtype=bool)
    logp_R = rows["base_logp_sum"].to_numpy(dtype=np.float64)
    ends = np.cumsum(np.bincount(problem_R, minlength=len(problem_ids)))[:-1]
    partitions = []
    for problem_id, place_S in zip(problem_ids, np.split(order_R, ends), strict=True):
        label: dict[str, int] = {}
        mode_S = np.array(
            [label.setdefault(response_id, len(label)) for response_id in response_R[place_S]], dtype=np.int64
        )
        partitions.append(_partition(make_batch(str(problem_id), mode_S, correct_R[place_S]), logp_R[place_S]))
    return partitions


@cached_per_evidence
def load_partitions(evidence: Evidence) -> Loaded[Sequence[Partition]]:
    """Load the partitions of every checkpoint whose own samples are all scored under the base."""
    complete, why = load_own_samples(evidence, "base_logp_sum")
    return {checkpoint_id: build_partitions(rows) for checkpoint_id, rows in complete.items()}, why


PARTITIONS = Input(load=load_partitions, needs=("own_logps",), missing=NO_OWN_LOGPS)


def _partition(batch: TrainingBatch, logp_S: Float[np.ndarray, " draw"]) -> Partition:
    sampled_M = np.maximum(np.exp(logp_S[batch.first_draws]), LEAST_PROBABILITY)
    # rounding in the scores can make the sum of the sampled modes exceed 1
    rest = max(1.0 - float(sampled_M.sum()), LEAST_PROBABILITY)
    reference_M = np.append(sampled_M, rest)
    return Partition(
        batch=batch,
        reference_M=reference_M / reference_M.sum(),
        count_M=np.append(batch.counts, 0),
        advantage_M=np.append(batch.advantage_S[batch.first_draws], 0.0),
        correct_M=np.append(batch.correct_S[batch.first_draws], False),
    )


def welch_difference(first: Sequence[float], second: Sequence[float]) -> Interval:
    """Return the mean of ``first`` minus the mean of ``second``, with Welch's 95 % interval.

    Each value is of one problem, and no problem is in both groups. ``n`` counts the problems of both. If a group has a
    single problem, there is no interval. Each group needs at least one value. Source: Welch 1947 (Biometrika 34:28).

    >>> difference = welch_difference([1.0, 3.0], [-1.0, 1.0])
    >>> difference.mean, round(difference.low, 3), round(difference.high, 3), difference.n  # 2 ± 4.303·√2
    (2.0, -4.085, 8.085, 4)
    """
    groups = [np.array(values, dtype=np.float64) for values in (first, second)]
    difference, n = float(groups[0].mean() - groups[1].mean()), len(first) + len(second)
    if min(map(len, groups)) < 2:
        return Interval(mean=difference, low=None, high=None, n=n)
    square_errors = [float(values_P.var(ddof=1)) / len(values_P) for values_P in groups]
    total = sum(square_errors)
    if total == 0.0:
        return Interval(mean=difference, low=difference, high=difference, n=n)
    parts = [(part / total) ** 2 / (len(values_P) - 1) for part, values_P in zip(square_errors, groups, strict=True)]
    half_width = float(stdtrit(1.0 / sum(parts), 0.975)) * math.sqrt(total)
    return Interval(mean=difference, low=difference - half_width, high=difference + half_width, n=n)
