"""Measures of Cover@τ, the share of problems solved at a rate of at least τ, and its change."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool

from oversharp.diagnostics.measures.contract import Plot, Results
from oversharp.diagnostics.measures.counts import COMMON_COUNTS, Counts
from oversharp.diagnostics.measures.declare import against_base, per_checkpoint
from oversharp.diagnostics.statistics.intervals import share_interval, yes_no_interval
from oversharp.diagnostics.statistics.units import Interval

#: τ in percent, so that comparisons use integers.
PERCENTS = (10, 25, 50, 90)
SCOPES = tuple(f"tau {percent / 100:g}" for percent in PERCENTS)


@per_checkpoint(
    input=COMMON_COUNTS,
    scopes=SCOPES,
    title="Cover@τ",
    unit="share of problems",
    section="coverage",
    rank=60,
    plot=Plot(x="step", group="scope", y_label="share of problems solved at a rate of τ", y_range=(0.0, 1.0)),
)
def cover_at_tau(counts: Counts) -> Results:
    """Cover@τ: the share of problems with at least a share τ of correct samples.

    Meaning: coverage without lucky guesses. Pass@k counts a problem as solved if any of k samples is correct, so at
    large k it rewards guessing. Cover@τ requires a success rate of at least τ. A small τ measures how many problems are
    solved at all, a τ near 1 how many are solved reliably. Pass@k is a weighted mean of Cover@τ over τ; at large k only
    τ near 0 have weight. Scopes are ``tau 0.1``, ``tau 0.25``, ``tau 0.5`` and ``tau 0.9``.
    Unit: share of problems. Estimator: the share of problems with c/n ≥ τ, where c of n samples are correct. 95 % exact
    binomial interval over problems. Each problem has the same number of samples at every checkpoint.
    Limits: the value is not the share of problems whose true success rate is at least τ, because a rate near τ is
    estimated above or below τ by chance. If most rates are near 0 or 1, the two shares differ by up to 0.02 at n = 16,
    and 0.01 at n = 64. If most rates are in between, they differ by up to 0.07 and 0.02. Compare only checkpoints with
    equal n, as the audit does. If answers can be guessed (such as one of four options), Cover@τ counts guesses for τ up
    to the chance of a guess. It is unknown for fewer than 1/τ or 1/(1 − τ) samples.
    Source: Dragoi et al. 2025 (arXiv 2510.08325), Cover@τ.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("problem_counts", "checkpoint_id problem_id n n_correct", [
    ...     ("base", "q1", 10, 1), ("base", "q2", 10, 5), ("late", "q1", 10, 0), ("late", "q2", 10, 9)], n=10)
    >>> [(f.checkpoint_id, f.value) for f in cover_at_tau(evidence) if f.scope == "tau 0.1"]
    [('base', 1.0), ('late', 0.5)]
    >>> [(f.checkpoint_id, f.value) for f in cover_at_tau(evidence) if f.scope == "tau 0.9"]
    [('base', 0.0), ('late', 0.5)]
    """

    def share(percent: int) -> Interval:
        return yes_no_interval(_is_covered(counts, percent), cluster_P=counts.cluster_P)

    return _by_tau(counts, share)


@against_base(
    input=COMMON_COUNTS,
    scopes=SCOPES,
    title="Cover@τ against base",
    unit="share of problems",
    section="coverage",
    rank=70,
    plot=Plot(x="step", group="scope", y_label="Cover@τ − base"),
    signed=True,
)
def cover_at_tau_delta(base: Counts, late: Counts) -> Results:
    """Cover@τ against base: the paired difference, problem by problem.

    Meaning: the share of problems that reached a success rate of at least τ since the base, minus the share that lost
    it. A gain at τ = 0.9 together with a loss at τ = 0.1 is sharpening that lost problems. Lucky guesses do not
    contribute. Scopes are ``tau 0.1``, ``tau 0.25``, ``tau 0.5`` and ``tau 0.9``. The base has no finding.
    Unit: share of problems (difference, −1 to 1). Estimator: mean over problems of the difference of the indicators c/n
    ≥ τ. 95 % paired t interval over problems with a variance floor of two problems.
    Limits: problems whose rate is near τ cross it by chance, equally often in both directions if nothing changed. There
    is one interval per τ and checkpoint, without a correction for multiple comparisons, so a single interval below 0
    does not show a loss. The difference is unknown for fewer than 1/τ or 1/(1 − τ) samples.
    Source: Dragoi et al. 2025 (arXiv 2510.08325), Cover@τ; the difference is ours.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("problem_counts", "checkpoint_id problem_id n n_correct", [
    ...     ("base", "q1", 10, 1), ("base", "q2", 10, 5), ("late", "q1", 10, 0), ("late", "q2", 10, 9)], n=10)
    >>> [(f.scope, f.value) for f in cover_at_tau_delta(evidence)]
    [('tau 0.1', -0.5), ('tau 0.25', 0.0), ('tau 0.5', 0.0), ('tau 0.9', 0.5)]
    """

    def change(percent: int) -> Interval:
        change_P = _is_covered(late, percent).astype(np.float64) - _is_covered(base, percent)
        return share_interval(change_P, bounds=(-1.0, 1.0), floor=2.0, cluster_P=late.cluster_P)

    return _by_tau(late, change)


def _by_tau(counts: Counts, estimate: Callable[[int], Interval]) -> Results:
    return {
        scope: _too_coarse(percent, counts.fewest) or estimate(percent)
        for percent, scope in zip(PERCENTS, SCOPES, strict=True)
    }


def _is_covered(counts: Counts, percent: int) -> Bool[np.ndarray, " problem"]:
    return 100 * counts.correct_P >= percent * counts.n_P


def _too_coarse(percent: int, n: int) -> str | None:
    """Return why n samples are too few for τ (fewer than 1/τ or 1/(1 − τ)), or None."""
    least = -(-100 // min(percent, 100 - percent))
    return f"needs at least {least} samples per problem; there are {n}" if n < least else None
