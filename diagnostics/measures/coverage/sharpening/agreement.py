"""Accuracy of m draws that agree, and of k such attempts, from counts of answers, without first-order bias.

m draws agree on the answer a with a probability proportional to p_a^m, so the answer is correct with q_m =
Σ_correct p_a^m / Σ p_a^m. An estimated share put into 1 − (1 − q)^k is biased: for many distributions by 1 to 3 points
at k = n/16. The jackknife removes the bias of order 1/n. Samples of one answer are exchangeable, so leaving out each
sample once costs one evaluation per different answer.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int


def agreeing_pass_at_k(
    count_A: Int[np.ndarray, " answer"],
    is_correct_A: Float[np.ndarray, " answer"],
    problem_A: Int[np.ndarray, " answer"],
    n_P: Int[np.ndarray, " problem"],
    *,
    draws: int,
    k: int,
) -> tuple[Float[np.ndarray, " problem"], Float[np.ndarray, " problem"]]:
    """Return pass@1 and pass@k of each problem for ``draws`` draws that agree, by the first-order jackknife.

    ``count_A``: samples of every different answer; ``n_P``: all samples, including those without an answer, which
    never agree. Unit: probability; unbiased values of single problems may be outside 0 to 1. A problem in which no
    answer occurs as often as ``draws`` has 0. Errors by n, k and draws: benchmarks/results/agreeing.md.
    Source: Quenouille 1956 (the jackknife); unbiased p^m by falling factorials.

    >>> pass_1_P, pass_2_P = agreeing_pass_at_k(  # as they are counted: 380 / 512 = .742 and 1 - (132 / 512)² = .934
    ...     np.array([20, 12]), np.array([1.0, 0.0]), np.array([0, 0]), np.array([64]), draws=2, k=2)
    >>> pass_1_P.round(3).tolist(), pass_2_P.round(3).tolist()
    ([0.755], [0.962])
    """
    weight_A, one_less_A = _choices(count_A, draws), _choices(count_A - 1, draws)
    n_problems = len(n_P)
    all_P, right_P = (np.bincount(problem_A, one, n_problems) for one in (weight_A, weight_A * is_correct_A))
    lost_A = weight_A - one_less_A
    share_P = _ratio(right_P, all_P)
    share_without_A = _ratio(right_P[problem_A] - lost_A * is_correct_A, all_P[problem_A] - lost_A)
    silent_P = n_P - np.bincount(problem_A, count_A, n_problems)

    def jackknife(estimate: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        whole_P = estimate(share_P)
        without_P = (
            np.bincount(problem_A, count_A * estimate(share_without_A), n_problems) + silent_P * whole_P
        ) / np.maximum(n_P, 1)
        return np.asarray(n_P * whole_P - (n_P - 1) * without_P)

    return jackknife(lambda share: share), jackknife(lambda share: 1.0 - (1.0 - share) ** k)


def agreeing_shares(
    count_A: Int[np.ndarray, " answer"],
    is_correct_A: Float[np.ndarray, " answer"],
    problem_A: Int[np.ndarray, " answer"],
    n_problems: int,
    *,
    draws: int,
) -> Float[np.ndarray, " problem"]:
    """Return for each problem the share of correct ones among all choices of ``draws`` samples that agree.

    A problem without such a choice has 0.

    >>> agreeing_shares(np.array([3, 2, 1]), np.array([1.0, 0.0, 1.0]), np.array([0, 0, 1]), 2, draws=2).tolist()
    [0.75, 0.0]
    """
    weight_A = _choices(count_A, draws)
    right_P, all_P = (np.bincount(problem_A, one, n_problems) for one in (weight_A * is_correct_A, weight_A))
    return _ratio(right_P, all_P)


def _choices(count_A: Int[np.ndarray, " answer"], draws: int) -> Float[np.ndarray, " answer"]:
    """Return the ordered choices of ``draws`` of each count, c (c − 1) …; divided by those of n, p^m without bias."""
    return np.asarray(np.prod([np.maximum(count_A - taken, 0) for taken in range(draws)], axis=0, dtype=np.float64))


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(part, 0.0) / np.where(whole > 0.0, whole, 1.0))
