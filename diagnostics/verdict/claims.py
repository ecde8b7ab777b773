"""What a verdict was asked for, claim by claim: null hypothesis, p value, size, and what else would explain it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Float
from scipy.optimize import brentq
from scipy.stats import hypergeom, norm

from diagnostics.statistics.keys import PairedCounts, exact_key
from diagnostics.verdict.record import Claim, Estimate
from diagnostics.verdict.rule import KEY_LEVEL, MARGIN, MARGIN_CONFIDENCE, MINORITY_LEVEL, STEP_LEVEL, Evidence, Ruling

HERE, LIKE_THESE = "these problems", "problems like these"
#: Names of the claims that sentences ask for.
FELL_HERE, FELL = "pass@k fell here", "pass@k fell"
#: … and those whose size is no change of pass@k: a share of problems, and a bound.
SOME_LOST, NO_FALL = "some problem lost", "no fall that matters"
#: How many standard errors below 0 a fall must lie for the keys to see it, over the usual k: at their level, normal
#: numbers would need 1.9; the least of several needs this.
_CALLED_AT = 2.2


def claims_of(seen: Evidence, ruling: Ruling, size: Estimate, *, rng: np.random.Generator) -> Iterator[Claim]:
    """All claims, those that the label rests on first. ``size`` is the largest fall over k, as a change."""
    otherwise = tuple(_otherwise(seen, ruling))
    here = Estimate(value=size.value, low=None, high=None)
    tests = (
        (FELL_HERE, "the mean pass@k of these problems fell at no k", HERE, ruling.p_exact, here),
        (
            FELL,
            "over problems like these, pass@k fell at no k",
            LIKE_THESE,
            ruling.p_population,
            size,
        ),
    )
    for name, null, scope, p, by in tests:
        yield _claim(name, null, scope, KEY_LEVEL * seen.spent, p, by, otherwise)
    yield _claim(
        "minority modes lost",
        "correct responses outside each problem's dominant mode became rarer at no k",
        HERE,
        MINORITY_LEVEL * seen.spent,
        ruling.p_minority,
        None,
        otherwise,
        why="no problem shows a second correct mode",
    )
    yield _claim(
        "a checkpoint lost",
        "no single checkpoint's pass@k is below the base's at any k",
        LIKE_THESE,
        STEP_LEVEL * seen.spent,
        min((step.p for step in ruling.steps), default=None),
        None,
        otherwise,
        why="fewer than two problems or clusters",
    )
    lost_P = lost_problems(seen.total, KEY_LEVEL * seen.spent)
    yield _claim(
        SOME_LOST,
        "no problem's success rate fell",
        HERE,
        KEY_LEVEL * seen.spent,
        float(_holm(_fisher(seen.total)).min()),
        Estimate(value=float(lost_P.mean()), low=None, high=None),
        otherwise,
    )
    yield _tail(seen, otherwise, rng)
    yield _no_loss(seen, ruling)


def _claim(
    name: str,
    null: str,
    scope: str,
    level: float,
    p: float | None,
    size: Estimate | None,
    otherwise: tuple[str, ...],
    why: str | None = None,
) -> Claim:
    holds = p is not None and p <= level
    return Claim(
        name=name,
        null=null,
        scope=scope,
        level=level,
        holds=holds,
        p=p,
        size=size,
        otherwise=otherwise if holds else (),
        why=why if p is None else None,
    )


def _tail(seen: Evidence, otherwise: tuple[str, ...], rng: np.random.Generator) -> Claim:
    """Pooled checkpoints have samples enough for k up to half of theirs, where single ones have not."""
    ks, k = [], 2 * seen.ks[-1]
    while 2 * k <= min(seen.total.n_base, seen.total.n_late):
        ks.append(k)
        k *= 2
    p = exact_key(seen.total, ks=ks, rng=rng) if ks else None
    return _claim(
        "pass@k fell in the tail",
        f"the mean pass@k of these problems fell at no k above {seen.ks[-1]}",
        HERE,
        KEY_LEVEL * seen.spent,
        p,
        None,
        otherwise,
        why="no k above those of the verdict is within half of the pooled samples",
    )


def _no_loss(seen: Evidence, ruling: Ruling) -> Claim:
    holds = ruling.least_change is not None and ruling.least_change > -MARGIN
    return Claim(
        name=NO_FALL,
        null=f"over problems like these, pass@k fell by {100 * MARGIN:.0f} points or more at some k",
        scope=LIKE_THESE,
        level=1 - MARGIN_CONFIDENCE,
        holds=holds,
        p=ruling.p_no_loss,
        size=None if ruling.least_change is None else Estimate(value=None, low=ruling.least_change, high=None),
        why=None if ruling.least_change is not None else "fewer than two problems or clusters",
    )


def _otherwise(seen: Evidence, ruling: Ruling) -> Iterator[str]:
    """Causes that this very data leave open."""
    if ruling.p_guessing is not None and ruling.p_guessing > KEY_LEVEL * seen.spent:
        yield "wrong answers that were accepted at the base"
    if ruling.p_read is not None and ruling.p_read > KEY_LEVEL * seen.spent:
        yield "samples that were cut off, not parsed or out of the grader's time"
    if seen.unread is None:
        yield "cut-off samples: nobody knows how they ended"


def lost_problems(counts: PairedCounts, level: float) -> Bool[np.ndarray, " problem"]:
    """Problems whose success rate surely fell: Fisher's exact test of each, one-sided, Holm over all of them.

    >>> counts = PairedCounts(base_P=np.array([40, 3]), late_P=np.array([0, 2]), n_base=64, n_late=64)
    >>> lost_problems(counts, 0.05).tolist()
    [True, False]
    """
    return np.asarray(_holm(_fisher(counts)) <= level)


def _fisher(counts: PairedCounts) -> Float[np.ndarray, " problem"]:
    total_P = counts.base_P + counts.late_P
    return np.asarray(hypergeom.cdf(counts.late_P, counts.n_base + counts.n_late, total_P, counts.n_late))


def _holm(p_P: Float[np.ndarray, " problem"]) -> Float[np.ndarray, " problem"]:
    order_P = np.argsort(p_P, kind="stable")
    adjusted_P = np.empty_like(p_P)
    adjusted_P[order_P] = np.minimum(1.0, np.maximum.accumulate(p_P[order_P] * np.arange(len(p_P), 0, -1)))
    return adjusted_P


def size_given_label(change: float, error: float, *, level: float) -> float:
    """A change of pass@k (below 0) that was called a loss, with what the calling adds to it taken away.

    Only falls that lie far enough from 0 are called one, so those that are look larger than they are. The size for
    which the observed one is the median of those that would be called: the normal law, cut at the point where the keys
    begin to see a fall of standard error ``error``. Never above 0.

    Source: Reid, Taylor, Tibshirani 2017 (Can. J. Stat. 45:201), the truncated normal law.

    >>> round(size_given_label(-0.10, 0.01, level=0.03), 4), round(size_given_label(-0.05, 0.02, level=0.03), 4)
    (-0.1, -0.0084)
    """
    called_at = _CALLED_AT + float(norm.ppf(1 - level) - norm.ppf(1 - KEY_LEVEL))
    observed = max(-change / error, called_at + 1e-3)

    def excess(true: float) -> float:
        return float(norm.logsf(observed - true) - norm.logsf(called_at - true) - np.log(0.5))

    true = brentq(excess, 0.0, observed + 1.0) if excess(0.0) < 0 else 0.0
    return -min(true * error, -change)
