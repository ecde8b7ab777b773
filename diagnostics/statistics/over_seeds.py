"""Means over runs of one objective that differ only in their training seed.

An interval over problems shows how a result of *one run* would vary on other problems. An interval over seeds shows how
it would vary in another run of the same objective, on the same problems and from the same base. A difference between
objectives needs the second. It is Student's t over the seeds' values and needs ten seeds. Some runs collapse, and a few
seeds without a collapse are close together and give a narrow interval. If one run in four collapses, the interval
covers the true mean in 56 % of cases with 3 seeds, 75 % with 5 and 94 % with 10.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from oversharp.diagnostics.statistics.comparison import MatchedValue, RunPath, value_at

PROBABILITY = (0.0, 1.0)
UNBOUNDED = (-math.inf, math.inf)
#: Least number of seeds for an interval. Ten seeds all miss an event of one run in four with probability .75¹⁰ = .06.
LEAST_SEEDS = 10
#: Values whose relative difference is smaller than this are equal up to rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class SeedMean:
    """Mean over ``n`` seeds with its 95 % interval.

    ``why`` is the reason if the interval, or also the mean, is missing.
    """

    mean: float | None
    low: float | None
    high: float | None
    n: int
    why: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class MatchedSeeds:
    """Values of the seeds of one objective where their pass@1 first reaches a level."""

    values: Mapping[int, MatchedValue]

    @property
    def reached(self) -> tuple[int, ...]:
        """Seeds that reach the level."""
        return tuple(seed for seed, value in self.values.items() if value.value is not None)

    @property
    def missed(self) -> Mapping[int, str]:
        """Seeds that do not reach the level, with the reason."""
        return {seed: value.why or "" for seed, value in self.values.items() if value.value is None}

    @property
    def step(self) -> float | None:
        """Mean of the steps at which the level is reached."""
        steps = [value.step for value in self.values.values() if value.step is not None]
        return math.fsum(steps) / len(steps) if steps else None


def mean_over_seeds(
    values_S: Sequence[float | None], *, bounds: tuple[float, float] = UNBOUNDED, confidence: float = 0.95
) -> SeedMean:
    """Return the mean and t interval of one value per seed, None for a seed without a value.

    The interval is clipped to ``bounds``. There is no interval for fewer than ten seeds, nor for equal values, whose
    spread is unknown: other runs may differ although these all keep pass@k at 1. Half of the squared range over n² is
    added to the variance, as if half a seed more had the largest deviation. Without that, the interval is too narrow if
    by chance only one of 15 or 20 seeds collapsed instead of three.

    >>> ten = mean_over_seeds([1.0, 3.0] * 5)
    >>> ten.mean, round(ten.low, 3), round(ten.high, 3), ten.n  # 2 ± 2.262 · √(10/9/10 + 2²/2/10²)
    (2.0, 1.181, 2.819, 10)
    >>> mean_over_seeds([0.5, 0.7, None]).why
    '2 seeds are too few for an interval, which needs 10'
    """
    known_S = np.array([value for value in values_S if value is not None], dtype="float64")
    n = len(known_S)
    if n == 0:
        return SeedMean(mean=None, low=None, high=None, n=0, why="no seed has a value")
    if n > 1 and np.ptp(known_S) <= _ROUNDING * np.abs(known_S).max():
        why = f"all {n} seeds have the same value: no spread for an interval"
        return SeedMean(mean=float(known_S[0]), low=None, high=None, n=n, why=why)
    mean = float(known_S.mean())
    if n < LEAST_SEEDS:
        seeds = "one seed is" if n == 1 else f"{n} seeds are"
        why = f"{seeds} too few for an interval, which needs {LEAST_SEEDS}"
        return SeedMean(mean=mean, low=None, high=None, n=n, why=why)
    error = math.sqrt(known_S.var(ddof=1) / n + 0.5 * float(np.ptp(known_S)) ** 2 / n**2)
    half_width = float(stdtrit(n - 1, 0.5 + confidence / 2.0)) * error
    low, high = max(bounds[0], mean - half_width), min(bounds[1], mean + half_width)
    return SeedMean(mean=mean, low=min(mean, low), high=max(mean, high), n=n)


def paired_over_seeds(
    first: Mapping[int, float | None],
    second: Mapping[int, float | None],
    *,
    bounds: tuple[float, float] = UNBOUNDED,
    confidence: float = 0.95,
) -> SeedMean:
    """Return ``second`` − ``first`` over the seeds with a value of both, paired by seed.

    Runs of one seed had the same prompts in the same order, so their difference varies less than either of them.

    >>> paired_over_seeds({0: 0.5, 1: 0.25, 2: 1.0}, {0: 0.75, 1: 0.75, 3: 0.0}).mean
    0.375
    """
    pairs = [(first[seed], second[seed]) for seed in first if seed in second]
    differences = [b - a for a, b in pairs if a is not None and b is not None]
    if not differences:
        return SeedMean(mean=None, low=None, high=None, n=0, why="no seed has a value of both")
    return mean_over_seeds(differences, bounds=bounds, confidence=confidence)


def matched_over_seeds(paths: Mapping[int, RunPath], x: float) -> MatchedSeeds:
    """Return each seed's value where its own path first reaches ``x``.

    Averaging the paths first would mix levels.

    >>> slow, fast = RunPath(steps=[0, 8], x=[0.25, 0.5], y=[1.0, 0.5]), RunPath(steps=[0, 8], x=[0.25, 0.75], y=[1, 0])
    >>> both = matched_over_seeds({0: slow, 1: fast}, 0.5)
    >>> both.reached, both.step, [value.value for value in both.values.values()]
    ((0, 1), 6.0, [0.5, 0.5])
    >>> matched_over_seeds({0: slow, 1: fast}, 0.6).missed
    {0: 'never reaches 0.6: the run covers 0.25 to 0.5'}
    """
    return MatchedSeeds(values={seed: value_at(path, x) for seed, path in paths.items()})


def shared_levels(paths: Mapping[str, Sequence[RunPath]], *, n_levels: int) -> tuple[float, ...]:
    """Return levels of x to compare objectives at, ascending.

    They are evenly spaced up to the highest level that *every* seed reaches. One more level is the highest that more
    than half of the seeds of every objective reach, if it is higher by at least half a step between levels. Without it,
    a single seed that did not move would limit the comparison. Empty if no level is shared.

    >>> def to(x): return RunPath(steps=[0, 1], x=[0.2, x], y=[1.0, 0.5])
    >>> [round(x, 2) for x in shared_levels({"a": [to(0.4), to(0.6), to(0.8)], "b": [to(0.7)]}, n_levels=2)]
    [0.3, 0.4, 0.6]
    """
    reach = {name: sorted((_range(path) for path in seeds), key=lambda pair: pair[1]) for name, seeds in paths.items()}
    if not reach or not all(reach.values()):
        return ()
    low = max(start for seeds in reach.values() for start, _ in seeds)
    high = min(end for seeds in reach.values() for _, end in seeds)
    # of n ascending ends, (n − 1) // 2 seeds may be below: more than half reach the next one
    most = min(seeds[(len(seeds) - 1) // 2][1] for seeds in reach.values())
    spacing = max(high - low, 0.0) / n_levels
    levels = (*(low + spacing * i for i in range(1, n_levels)), high) if high > low else ()
    return (*levels, most) if most > max(high, low) and most - high >= spacing / 2 else levels


def _range(path: RunPath) -> tuple[float, float]:
    """Return the lowest and the highest x at which y is known; an empty path reaches none."""
    known = [x for x, y in zip(path.x, path.y, strict=True) if x is not None and y is not None]
    return (min(known), max(known)) if known else (-math.inf, -math.inf)
