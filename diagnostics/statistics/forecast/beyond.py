"""Change of mean pass@k for k above the number of samples of a problem, as an interval without a model of the rates.

No unbiased estimate of pass@k exists there. But k samples and fewer than k samples are not unrelated: a problem with no
correct sample of 256 is unlikely to have the success rate 1/50. ``change_beyond`` finds all joint distributions of the
success rates of base and late checkpoint that fit the counts, and returns the smallest and the largest change of pass@k
among them.

Distributions are weights on a grid of pairs of rates. A distribution fits if its log-likelihood is within ``DROP`` of
the largest one (profile likelihood). The likelihood of a problem with n samples, c of them correct, is p^c (1 − p)^(n −
c) up to a constant. It does not depend on the stopping rule, so both designs use the same code.

Limits: the interval's coverage is measured (``benchmarks/sampling/beyond.py``), not proven. Several late checkpoints
are treated as one with equal rates.

Source: profile likelihood of a mixture, Kiefer and Wolfowitz 1956 (Ann. Math. Stat. 27:887); primal-dual interior-point
method, Boyd and Vandenberghe, *Convex Optimization*, section 11.7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np
from jaxtyping import Float, Int
from scipy.special import xlog1py, xlogy

from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.statistics.keys import PairedCounts
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table
from oversharp.diagnostics.statistics.stopping import Samples, most_samples

#: Half of the 95 % quantile of χ² with one degree of freedom.
DROP = 1.92
#: Fewest problems, fewest samples of a problem, and largest k as a multiple of that number.
LEAST_PROBLEMS, LEAST_SAMPLES, MOST_TIMES_CAP = 30, 16, 2
#: Largest width of an interval that is reported, a probability.
WIDEST = 0.15
#: Rates of the grid: 0, and ``_RATES`` from ``_LEAST_SOLVED`` / k to ``_LARGEST_RATE`` with equal ratios. Rates below
#: are like 0, because they change pass@k by less than ``_LEAST_SOLVED``.
_RATES, _LEAST_SOLVED, _LARGEST_RATE = 17, 0.05, 0.95
#: Largest error of a maximum, in units of log-likelihood.
_TOLERANCE = 0.02
_MOST_STEPS, _MOST_PRICES = 60, 10
#: Smaller likelihoods, relative to the largest, are taken for 0: products of them are subnormal numbers (slow).
_LEAST_LIKELIHOOD = 1e-15
#: First price of the log-likelihood times problems, and by how much a step of the search reduces the duality gap.
_FIRST_PRICE, _CENTRING = 1.5, 0.1
#: Rounding error of a scaled system, and the largest number that is taken for 0 in it.
_RIDGE, _TINY = 1e-11, 1e-14


@dataclass(frozen=True, kw_only=True)
class Beyond:
    """Change of mean pass@k of these problems for a k above ``cap``, the number of samples; probabilities.

    Attributes:
        low: Lower end of the 95 % interval, None with the reason ``why``; ``high`` is the upper end.
        bracket_low: Smallest change by the estimates of pass@cap alone: no unsolved problem is solved by more late
            samples, and all by more samples of the base. ``bracket_high`` is the opposite. A bracket of estimates, not
            an interval: samples vary.
    """

    k: int
    cap: int
    low: float | None
    high: float | None
    bracket_low: float
    bracket_high: float
    why: str | None = None


def change_beyond(pairs: Sequence[PairedCounts], k: int, *, why: str | None = None) -> Beyond:
    """Return the change of mean pass@k from the base to the average of the late checkpoints.

    There is one pair of counts per late checkpoint, with the same base. ``why`` is a reason for which no interval is
    valid, such as samples that are not independent. There is also none for a k above twice the cap, with few problems
    or samples, and if it is wider than ``WIDEST``.

    Raises ``ValueError`` for a k that is not above the cap, which has an unbiased estimate.

    >>> base_P, late_P = np.arange(60) % 12, np.maximum(np.arange(60) % 12 - 1, 0)
    >>> pair = PairedCounts(base_P=base_P, late_P=late_P, n_base=64, n_late=64)
    >>> beyond = change_beyond([pair], 128)
    >>> round(beyond.bracket_low, 3), round(beyond.bracket_high, 3)
    (-0.167, 0.083)
    >>> change_beyond([pair], 256).why
    'k = 256 is above twice the 64 samples of a problem'
    """
    cap = min(pair.n_most for pair in pairs)
    if k <= cap:
        raise ValueError(f"k = {k} has an unbiased estimate from {cap} samples; needs k > {cap}")
    base_low, base_high = _bracket(pairs[0].n_base, pairs[0].base_P[None], k)
    late_low, late_high = np.mean([_bracket(pair.n_late, pair.late_rows, k) for pair in pairs], axis=0).tolist()
    low = high = None
    why = why or _refusal(pairs[0].n_problems, cap, k)
    if why is None:
        low, high = interval_beyond(pairs, k)
        if high - low > WIDEST:
            why = f"the interval at k = {k} is wider than {100 * WIDEST:.0f} points"
            low = high = None
    return Beyond(
        k=k, cap=cap, low=low, high=high, bracket_low=late_low - base_high, bracket_high=late_high - base_low, why=why
    )


def _refusal(n_problems: int, cap: int, k: int) -> str | None:
    if k > MOST_TIMES_CAP * cap:
        return f"k = {k} is above twice the {plural(cap, 'sample')} of a problem"
    if n_problems < LEAST_PROBLEMS:
        return f"{plural(n_problems, 'problem')}, and an interval needs {LEAST_PROBLEMS}"
    if cap < LEAST_SAMPLES:
        return f"{plural(cap, 'sample')} of a problem, and an interval needs {LEAST_SAMPLES}"
    return None


def _bracket(samples: Samples, counts_TP: Int[np.ndarray, "step problem"], k: int) -> tuple[float, float]:
    """Return the smallest and the largest mean pass@k, by the estimate at the number of samples."""
    n = most_samples(samples)
    solved = float(pass_at_k_table(samples, [min(k, n)])[counts_TP].mean())
    return solved, solved if k <= n else 1.0


# ---- profile likelihood


def interval_beyond(pairs: Sequence[PairedCounts], k: int) -> tuple[float, float]:
    """Return the smallest and the largest change of mean pass@k among the distributions that fit the counts."""
    late_hits = [pair.late_hits for pair in pairs]
    n_late_P, late_P = (np.sum([hits[of] for hits in late_hits], axis=0) for of in (0, 1))
    ends_P4 = np.stack([*pairs[0].base_hits, n_late_P, late_P], axis=1)
    ends_U4, times_U = np.unique(ends_P4, axis=0, return_counts=True)
    rate_R = rate_grid(k)
    base_UR, late_UR = (
        likelihoods(ends_U4[:, 0], ends_U4[:, 1], rate_R),
        likelihoods(ends_U4[:, 2], ends_U4[:, 3], rate_R),
    )
    both_UG = (base_UR[:, :, None] * late_UR[:, None, :]).reshape(len(ends_U4), -1)
    fit = Mixture(likelihood_UG=np.where(both_UG < _LEAST_LIKELIHOOD, 0.0, both_UG), times_U=times_U.astype(float))
    unsolved_R = np.exp(k * np.log1p(-rate_R))
    change_G = (unsolved_R[:, None] - unsolved_R).ravel()
    return -fit.largest_mean(-change_G), fit.largest_mean(change_G)


def rate_grid(k: int) -> Float[np.ndarray, " rate"]:
    """Return the success rates of the grid for this k.

    >>> rate_grid(100)[[0, 1, -1]].round(4).tolist()
    [0.0, 0.0005, 0.95]
    """
    return np.concatenate([[0.0], np.geomspace(_LEAST_SOLVED / k, _LARGEST_RATE, _RATES)])


def likelihoods(
    n_U: Int[np.ndarray, " end"], correct_U: Int[np.ndarray, " end"], rate_R: Float[np.ndarray, " rate"]
) -> Float[np.ndarray, "end rate"]:
    """Return the likelihood of each rate, given an end point, divided by its largest value.

    >>> likelihoods(np.array([2, 2]), np.array([0, 1]), np.array([0.0, 0.5])).tolist()
    [[1.0, 0.25], [0.0, 1.0]]
    """
    log_UR = xlogy(correct_U[:, None], rate_R) + xlog1py((n_U - correct_U)[:, None], -rate_R)
    return np.asarray(np.exp(log_UR - log_UR.max(axis=1, keepdims=True)))


@dataclass(frozen=True, kw_only=True)
class PricedMaximum:
    """Maximum over distributions of mean + price · log-likelihood.

    ``bound`` is an upper bound of the maximum. ``log_likelihood`` is that of a distribution near it.
    """

    bound: float
    log_likelihood: float


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """Distributions on a grid, and end points that occur ``times_U`` times.

    ``likelihood_UG`` is the likelihood of each point of the grid, given an end point.
    """

    likelihood_UG: Float[np.ndarray, "end point"]
    times_U: Float[np.ndarray, " end"]

    @cached_property
    def most_likely(self) -> float:
        """Upper bound of the log-likelihood, above its maximum by at most ``_TOLERANCE``."""
        return self.tilt(np.zeros(self.likelihood_UG.shape[1]), price=1.0).bound

    def largest_mean(self, value_G: Float[np.ndarray, " point"]) -> float:
        """Return the largest mean of ``value_G`` among distributions within ``DROP`` of the largest log-likelihood.

        At any price, the maximum of mean + price · (log-likelihood − lowest allowed) is an upper bound of it (Lagrange
        duality). The bound is smallest at the price at which the log-likelihood is the lowest allowed. So this is never
        too small. A price that misses by a tenth makes it too large by a two-hundredth of its distance from the mean of
        the most likely distribution.
        """
        lowest, least = self.most_likely - DROP, float(value_G.max())
        price, too_low, too_high = _FIRST_PRICE / float(self.times_U.sum()), 0.0, np.inf
        for _ in range(_MOST_PRICES):
            tilted = self.tilt(value_G, price=price)
            least = min(least, tilted.bound - price * lowest)
            drop = self.most_likely - tilted.log_likelihood
            if 0.8 * DROP < drop < 1.25 * DROP:
                break
            too_low, too_high = (price, too_high) if drop > DROP else (too_low, price)
            price *= float(np.clip((drop / DROP) ** 0.5, 0.1, 10.0))  # as if the log-likelihood were quadratic
            if not 1.02 * too_low < price < 0.98 * too_high:
                price = sqrt(too_low * too_high)
        return least

    def tilt(self, value_G: Float[np.ndarray, " point"], *, price: float) -> PricedMaximum:
        """Maximise the mean of ``value_G`` + ``price`` · log-likelihood by a primal-dual interior-point method."""
        L_UG, times_U, n_points = self.likelihood_UG, self.times_U, len(value_G)
        n_problems, weight_G, bound = float(times_U.sum()), np.full(n_points, 1.0 / n_points), np.inf
        slope_G = value_G + price * ((times_U / (L_UG @ weight_G)) @ L_UG)
        level = float(slope_G.max()) + price * n_problems  # multiplier of the sum of weights
        slack_G = level - slope_G  # multipliers of their signs
        for _ in range(_MOST_STEPS):
            fit_U = L_UG @ weight_G
            slope_G = value_G + price * ((times_U / fit_U) @ L_UG)
            log_likelihood = float(times_U @ np.log(fit_U))
            # the log-likelihood is concave, so it is nowhere above its tangent
            bound = min(bound, float(slope_G.max()) + price * (log_likelihood - n_problems))
            if bound - float(value_G @ weight_G) - price * log_likelihood < _TOLERANCE * price:
                break
            target_G = _CENTRING * float(slack_G @ weight_G) / n_points / weight_G
            sides_G2 = np.stack([slope_G - level + target_G, np.ones(n_points)], axis=1)
            free_G, even_G = _solve(slack_G / weight_G, L_UG, price * times_U / fit_U**2, sides_G2).T
            level_change = float(free_G.sum() / even_G.sum())
            step_G = free_G - level_change * even_G
            change_G = target_G - slack_G - slack_G / weight_G * step_G
            size = min(_longest(weight_G, step_G), _longest(slack_G, change_G))
            weight_G, slack_G = weight_G + size * step_G, slack_G + size * change_G
            level += size * level_change
        return PricedMaximum(bound=bound, log_likelihood=log_likelihood)


def _longest(positive_X: Float[np.ndarray, " n"], step_X: Float[np.ndarray, " n"]) -> float:
    """Return the largest size, at most 1, of a step after which all numbers are still positive."""
    falls_X = step_X < 0
    return min(1.0, 0.95 * float((positive_X[falls_X] / -step_X[falls_X]).min(initial=np.inf)))


def _solve(
    diagonal_G: Float[np.ndarray, " point"],
    rows_XG: Float[np.ndarray, "row point"],
    curvature_X: Float[np.ndarray, " row"],
    sides_GS: Float[np.ndarray, "point side"],
) -> Float[np.ndarray, "point side"]:
    """Solve (diagonal + rowsᵀ · curvature · rows) x = sides, by the smaller of two systems (Woodbury)."""
    n_rows, n_points = rows_XG.shape
    if n_rows >= n_points:
        whole_GG = (rows_XG.T * curvature_X) @ rows_XG
        whole_GG[np.diag_indices(n_points)] += diagonal_G
        return _solve_positive(whole_GG, sides_GS)
    scaled_XG = rows_XG / diagonal_G
    inner_XX = scaled_XG @ rows_XG.T
    inner_XX[np.diag_indices(n_rows)] += 1.0 / curvature_X
    inner_XS = _solve_positive(inner_XX, scaled_XG @ sides_GS)
    return np.asarray(sides_GS / diagonal_G[:, None] - scaled_XG.T @ inner_XS)


def _solve_positive(matrix_XX: Float[np.ndarray, "row row"], sides_XS: np.ndarray) -> np.ndarray:
    """Solve a positive system of numbers that are not negative.

    After scaling, small numbers are taken for 0: products of them are subnormal, which is slow. The diagonal is raised
    by a rounding error, because rounding may make the system indefinite.
    """
    from scipy.linalg import cho_factor, cho_solve  # slow to import

    scale_X = 1.0 / np.sqrt(np.diag(matrix_XX))
    matrix_XX *= scale_X
    matrix_XX *= scale_X[:, None]
    matrix_XX[matrix_XX < _TINY] = 0.0
    matrix_XX[np.diag_indices(len(matrix_XX))] += _RIDGE
    scaled_XS = cho_solve(cho_factor(matrix_XX, overwrite_a=True), sides_XS * scale_X[:, None])
    return np.asarray(scaled_XS * scale_X[:, None])
