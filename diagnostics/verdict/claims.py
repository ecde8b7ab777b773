"""Claims of a verdict: null hypothesis, p value, size, and other explanations. Corrected sizes of a fall."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from oversharp.diagnostics.statistics.keys import PairedCounts
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table
from oversharp.diagnostics.statistics.stopping import draw_codes
from oversharp.diagnostics.verdict.causes.explanations import CAUSES
from oversharp.diagnostics.verdict.results import Claim, Estimate
from oversharp.diagnostics.verdict.rule import (
    KEY_LEVEL,
    MARGIN,
    MARGIN_CONFIDENCE,
    MINORITY_LEVEL,
    STEP_LEVEL,
    LossTable,
)

#: Scopes of claims. The population is that from which the problems were sampled.
HERE, POPULATION = "these problems", "population"
#: Names of claims that other modules use.
FELL_HERE, FELL, A_CHECKPOINT = "pass@k fell here", "pass@k fell", "a checkpoint lost"
#: Claims whose size is a share of problems, or a bound, instead of a change of pass@k.
SOME_LOST, NO_FALL = "some problem lost", "no fall that matters"
#: Claim whose size is the change of pass@k if only correct samples outside the dominant mode count.
MODES_LOST = "minority modes lost"
_TAIL = "pass@k fell in the tail"
_FEW_UNITS = "fewer than two problems or clusters"
#: Reason for no conclusion from correlated samples.
DEPENDENT = "the samples of a problem are not independent"
#: Scope and null hypothesis of each claim, and the reason where it has no p value.
_CLAIMS: Mapping[str, tuple[str, str, str | None]] = {
    FELL_HERE: (HERE, "mean pass@k of these problems did not fall at any k", None),
    FELL: (POPULATION, "mean pass@k of the population did not fall at any k", None),
    MODES_LOST: (
        HERE,
        "correct responses outside each problem's dominant mode did not become rarer",
        "no problem has correct samples of a second mode",
    ),
    A_CHECKPOINT: (HERE, "mean pass@k of these problems did not fall at any checkpoint and k", _FEW_UNITS),
    SOME_LOST: (HERE, "no problem's success rate fell", None),
    _TAIL: (
        HERE,
        "mean pass@k of these problems did not fall at any k above {k}",
        "k can be at most half of the pooled samples, and the verdict covers these k already",
    ),
    NO_FALL: (
        POPULATION,
        f"mean pass@k of the population fell by {100 * MARGIN:.0f} points or more at some k",
        _FEW_UNITS,
    ),
}
#: Random draws of the base's remaining correct samples if every problem loses the same share.
_THINNINGS = 20


def claims_of(table: LossTable) -> Iterator[Claim]:
    """Yield all claims, those that decide the label first."""
    window, modes, sizes, otherwise = table.window, table.modes, table.sizes, _otherwise(table)
    key_level = KEY_LEVEL * table.spent
    size = Estimate(value=window.change, low=window.low, high=window.high)
    yield _claim(table, FELL_HERE, key_level, window.p_exact, replace(size, low=None, high=None), otherwise)
    yield _claim(table, FELL, key_level, window.p_population, size, otherwise)
    p_modes = None if modes is None else modes.p_exact
    of_modes = None if modes is None else Estimate(value=modes.change, low=None, high=None)
    yield _claim(table, MODES_LOST, MINORITY_LEVEL * table.spent, p_modes, of_modes, otherwise)
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
    """Return a claim. It holds if it is significant and its scope allows inference.

    A fall in the population must also be significant by the exact test for these problems.
    """
    scope, null, untested = _CLAIMS[name]
    why = table.limits.few if scope == POPULATION or name == A_CHECKPOINT else None
    why = why if table.limits.dependence is None else DEPENDENT
    is_significant = table.window.kept if name == NO_FALL else p is not None and p <= level
    if why is None and name == FELL and is_significant and not table.window.fell:
        why = "the exact test for these problems is not significant"
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
    """Return the other explanations that the data do not exclude, for the window or for single checkpoints.

    Those of checkpoints are also returned for the window, unless it fell and no other explanation applies.
    """
    causes = {row.cause for row in table.checkpoints}
    if not of_checkpoints:
        pooled = {row.cause for row in (table.window, table.modes) if row is not None}
        causes = pooled if table.window.is_unexplained else pooled | causes
    open_causes = []
    if "guessing" in causes:
        open_causes.append(CAUSES["guessing"])
    if causes & {"format", "unread"}:
        open_causes.append("samples that were truncated, unparsed, or timed out in grading")
    if not table.knows_unread:
        open_causes.append("truncated samples, whose number is unknown")
    if not table.limits.knows_temperature:
        open_causes.append("a lower sampling temperature than the base's (the temperature is not recorded)")
    return tuple(open_causes)


def size_given_label(change: float, error: float) -> float:
    """Return the change of pass@k of a reported loss, corrected for selection bias.

    Only significant falls are reported, at the k with the largest fall, so their size is too large on average. The
    change is multiplied by z² / (z² + 1), where z is the change divided by its standard error ``error``.
    ``benchmarks/calibration/real_life.py`` measures the remaining bias. A normal distribution truncated at the critical
    value of the tests would subtract too much: 2 of 5 points.

    Source: Thompson 1968 (J. Am. Stat. Assoc. 63:113).

    >>> round(size_given_label(-0.10, 0.01), 4), round(size_given_label(-0.05, 0.02), 4)
    (-0.099, -0.0431)
    """
    return change / (1.0 + (error / change) ** 2) if change else 0.0


def share_of_even_loss(counts: PairedCounts, *, k: int, rng: np.random.Generator) -> float | None:
    """Return the share of the fall of pass@k that an equal loss on every problem explains.

    Each problem loses the same share of its correct base samples, the relative fall of pass@1. These samples are
    removed at random, and the fall of pass@k is averaged over some draws. None if pass@1 or pass@k did not fall, and at
    k = 1, where every distribution of the loss has the same effect.
    """
    if k == 1:
        return None
    rate_base = float(counts.base_pass_at_k([1]).mean())
    change_K = counts.changes([1, k]).mean(axis=0)
    if change_K.max() > -1e-12:  # rounding
        return None
    kept, table_C = 1.0 + float(change_K[0]) / rate_base, pass_at_k_table(counts.n_base, [k])[:, 0]
    if counts.is_stopped:
        rates = counts.base_pass_at_k([1])[:, 0]
        before_DP, thinned_DP = (
            draw_codes(counts.n_base, rate * rates, rng=rng, draws=_THINNINGS) for rate in (1.0, kept)
        )
    else:
        before_DP, thinned_DP = counts.base_P, rng.binomial(counts.base_P, kept, size=(_THINNINGS, counts.n_problems))
    even = float(table_C[before_DP].mean() - table_C[thinned_DP].mean())
    fall = -float(change_K[1])
    return float(np.clip(even / fall, 0.0, 1.0))
