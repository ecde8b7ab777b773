"""Unparsed samples as an explanation of a fall: the counts of parsed samples alone, and with unparsed ones accepted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import gammaln

from oversharp.diagnostics.statistics.keys import PairedCounts, least_normal_p, scale_of
from oversharp.diagnostics.statistics.stopping import Samples, as_rule, most_samples


@dataclass(frozen=True, kw_only=True)
class Unread:
    """Samples of every problem that are truncated, unparsed or timed out, and so count as wrong.

    With a stopping rule, ``late_P`` has one row per late checkpoint, and ``accepted`` has the counts with all late
    unparsed samples in excess of the base's counted as correct. The rule is applied to these again.
    """

    base_P: Int[np.ndarray, " problem"]
    late_P: Int[np.ndarray, "*step problem"]
    accepted: PairedCounts | None = None

    def rise(self, counts: PairedCounts) -> float:
        """Return the rise of their share of all samples, a probability; with a stopping rule, of each problem's."""
        if isinstance(counts.n_base, int) and isinstance(counts.n_late, int):
            return float(self.late_P.mean() / counts.n_late - self.base_P.mean() / counts.n_base)
        (n_base_P, _), (n_late_P, _) = counts.base_hits, counts.late_hits
        return float((np.atleast_2d(self.late_P).sum(axis=0) / n_late_P).mean() - (self.base_P / n_base_P).mean())


@dataclass(frozen=True, kw_only=True)
class ParsedEstimates:
    """Unbiased estimates of (1 − p)^j among parsed samples only, where p is their success rate.

    For samples drawn by a stopping rule, whose parsed samples are too unequal in number to be counted. The columns are
    j = 0 … cap / 2, so k is at most half of the cap, and for variances a quarter.
    """

    base_PJ: Float[np.ndarray, "problem j"]
    late_TPJ: Float[np.ndarray, "step problem j"]

    @property
    def n_problems(self) -> int:
        """Number of problems with enough parsed samples."""
        return len(self.base_PJ)

    @property
    def n_most(self) -> int:
        """Largest k with an estimate."""
        return self.base_PJ.shape[1] - 1

    def base_pass_at_k(self, ks: Sequence[int]) -> Float[np.ndarray, "problem k"]:
        """Return pass@k of the base among parsed samples."""
        return 1.0 - self.base_PJ[:, list(ks)]

    def changes(self, ks: Sequence[int]) -> Float[np.ndarray, "problem k"]:
        """Return the change of pass@k among parsed samples, per problem."""
        return np.asarray((self.base_PJ - self.late_TPJ.mean(axis=0))[:, list(ks)])

    def fall_p(self, ks: Sequence[int], *, rng: np.random.Generator, draws: int) -> float:
        """Return the p value of "mean pass@k fell at none of ``ks``", by normal numbers as in ``exact_key``."""
        if not self.n_problems:
            return 1.0
        k_K = np.asarray(ks)
        both_KK = k_K[:, None] + k_K

        def covariance(miss_PJ: np.ndarray) -> np.ndarray:
            return np.asarray(miss_PJ[:, k_K].T @ miss_PJ[:, k_K] - miss_PJ[:, both_KK].sum(axis=0))

        n_steps = len(self.late_TPJ)
        covariance_KK = covariance(self.base_PJ) + sum(map(covariance, self.late_TPJ)) / n_steps**2
        least = float((self.changes(ks).sum(axis=0) / scale_of(np.diag(covariance_KK))).min())
        return least_normal_p(least, covariance_KK, rng=rng, draws=draws)


def read_alone(counts: PairedCounts, unread: Unread, *, rng: np.random.Generator) -> PairedCounts | ParsedEstimates:
    """Return the counts among parsed samples only.

    From every problem an equal number of parsed samples is drawn at random: the number of the problem with the fewest.
    Scaled counts would be rounded, and would have the scatter of fewer samples. A problem with less than half of its
    samples parsed on either side is omitted. The result may have no problem. With a stopping rule, the result has
    estimates instead of counts.
    """
    if counts.is_stopped:
        return _estimate_parsed(counts, unread)
    n_base, n_late = most_samples(counts.n_base), most_samples(counts.n_late)
    read_base_P, read_late_P = n_base - unread.base_P, n_late - unread.late_P
    stays_P = (2 * read_base_P >= n_base) & (2 * read_late_P >= n_late)
    base_P, n_base = _thinned(counts.base_P[stays_P], read_base_P[stays_P], n_base, rng)
    late_P, n_late = _thinned(counts.late_P[stays_P], read_late_P[stays_P], n_late, rng)
    return PairedCounts(base_P=base_P, late_P=late_P, n_base=n_base, n_late=n_late)


def _estimate_parsed(counts: PairedCounts, unread: Unread) -> ParsedEstimates:
    unread_rows = np.atleast_2d(unread.late_P)
    sides = [(counts.n_base, counts.base_P, unread.base_P)]
    sides += [(counts.n_late, *row) for row in zip(counts.late_rows, unread_rows, strict=True)]
    stays_P = np.all([_is_mostly_parsed(*side) for side in sides], axis=0)
    base_PJ, *late_TPJ = (
        _wrong_parsed_first(samples, code_P[stays_P], unread_P[stays_P], counts.n_most // 2)
        for samples, code_P, unread_P in sides
    )
    return ParsedEstimates(base_PJ=base_PJ, late_TPJ=np.stack(late_TPJ))


def _is_mostly_parsed(samples: Samples, code_P: np.ndarray, unread_P: np.ndarray) -> Bool[np.ndarray, " problem"]:
    n_P = as_rule(samples).hits(code_P)[0]
    return np.asarray(2 * (n_P - unread_P) >= n_P)


def _wrong_parsed_first(
    samples: Samples, code_P: np.ndarray, unread_P: np.ndarray, most: int
) -> Float[np.ndarray, "problem j"]:
    """Return the probability that the first j = 0 … ``most`` parsed samples are wrong, given the end point.

    Unparsed samples are exchangeable with the other wrong ones. So the position of the j-th parsed one among the wrong
    samples is negative hypergeometric, and all wrong samples up to it must precede the first correct one.
    """
    rule = as_rule(samples)
    n_P, correct_P = rule.hits(code_P)
    wrong_P, first_wrong_CJ = n_P - correct_P, rule.first_wrong_table()
    log_factorial = gammaln(np.arange(rule.cap + 2) + 1.0)

    def log_choose(n: np.ndarray, k: np.ndarray) -> np.ndarray:
        return np.asarray(log_factorial[n] - log_factorial[k] - log_factorial[n - k])

    miss_PJ = np.zeros((len(code_P), most + 1))
    miss_PJ[:, 0] = 1.0
    for row, (code, wrong, unread) in enumerate(zip(code_P.tolist(), wrong_P.tolist(), unread_P.tolist(), strict=True)):
        parsed = wrong - unread
        j_J = np.arange(1, min(most, parsed) + 1)
        at_JX = j_J[:, None] + np.arange(unread + 1)  # possible positions of the j-th parsed sample
        log_JX = log_choose(at_JX - 1, np.broadcast_to(j_J[:, None] - 1, at_JX.shape))
        log_JX = log_JX + log_choose(wrong - at_JX, np.broadcast_to(parsed - j_J[:, None], at_JX.shape))
        chance_JX = np.exp(log_JX - (log_factorial[wrong] - log_factorial[parsed] - log_factorial[unread]))
        miss_PJ[row, j_J] = (chance_JX * first_wrong_CJ[code, at_JX]).sum(axis=1)
    return miss_PJ


def _thinned(
    correct_P: np.ndarray, read_P: np.ndarray, n: int, rng: np.random.Generator
) -> tuple[Int[np.ndarray, " problem"], int]:
    """Draw an equal number of parsed samples from every problem, and count the correct ones.

    Returns the counts and that number: the smallest of any problem, or ``n`` without a problem.
    """
    least = int(read_P.min(initial=n))
    return rng.hypergeometric(correct_P, read_P - correct_P, least), least


def taken_for_correct(counts: PairedCounts, unread: Unread) -> PairedCounts:
    """Return the counts with all late unparsed samples in excess of the base's counted as correct.

    This is the largest possible effect of unparsed samples.

    >>> counts = PairedCounts(base_P=np.array([8, 8]), late_P=np.array([2, 2]), n_base=16, n_late=8)
    >>> unread = Unread(base_P=np.array([0, 8]), late_P=np.array([5, 5]))
    >>> taken_for_correct(counts, unread).late_P.tolist()
    [7, 3]
    """
    if counts.is_stopped:
        if unread.accepted is None:
            raise ValueError("the counts with accepted unparsed samples are unknown")
        return unread.accepted
    more_P = unread.late_P - unread.base_P * counts.n_late // counts.n_base
    return replace(counts, late_P=counts.late_P + np.maximum(0, more_P))


def share_explained(counts: PairedCounts, read: PairedCounts | ParsedEstimates, *, k: int) -> float | None:
    """Return the share of the fall of pass@k that disappears if only parsed samples count.

    The falls are summed over problems. None without a fall, or if too few problems or samples were parsed for ``k``.
    """
    fall = -float(counts.changes([k]).sum())
    if fall <= 0 or not read.n_problems or read.n_most < k:
        return None
    return float(np.clip(1.0 + float(read.changes([k]).sum()) / fall, 0.0, 1.0))
