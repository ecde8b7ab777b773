"""Claims of a verdict: null hypothesis, p value, size, and other explanations."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Float

from oversharp.diagnostics.statistics.confirmation import fisher_fell, holm
from oversharp.diagnostics.statistics.keys import PairedCounts, exact_key, mean_changes
from oversharp.diagnostics.statistics.pass_at_k import within_problem_variance_table
from oversharp.diagnostics.statistics.units import by_cluster
from oversharp.diagnostics.verdict.explanations import CAUSES
from oversharp.diagnostics.verdict.record import Claim, Estimate
from oversharp.diagnostics.verdict.rule import (
    KEY_LEVEL,
    MARGIN,
    MARGIN_CONFIDENCE,
    MINORITY_LEVEL,
    STEP_LEVEL,
    Ruling,
    SeenCounts,
)

HERE, LIKE_THESE = "these problems", "problems like these"
#: Names of the claims that sentences use.
FELL_HERE, FELL, A_CHECKPOINT = "pass@k fell here", "pass@k fell", "a checkpoint lost"
#: Claims whose size is not a change of pass@k but a share of problems, or a bound.
SOME_LOST, NO_FALL = "some problem lost", "no fall that matters"


def claims_of(seen: SeenCounts, ruling: Ruling, size: Estimate, *, rng: np.random.Generator) -> Iterator[Claim]:
    """Yield all claims, those that decide the label first.

    ``size`` is the largest fall over k, as a change.
    """
    otherwise = _otherwise(seen, ruling)
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
        A_CHECKPOINT,
        "no single checkpoint's pass@k is below the base's at any k",
        LIKE_THESE,
        STEP_LEVEL * seen.spent,
        min((step.p for step in ruling.steps), default=None),
        None,
        _otherwise(seen, ruling, of_checkpoints=True),
        why="fewer than two problems or clusters",
    )
    lost_P = lost_problems(seen.total, KEY_LEVEL * seen.spent)
    yield _claim(
        SOME_LOST,
        "no problem's success rate fell",
        HERE,
        KEY_LEVEL * seen.spent,
        float(_p_of_problems(seen.total).min()),
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


def _tail(seen: SeenCounts, otherwise: tuple[str, ...], rng: np.random.Generator) -> Claim:
    """Return the claim about k above those of the verdict.

    Pooled checkpoints have enough samples for k up to half of theirs; single ones do not.
    """
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


def _no_loss(seen: SeenCounts, ruling: Ruling) -> Claim:
    holds = ruling.least_change is not None and ruling.least_change > -MARGIN
    return Claim(
        name=NO_FALL,
        null=f"over problems like these, pass@k fell by {100 * MARGIN:.0f} points or more at some k",
        scope=LIKE_THESE,
        level=round(1 - MARGIN_CONFIDENCE, 12),  # 1 - 0.95 is not exactly 0.05
        holds=holds,
        p=ruling.p_no_loss,
        size=None if ruling.least_change is None else Estimate(value=None, low=ruling.least_change, high=None),
        why=None if ruling.least_change is not None else "fewer than two problems or clusters",
    )


def _otherwise(seen: SeenCounts, ruling: Ruling, *, of_checkpoints: bool = False) -> tuple[str, ...]:
    """Return the causes that these data leave open, for the window or for single checkpoints.

    Those of checkpoints count for the window too, unless it fell and nothing explains that.
    """
    causes = {step.cause for step in ruling.steps}
    if not of_checkpoints:
        causes = {ruling.cause, ruling.modes_cause} | (set() if ruling.fell and ruling.cause is None else causes)
    open_causes = []
    if "guessing" in causes:
        open_causes.append(CAUSES["guessing"])
    if causes & {"format", "unread"}:
        open_causes.append("samples that were cut off, not parsed or out of the grader's time")
    if seen.unread_of_window is None:
        open_causes.append("cut-off samples: nobody knows how they ended")
    return tuple(open_causes)


def lost_problems(counts: PairedCounts, level: float) -> Bool[np.ndarray, " problem"]:
    """Return whether the success rate of each problem fell significantly.

    One-sided Fisher's exact test of each, with Holm's correction over all of them.

    >>> counts = PairedCounts(base_P=np.array([40, 3]), late_P=np.array([0, 2]), n_base=64, n_late=64)
    >>> lost_problems(counts, 0.05).tolist()
    [True, False]
    """
    return np.asarray(_p_of_problems(counts) <= level)


def _p_of_problems(counts: PairedCounts) -> Float[np.ndarray, " problem"]:
    return holm(fisher_fell(counts.base_P, counts.n_base, counts.late_P, counts.n_late))


def error_of_fall(seen: SeenCounts, ruling: Ruling, k: int) -> float:
    """Return the standard error of the change of pass@k that decided the loss, a probability.

    Over problems if the population key is significant; else over the samples of these problems.
    """
    if ruling.p_population <= KEY_LEVEL * seen.spent:
        change_G = by_cluster(mean_changes(seen.window, [k]), seen.cluster_P)[:, 0]
        return float(np.sqrt((len(change_G) - 1) * change_G.var(ddof=1) + 1.0) / len(change_G))
    variance = sum(
        float(within_problem_variance_table(n, [k])[counts_P].sum()) if n > 1 else 0.25 * len(counts_P)
        for n, counts_P in ((seen.total.n_base, seen.total.base_P), (seen.total.n_late, seen.total.late_P))
    )
    return max(np.sqrt(variance), 1e-6) / seen.total.n_problems


def size_given_label(change: float, error: float) -> float:
    """Return a change of pass@k that was called a loss, corrected for this selection.

    It is shrunk by z² / (z² + 1). Only clear falls are called a loss, and the largest of several k is printed, so sizes
    look larger than they are, the more so the closer they are to their standard error ``error``.
    ``benchmarks/calibration/real_life.py`` measures the remaining bias. (A normal distribution truncated at the point
    where the keys detect a fall would subtract too much: 2 of 5 points.)

    Source: Thompson 1968 (J. Am. Stat. Assoc. 63:113).

    >>> round(size_given_label(-0.10, 0.01), 4), round(size_given_label(-0.05, 0.02), 4)
    (-0.099, -0.0431)
    """
    return change / (1.0 + (error / change) ** 2) if change else 0.0
