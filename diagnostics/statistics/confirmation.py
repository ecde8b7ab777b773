"""Find lost problems in two stages: a shortlist from the audit, then a test on fresh samples.

Among 500 unchanged problems with 256 samples each, 18 seem lost and 18 gained by chance, and these are shortlisted. So
the counts of the audit must not be tested. Fresh samples of the shortlisted problems are tested by Fisher's exact test,
with Holm's correction over all of them.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from scipy.special import gammaln

Counts = Int[np.ndarray, " problem"] | int

#: A complete loss with a larger p value in the audit is sorted like other falls in the shortlist.
TOTAL_LEVEL = 0.05
#: Terms below this share of the sum are omitted.
_NEGLIGIBLE = 1e-17


def fisher_fell(
    correct_base: Counts, n_base: Counts, correct_late: Counts, n_late: Counts
) -> Float[np.ndarray, " problem"]:
    """Return the one-sided p of Fisher's exact test for "the success rate did not fall", one per entry.

    The probability of ``correct_late`` or fewer among ``n_late`` samples, given the total number of correct ones. Swap
    the sides to test for a rise. Raises ``ValueError`` where a count is outside 0 … n or there is no sample.

    >>> fisher_fell(np.array([4, 4]), 4, np.array([0, 4]), 4).round(4).tolist()  # 1 in C(8, 4) = 70
    [0.0143, 1.0]
    """
    for correct, n in ((correct_base, n_base), (correct_late, n_late)):
        if np.any(np.less(n, 1)) or np.any(np.less(correct, 0)) or np.any(np.greater(correct, n)):
            raise ValueError(f"Fisher's test needs 0 <= correct <= n and n >= 1; got {correct} of {n}")
    late_P, base_P, n_late_P, n_base_P = np.broadcast_arrays(*np.atleast_1d(correct_late, correct_base, n_late, n_base))
    # above its mean the tail is long: use the other one, of one more base sample
    is_low_P = late_P * n_base_P <= base_P * n_late_P
    p_P = np.empty(len(late_P))
    p_P[is_low_P] = _at_most(*(each_P[is_low_P] for each_P in (late_P, base_P, n_late_P, n_base_P)))
    late_P, base_P, n_late_P, n_base_P = (each_P[~is_low_P] for each_P in (late_P, base_P, n_late_P, n_base_P))
    has_more_P = (base_P > 0) & (late_P < n_late_P)
    p_P[~is_low_P] = 1.0 - has_more_P * _at_most(
        np.maximum(base_P - 1, 0), np.minimum(late_P + 1, n_late_P), n_base_P, n_late_P
    )
    return np.clip(p_P, 0.0, 1.0).reshape(np.broadcast(correct_base, n_base, correct_late, n_late).shape)


def _at_most(
    correct_P: Int[np.ndarray, " problem"],
    other_P: Int[np.ndarray, " problem"],
    n_P: Int[np.ndarray, " problem"],
    n_other_P: Int[np.ndarray, " problem"],
) -> Float[np.ndarray, " problem"]:
    """Return the chance of ``correct_P`` or fewer among ``n_P``, given the correct ones of both sides together.

    The hypergeometric distribution, summed from ``correct_P`` down. Relative error below 1e-11 up to n = 4096.
    """
    correct_P, other_P, n_P, n_other_P = (each_P.astype(np.float64) for each_P in (correct_P, other_P, n_P, n_other_P))
    log_P = _log_choose(n_P, correct_P) + _log_choose(n_other_P, other_P)
    log_P -= _log_choose(n_P + n_other_P, correct_P + other_P)
    sum_P, term_P = np.ones(len(n_P)), np.ones(len(n_P))
    while (term_P > _NEGLIGIBLE * sum_P).any():
        # one correct sample less here, and one more on the other side
        term_P = term_P * correct_P * (n_other_P - other_P) / ((n_P - correct_P + 1.0) * (other_P + 1.0))
        sum_P += term_P
        correct_P, other_P = np.maximum(correct_P - 1.0, 0.0), np.minimum(other_P + 1.0, n_other_P)
    return np.asarray(np.exp(log_P) * sum_P)


def _log_choose(
    n_P: Float[np.ndarray, " problem"], k_P: Float[np.ndarray, " problem"]
) -> Float[np.ndarray, " problem"]:
    return np.asarray(gammaln(n_P + 1.0) - gammaln(k_P + 1.0) - gammaln(n_P - k_P + 1.0))


def holm(p_P: Float[np.ndarray, " test"]) -> Float[np.ndarray, " test"]:
    """Return Holm-adjusted p values.

    Rejecting those ≤ α makes any false rejection with probability α at most, for any dependence of the tests.

    Source: Holm 1979 (Scand. J. Stat. 6:65). Raises ``ValueError`` where a p is outside 0 … 1.

    >>> holm(np.array([0.01, 0.04, 0.03])).tolist()
    [0.03, 0.06, 0.06]
    """
    p_P = np.asarray(p_P, dtype=np.float64)
    if not ((p_P >= 0.0) & (p_P <= 1.0)).all():
        raise ValueError(f"p values must be between 0 and 1; got {p_P.tolist()}")
    order = np.argsort(p_P, kind="stable")
    adjusted_P = np.empty_like(p_P)
    adjusted_P[order] = np.minimum(1.0, np.maximum.accumulate(p_P[order] * np.arange(len(p_P), 0, -1)))
    return adjusted_P


def shortlist(
    base_P: Int[np.ndarray, " problem"],
    late_P: Int[np.ndarray, " problem"],
    n_base: Counts,
    n_late: Counts,
    *,
    most: int,
) -> tuple[Int[np.ndarray, " lost"], Int[np.ndarray, " gained"]]:
    """Return the indices of up to ``most`` problems that fell, and of as many that rose.

    Problems that lost every correct sample are first, ordered by the one-sided p of ``fisher_fell`` on these counts.
    Then follow the largest falls of the rate; ties are ordered by p, then as given. Problems that rose are found with
    the sides swapped. A complete loss with p above ``TOTAL_LEVEL`` is not put first, because one correct sample of 256
    disappears by chance, and hundreds of such problems would fill the list.

    These counts selected the problems, so test fresh samples only. Raises ``ValueError`` as ``fisher_fell`` does.

    >>> lost, gained = shortlist(np.array([9, 0, 5, 3, 10]), np.array([0, 8, 5, 2, 0]), 10, 10, most=5)
    >>> lost.tolist(), gained.tolist()
    ([4, 0, 3], [1])
    """
    return (
        _first(base_P, late_P, n_base, n_late, most=most),
        _first(late_P, base_P, n_late, n_base, most=most),
    )


def _first(
    before_P: Int[np.ndarray, " problem"],
    after_P: Int[np.ndarray, " problem"],
    n_before: Counts,
    n_after: Counts,
    *,
    most: int,
) -> Int[np.ndarray, " lost"]:
    p_P = fisher_fell(before_P, n_before, after_P, n_after)
    # integers, so that equal rates compare equal
    fell_P = np.multiply(before_P, n_after) > np.multiply(after_P, n_before)
    fall_P = np.divide(before_P, n_before) - np.divide(after_P, n_after)
    total_P = (after_P == 0) & (p_P <= TOTAL_LEVEL)
    # the last key has priority
    order_P = np.lexsort((p_P, np.where(total_P, 0.0, -fall_P), ~total_P))
    return order_P[fell_P[order_P]][:most]
