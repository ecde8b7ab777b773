"""Unbiased pass@k, as a table over the number of correct samples, or over the end points of a stopping rule.

With c of n samples correct, h(c) = 1 − C(n−c, k) / C(n, k) is the unbiased estimator of the chance that at least one of
k fresh samples is correct (Chen et al. 2021, arXiv 2107.03374, Eq 1). A whole audit uses one table, because n is the
same for every problem and checkpoint.
Where a stopping rule determined the number of samples, the rows are its end points (``stopping``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int
from scipy.special import gammaln

from oversharp.diagnostics.statistics.stopping import Samples, StoppingRule


def pass_at_k_table(n: Samples, ks: Sequence[int]) -> Float[np.ndarray, "correct k"]:
    """Return h(c) for every number of correct samples: row c = 0 … n, one column per k.

    A probability, exactly 0 in row c = 0 and exactly 1 where n − c < k. Relative error below 1e-14 up to n = 16384 (the
    log-gamma form loses up to 2e-7 there for small c). For a stopping rule, the rows are the codes of its end points,
    and n is the cap. Cached and read-only.

    Raises ``ValueError`` unless 1 ≤ k ≤ n: fewer than k samples give no unbiased estimate of pass@k.

    >>> pass_at_k_table(4, [1, 2]).round(4).tolist()
    [[0.0, 0.0], [0.25, 0.5], [0.5, 0.8333], [0.75, 1.0], [1.0, 1.0]]
    """
    if isinstance(n, StoppingRule):
        return n.pass_at_k_table(ks)
    if n < 1 or any(not 1 <= k <= n for k in ks):
        raise ValueError(f"pass@k needs 1 <= k <= n; got k = {list(ks)} with n = {n}")
    return _pass_at_k_table(int(n), tuple(map(int, ks)))


@lru_cache(maxsize=64)
def _pass_at_k_table(n: int, ks: tuple[int, ...]) -> Float[np.ndarray, "correct k"]:
    table_CK = -np.expm1(_log_miss_table(n, ks)) + 0.0  # + 0.0 turns the −0.0 of row 0 into 0.0
    table_CK.setflags(write=False)
    return table_CK


def pass_at_k_each(
    n_P: Int[np.ndarray, " problem"], correct_P: Int[np.ndarray, " problem"], k_P: Int[np.ndarray, " problem"]
) -> Float[np.ndarray, " problem"]:
    """Return h(c) of problems with separate n and k, as a probability; 0 where k is 0.

    By log-gamma, to 1e-9 up to n = 4096: a table for each n would be larger than the number of problems.
    Raises ``ValueError`` unless 0 ≤ k ≤ n and 0 ≤ c ≤ n.

    >>> pass_at_k_each(np.array([4, 4, 2, 0]), np.array([1, 3, 0, 0]), np.array([2, 2, 1, 0])).round(4).tolist()
    [0.5, 1.0, 0.0, 0.0]
    """
    if ((k_P < 0) | (k_P > n_P) | (correct_P < 0) | (correct_P > n_P)).any():
        raise ValueError("pass@k needs 0 <= k <= n and 0 <= correct <= n of every problem")
    wrong_P = n_P - correct_P
    log_miss_P = (gammaln(wrong_P + 1.0) - gammaln(np.maximum(wrong_P - k_P, 0) + 1.0) - gammaln(n_P + 1.0)) + gammaln(
        n_P - k_P + 1.0
    )
    return np.where(correct_P == 0, 0.0, np.where(wrong_P < k_P, 1.0, -np.expm1(np.minimum(log_miss_P, 0.0))))


def within_problem_variance_table(n: Samples, ks: Sequence[int]) -> Float[np.ndarray, "correct k"]:
    """Return the unbiased estimate of the variance of h(c) at one problem.

    Row c = 0 … n, one column per k. For a stopping rule, the diagonal of its ``covariance_table``.

    v = q_k² − q_{2k}, with q_k = C(n−c, k) / C(n, k): q_k and q_{2k} are unbiased for (1−p)^k and (1−p)^{2k}, so the
    mean of v is E[q_k²] − E[q_k]² at every p. Unit: probability squared. Never negative; 0 in the rows 0 and n.
    Relative error below 1e-12 up to n = 16384.

    Raises ``ValueError`` unless 1 ≤ k ≤ n / 2: above, no unbiased estimate of the variance exists.

    >>> within_problem_variance_table(4, [1, 2]).round(4).tolist()
    [[0.0, 0.0], [0.0625, 0.25], [0.0833, 0.0278], [0.0625, 0.0], [0.0, 0.0]]
    """
    if isinstance(n, StoppingRule):
        return np.diagonal(n.covariance_table(ks), axis1=1, axis2=2)
    if any(not 2 <= 2 * k <= n for k in ks):
        raise ValueError(f"the variance of pass@k needs 1 <= k <= n / 2; got k = {list(ks)} with n = {n}")
    log_miss_CK, log_miss_twice_CK = _log_miss_table(n, ks), _log_miss_table(n, [2 * k for k in ks])
    # q_k² / q_{2k} = Π 1 + x² / (1 − 2x) with x = k / (n − i). Where c is small, the difference of the two tables would
    # lose all digits to rounding.
    left_C = n - np.arange(n, dtype=np.float64)
    k_K = np.asarray(ks, dtype=np.float64)
    enough_CK = left_C[:, None] > 2.0 * k_K
    ratio_CK = np.where(enough_CK, k_K / left_C[:, None], 0.0)
    log_excess_CK = np.vstack([np.zeros((1, len(ks))), np.cumsum(np.log1p(ratio_CK**2 / (1 - 2 * ratio_CK)), axis=0)])
    near_CK = log_excess_CK < 1.0
    return np.where(
        near_CK & np.isfinite(log_miss_twice_CK),
        np.exp(log_miss_twice_CK) * np.expm1(np.minimum(log_excess_CK, 1.0)),
        np.exp(2.0 * log_miss_CK) - np.exp(log_miss_twice_CK),
    )


def within_problem_covariance_table(n: Samples, ks: Sequence[int]) -> Float[np.ndarray, "correct k k"]:
    """Return the unbiased estimate of the covariance of h(c) at two k of one problem.

    Row c = 0 … n, or the codes of a stopping rule. It is q_k q_k' − q_{k+k'}, as in ``within_problem_variance_table``,
    by plain differences: absolute error below 1e-12 (probability squared), not relative. Raises ``ValueError`` unless
    1 ≤ k ≤ n / 2.

    >>> within_problem_covariance_table(4, [1, 2])[1].round(4).tolist()
    [[0.0625, 0.125], [0.125, 0.25]]
    """
    if isinstance(n, StoppingRule):
        return n.covariance_table(ks)
    if any(not 2 <= 2 * k <= n for k in ks):
        raise ValueError(f"the covariance of pass@k needs 1 <= k <= n / 2; got k = {list(ks)} with n = {n}")
    miss_CK = np.exp(_log_miss_table(n, ks))
    both_CKK = np.stack([np.exp(_log_miss_table(n, [k + other for other in ks])) for k in ks], axis=1)
    return miss_CK[:, :, None] * miss_CK[:, None, :] - both_CKK


def _log_miss_table(n: int, ks: Sequence[int]) -> Float[np.ndarray, "correct k"]:
    """log C(n−c, k) − log C(n, k) = Σ_{i<c} log(1 − k/(n−i)), and −inf where n − c < k."""
    left_C = n - np.arange(n, dtype=np.float64)  # samples not yet drawn: n, n−1, …, 1
    k_K = np.asarray(ks, dtype=np.float64)
    enough_CK = left_C[:, None] > k_K
    ratio_CK = np.where(enough_CK, k_K / left_C[:, None], 0.0)
    log_factor_CK = np.where(enough_CK, np.log1p(-ratio_CK), -np.inf)
    return np.vstack([np.zeros((1, len(ks))), np.cumsum(log_factor_CK, axis=0)])


def at_least_table(n: int, k: int, least: int) -> Float[np.ndarray, " correct"]:
    """Return the chance that at least ``least`` of k samples are correct, per count c = 0 … n.

    The upper tail of the hypergeometric distribution, unbiased for the binomial tail of k fresh samples: ``least`` = 1
    gives pass@k, ``least`` = k all correct. Unit: probability. Relative error below 1e-12 up to n = 16384. Cached and
    read-only.

    Raises ``ValueError`` unless 1 ≤ ``least`` ≤ k ≤ n.

    Source: Liu et al. 2024 (arXiv 2412.13147), G-Pass@k.

    >>> at_least_table(4, 2, 2).round(4).tolist()
    [0.0, 0.0, 0.1667, 0.5, 1.0]
    """
    if not 1 <= least <= k <= n:
        raise ValueError(f"needs 1 <= least <= k <= n; got least = {least}, k = {k}, n = {n}")
    return _at_least_table(int(n), int(k), int(least))


@lru_cache(maxsize=256)
def _at_least_table(n: int, k: int, least: int) -> Float[np.ndarray, " correct"]:
    # Order the correct samples first. At least ``least`` of k drawn ones are correct if the least-th drawn one is at a
    # position j < c. So the table is the cumulative sum of the chances of the positions, C(j, least − 1)
    # C(n − 1 − j, k − least) / C(n, k), for j = least − 1 … n − 1 − k + least.
    j_J = np.arange(least - 1.0, n - k + least - 1.0)  # all but the last position
    ratio_J = (j_J + 1.0) / (j_J + 2.0 - least) * ((n - 1.0 - j_J - (k - least)) / (n - 1.0 - j_J))
    # products from the largest chance outwards do not overflow
    top = int((ratio_J >= 1.0).sum())
    before_J, after_J = np.cumprod(1.0 / ratio_J[:top][::-1])[::-1], np.cumprod(ratio_J[top:])
    total_J = np.cumsum(np.concatenate([before_J, [1.0], after_J]))
    table_C = np.ones(n + 1)
    table_C[:least] = 0.0
    table_C[least : n + 1 - k + least] = total_J / total_J[-1]
    table_C.setflags(write=False)
    return table_C


@lru_cache(maxsize=64)
def mean_above_half_table(n: int, k: int) -> Float[np.ndarray, " correct"]:
    """Return the unbiased estimate of mG-Pass@k, per count c = 0 … n; cached and read-only.

    This is 2/k · E[max(X − ⌈k/2⌉, 0)] for X correct samples among k, a probability. Raises ``ValueError`` unless
    2 ≤ k ≤ n.

    Source: Liu et al. 2024 (arXiv 2412.13147), mG-Pass@k.

    >>> mean_above_half_table(4, 4).tolist()  # 3 or 4 of 4
    [0.0, 0.0, 0.0, 0.5, 1.0]
    """
    # One more correct sample raises E[max(X − h, 0)] by the chance that it is drawn, k/n, and that at least h of the
    # other k − 1 drawn samples are correct.
    gain_C = at_least_table(n - 1, k - 1, -(-k // 2))
    table_C = np.concatenate([[0.0], 2.0 / n * np.cumsum(gain_C)])
    table_C.setflags(write=False)
    return table_C
