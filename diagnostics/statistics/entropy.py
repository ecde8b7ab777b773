"""Entropy and concentration of finite samples of answers, for many groups at once.

All functions take two arrays: the counts of the distinct answers of all groups, and the group of each count. So 500
problems × 40 checkpoints are one call. They return one value per group; entropies are in nats. A group with too few
samples raises ``ValueError``. All estimators are biased by answers that were never sampled, the plug-in estimator most
of all. So compare groups only at equal sample sizes.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Int
from scipy.special import digamma


def plug_in_entropy(
    counts_A: Int[np.ndarray, " answer"], group_A: Int[np.ndarray, " answer"], n_groups: int
) -> Float[np.ndarray, " group"]:
    """Return H = −Σ p log p with p = count / n, in nats.

    This is the estimator that [B] C.5 prints (there in bits). Biased low by about (number of answers − 1) / 2n.

    >>> float(plug_in_entropy(np.array([2, 2]), np.array([0, 0]), 1)[0].round(4))  # log 2
    0.6931
    """
    n_G = _group_sizes(counts_A, group_A, n_groups, at_least=1)
    c_log_c_G = _group_sums(counts_A * np.log(np.maximum(counts_A, 1)), group_A, n_groups)
    return np.maximum(np.log(n_G) - c_log_c_G / n_G, 0.0)  # rounding may leave −1e-16


def chao_wang_jost_entropy(
    counts_A: Int[np.ndarray, " answer"], group_A: Int[np.ndarray, " answer"], n_groups: int
) -> Float[np.ndarray, " group"]:
    """Return the nearly unbiased Chao-Wang-Jost entropy in nats.

    The seen part is unbiased; the unseen part is estimated from singletons and doubletons.

    H = Σ_i (X_i/n) Σ_{k=X_i}^{n−1} 1/k  +  (f₁/n) Σ_{j≥1} (1−A)^j / (n−1+j), where f₁, f₂ count answers drawn once
    and twice, and A = 2f₂/((n−1)f₁ + 2f₂), or 2/((n−1)(f₁−1) + 2) if f₂ = 0.

    Source: Chao, Wang, Jost 2013, Methods in Ecology and Evolution 4:1091, Eq 7 (the second sum is theirs, written
    as the tail of the series of −log A).

    >>> float(chao_wang_jost_entropy(np.array([2, 2]), np.array([0, 0]), 1)[0].round(4))  # ½(½+⅓) · 2
    0.8333
    """
    n_G = _group_sizes(counts_A, group_A, n_groups, at_least=1)
    drawn_A = counts_A > 0
    counts_A, group_A = counts_A[drawn_A], group_A[drawn_A]
    n_A = n_G[group_A]
    seen_A = counts_A / n_A * (digamma(n_A) - digamma(counts_A))  # ψ(n) − ψ(X) = Σ_{k=X}^{n−1} 1/k
    seen_G = _group_sums(seen_A, group_A, n_groups)
    once_G = _group_sums(counts_A == 1, group_A, n_groups)
    twice_G = _group_sums(counts_A == 2, group_A, n_groups)
    # there are few distinct (n, f1, f2), so compute the unseen part once for each
    cases, case_of_group = np.unique(np.stack([n_G, once_G, twice_G], axis=1), axis=0, return_inverse=True)
    unseen = np.array([_unseen_entropy(int(n), int(once), int(twice)) for n, once, twice in cases])
    return np.maximum(seen_G + unseen[case_of_group.reshape(-1)], 0.0)


def unseen_room(
    counts_A: Int[np.ndarray, " answer"], group_A: Int[np.ndarray, " answer"], n_groups: int
) -> Float[np.ndarray, " group"]:
    """Return a bound for the error of ``chao_wang_jost_entropy`` from answers that were never sampled, in nats.

    The bound is (f₁/n) · (1 + log n). f₁/n estimates the total probability of these answers (Good 1953, Biometrika
    40:237). An answer that is just too rare for a sample of n has −log p of about log n. It is a rule of thumb, and
    large enough for every distribution of ``benchmarks/interval_coverage.py``, where the estimate is up to 0.9 nats too
    low.

    >>> float(unseen_room(np.array([3, 1]), np.array([0, 0]), 1)[0].round(4))  # ¼ (1 + log 4)
    0.5966
    """
    n_G = _group_sizes(counts_A, group_A, n_groups, at_least=1)
    return _group_sums(counts_A == 1, group_A, n_groups) / n_G * (1.0 + np.log(n_G))


def simpson_index(
    counts_A: Int[np.ndarray, " answer"], group_A: Int[np.ndarray, " answer"], n_groups: int
) -> Float[np.ndarray, " group"]:
    """Return Σ c(c−1) / (n(n−1)), the unbiased probability that two samples agree.

    Source: Simpson 1949. Needs n ≥ 2.

    >>> float(simpson_index(np.array([3, 1]), np.array([0, 0]), 1)[0])  # 6 of 12 ordered pairs agree
    0.5
    """
    n_G = _group_sizes(counts_A, group_A, n_groups, at_least=2)
    return _group_sums(counts_A * (counts_A - 1), group_A, n_groups) / (n_G * (n_G - 1))


def _group_sums(values_A: np.ndarray, group_A: Int[np.ndarray, " answer"], n_groups: int) -> np.ndarray:
    return np.bincount(group_A, weights=np.asarray(values_A, dtype=np.float64), minlength=n_groups)


def _group_sizes(counts_A: np.ndarray, group_A: np.ndarray, n_groups: int, *, at_least: int) -> np.ndarray:
    n_G = _group_sums(counts_A, group_A, n_groups)
    if n_groups and n_G.min() < at_least:
        raise ValueError(f"every group needs at least {at_least} samples; group {n_G.argmin()} has {n_G.min():.0f}")
    return n_G


def _unseen_entropy(n: int, once: int, twice: int) -> float:
    """Return (f₁/n) Σ_{j≥1} (1−A)^j / (n−1+j), to 1e-12.

    For large nA the direct form (1−A)^{1−n} (−log A − Σ_{r<n} (1−A)^r / r) loses all digits to cancellation, so the
    continued fraction is used. For small nA the continued fraction converges slowly, so the direct form is used.
    """
    if once == 0 or n < 2:
        return 0.0
    coverage_deficit = 2 * twice / ((n - 1) * once + 2 * twice) if twice else 2 / ((n - 1) * (once - 1) + 2)
    x = 1.0 - coverage_deficit
    if x <= 0.0:
        return 0.0
    if n * coverage_deficit <= 1.0:
        r = np.arange(1, n, dtype=np.float64)
        tail = -math.log(coverage_deficit) - float(np.sum(x**r / r))
        return once / n * tail * x ** (1 - n)
    return once / n * (x / n) / _gauss_fraction(n, x)


def _gauss_fraction(n: int, x: float, terms: int = 240) -> float:
    """1 / ₂F₁(1, n; n+1; x) by Gauss's continued fraction.

    Σ_{j≥1} x^j/(n−1+j) = (x/n) · ₂F₁(1, n; n+1; x).
    """
    fraction = 1.0
    for m in range(terms, 0, -1):
        half = m // 2
        numerator = (n + half) ** 2 if m % 2 else half**2
        fraction = 1.0 - numerator / ((n + m - 1) * (n + m)) * x / fraction
    return fraction
