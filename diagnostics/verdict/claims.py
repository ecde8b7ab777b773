"""Claims of a verdict: null hypothesis, p value, size, and other explanations. Sizes of a fall."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from oversharp.diagnostics.statistics.keys import PairedCounts
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table
from oversharp.diagnostics.verdict.explanations import CAUSES
from oversharp.diagnostics.verdict.record import Claim, Estimate
from oversharp.diagnostics.verdict.rule import (
    KEY_LEVEL,
    MARGIN,
    MARGIN_CONFIDENCE,
    MINORITY_LEVEL,
    STEP_LEVEL,
    LossTable,
)

HERE, LIKE_THESE = "these problems", "problems like these"
#: Names of the claims that sentences use.
FELL_HERE, FELL, A_CHECKPOINT = "pass@k fell here", "pass@k fell", "a checkpoint lost"
#: Claims whose size is not a change of pass@k but a share of problems, or a bound.
SOME_LOST, NO_FALL = "some problem lost", "no fall that matters"
_MODES_LOST, _TAIL = "minority modes lost", "pass@k fell in the tail"
_FEW_UNITS = "fewer than two problems or clusters"
#: Reason for no conclusion from correlated samples.
DEPENDENT = "the samples of a problem are not independent"
#: Scope and null hypothesis of each claim, and the reason where it has no p value.
_CLAIMS: Mapping[str, tuple[str, str, str | None]] = {
    FELL_HERE: (HERE, "the mean pass@k of these problems fell at no k", None),
    FELL: (LIKE_THESE, "over problems like these, pass@k fell at no k", None),
    _MODES_LOST: (
        HERE,
        "correct responses outside each problem's dominant mode became rarer at no k",
        "no problem shows a second correct mode",
    ),
    A_CHECKPOINT: (HERE, "the mean pass@k of these problems fell at no k of any checkpoint", _FEW_UNITS),
    SOME_LOST: (HERE, "no problem's success rate fell", None),
    _TAIL: (
        HERE,
        "the mean pass@k of these problems fell at no k above {k}",
        "no k above those of the verdict is within half of the pooled samples",
    ),
    NO_FALL: (
        LIKE_THESE,
        f"over problems like these, pass@k fell by {100 * MARGIN:.0f} points or more at some k",
        _FEW_UNITS,
    ),
}
#: Draws of the base's remaining hits if every problem loses the same share.
_THINNINGS = 20


def claims_of(table: LossTable) -> Iterator[Claim]:
    """Yield all claims, those that decide the label first."""
    window, modes, sizes, otherwise = table.window, table.modes, table.sizes, _otherwise(table)
    key_level = KEY_LEVEL * table.spent
    size = Estimate(value=window.change, low=window.low, high=window.high)
    yield _claim(table, FELL_HERE, key_level, window.p_exact, replace(size, low=None, high=None), otherwise)
    yield _claim(table, FELL, key_level, window.p_population, size, otherwise)
    p_modes = None if modes is None else modes.p_exact
    yield _claim(table, _MODES_LOST, MINORITY_LEVEL * table.spent, p_modes, None, otherwise)
    p = min((row.p_exact for row in table.checkpoints if row.p_exact is not None), default=None)
    yield _claim(table, A_CHECKPOINT, STEP_LEVEL * table.spent, p, None, _otherwise(table, of_checkpoints=True))
    share = Estimate(value=sizes.share_lost, low=None, high=None)
    yield _claim(table, SOME_LOST, key_level, sizes.p_problem, share, otherwise)
    yield _claim(table, _TAIL, key_level, table.p_tail, None, otherwise)
    least = None if sizes.least_change is None else Estimate(value=None, low=sizes.least_change, high=None)
    # 1 - 0.95 is not exactly 0.05
    yield _claim(table, NO_FALL, round(1 - MARGIN_CONFIDENCE, 12), sizes.p_no_loss, least)


def _claim(
    table: LossTable, name: str, level: float, p: float | None, size: Estimate | None, otherwise: tuple[str, ...] = ()
) -> Claim:
    """Return a claim; it holds if it is significant, unless its scope allows no inference.

    A fall on the population needs the exact test of these problems too.
    """
    scope, null, untested = _CLAIMS[name]
    why = table.limits.few if scope == LIKE_THESE or name == A_CHECKPOINT else None
    why = why if table.limits.dependence is None else DEPENDENT
    is_significant = table.window.kept if name == NO_FALL else p is not None and p <= level
    if why is None and name == FELL and is_significant and not table.window.fell:
        why = "these very problems do not show it"
    holds = p is not None and is_significant and why is None
    return Claim(
        name=name,
        null=null.format(k=table.ks[-1]),
        scope=scope,
        level=level,
        holds=holds,
        p=p,
        size=size,
        otherwise=otherwise if holds else (),
        why=untested if p is None else why,
    )


def _otherwise(table: LossTable, *, of_checkpoints: bool = False) -> tuple[str, ...]:
    """Return the causes that these data leave open, for the window or for single checkpoints.

    Those of checkpoints count for the window too, unless it fell and nothing explains that.
    """
    causes = {row.cause for row in table.checkpoints}
    if not of_checkpoints:
        pooled = {row.cause for row in (table.window, table.modes) if row is not None}
        causes = pooled if table.window.is_unexplained else pooled | causes
    open_causes = []
    if "guessing" in causes:
        open_causes.append(CAUSES["guessing"])
    if causes & {"format", "unread"}:
        open_causes.append("samples that were cut off, not parsed or out of the grader's time")
    if not table.knows_unread:
        open_causes.append("cut-off samples: nobody knows how they ended")
    return tuple(open_causes)


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


def share_of_even_loss(counts: PairedCounts, *, k: int, rng: np.random.Generator) -> float | None:
    """Return the part of the fall of pass@k from losing the same share of hits on every problem.

    That share is the fall of pass@1. The base's hits are thinned by it (mean over some draws), and the resulting loss
    of pass@k does not come from forgetting single problems. None where pass@1 or pass@k did not fall, and at k = 1,
    where any loss has the same effect.
    """
    if k == 1:
        return None
    rate_base, rate_late = counts.base_P.mean() / counts.n_base, counts.late_P.mean() / counts.n_late
    fall = -float(counts.changes([k]).mean())
    if rate_late >= rate_base or fall <= 0:
        return None
    thinned_DP = rng.binomial(counts.base_P, rate_late / rate_base, size=(_THINNINGS, counts.n_problems))
    table_C = pass_at_k_table(counts.n_base, [k])[:, 0]
    even = float(table_C[counts.base_P].mean() - table_C[thinned_DP].mean())
    return float(np.clip(even / fall, 0.0, 1.0))
