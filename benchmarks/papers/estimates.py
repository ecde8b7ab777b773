"""Estimates over seeds or random instances, with 95 % intervals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

from benchmarks.papers.claim import Estimate
from benchmarks.toy import wilson
from oversharp.diagnostics.statistics.intervals import mean_interval


def share(hit_S: Bool[np.ndarray, " seed"], *, of: str = "seeds") -> Estimate:
    """Return the share of seeds (or instances) with a property and Wilson's interval; unknown if n = 0.

    >>> some = share(np.array([True] * 9 + [False]))
    >>> some.value, round(some.low, 4), round(some.high, 4)
    (0.9, 0.5958, 0.9821)
    """
    if not np.size(hit_S):
        return Estimate(value=None, low=None, high=None, n=0, of=of, unit=f"share of {of}")
    found = wilson(int(np.count_nonzero(hit_S)), int(np.size(hit_S)))
    return Estimate(value=found.share, low=found.low, high=found.high, n=found.n, of=of, unit=f"share of {of}")


def mean(value_S: Float[np.ndarray, " seed"], *, unit: str, of: str = "seeds") -> Estimate:
    """Return the mean over seeds with Student's t interval.

    For a comparison pass the differences per seed.

    >>> mean(np.array([1.0, 2.0, 3.0]), unit="steps").value
    2.0
    """
    found = mean_interval(np.asarray(value_S, dtype=np.float64))
    return Estimate(value=float(found.mean), low=found.low, high=found.high, n=found.n, of=of, unit=unit)


def exact(value: float, *, unit: str, n: int = 1, of: str = "value") -> Estimate:
    """Return a deterministic number.

    >>> exact(0.885, unit="squared norm").low is None
    True
    """
    return Estimate(value=float(value), low=None, high=None, n=n, of=of, unit=unit)


def enumerated(bad: Sequence[bool], *, of: str) -> Estimate:
    """Return the share of counterexamples among all existing cases: exact, so without an interval.

    >>> every = enumerated([True, False], of="kinds of problem")
    >>> every.value, every.low, every.n
    (0.5, None, 2)
    """
    return exact(float(np.mean(np.asarray(bad, dtype=bool))), unit=f"share of {of}", n=len(bad), of=of)


def counterexamples(bad: Sequence[bool]) -> Estimate:
    """Return the share of instances that refute a universal statement.

    >>> counterexamples([False] * 100).value
    0.0
    """
    return share(np.asarray(bad, dtype=bool), of="instances")
