"""Find lost problems in two stages: a shortlist from the audit, then a test on fresh samples.

Among 500 unchanged problems with 256 samples each, 18 seem lost and 18 gained by chance, and these are shortlisted. So
the counts of the audit must not be tested. Fresh samples of the shortlisted problems are tested by Fisher's exact test,
with Holm's correction over all of them.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import hypergeom

Counts = Int[np.ndarray, " problem"] | int

#: A complete loss with a larger p value in the audit is sorted like other falls in the shortlist.
TOTAL_LEVEL = 0.05


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
    total, n_total = np.add(correct_base, correct_late), np.add(n_base, n_late)
    # Rounding may raise a sum of probabilities to 1 + 1e-14.
    return np.clip(hypergeom.cdf(correct_late, n_total, total, n_late), 0.0, 1.0)


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
