"""Tests of single checkpoints: which lost pass@k, and which kept it.

All checkpoints and all k are tested together, so forty checkpoints cause no more false alarms than one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int
from scipy.special import ndtri, stdtrit

from oversharp.diagnostics.statistics.band import draw_null, stepped_down
from oversharp.diagnostics.statistics.intervals import share_interval
from oversharp.diagnostics.statistics.keys import PairedCounts, checkpoint_keys, draws_for, exact_key
from oversharp.diagnostics.statistics.problem_changes import mcnemar_p
from oversharp.diagnostics.statistics.units import by_cluster

#: The bootstrap's draws are scaled so that this quantile of the normal distribution becomes that of Student's t.
#: Smallest and largest number of draws. The largest is enough for levels down to 1e-4, and takes hundreds of megabytes
#: with forty checkpoints. The smallest is enough if no p value is below ``_NEAR``.
_STRETCHED_AT, _LEAST_DRAWS, _MOST_DRAWS, _NEAR = 0.99, 1_999, 19_999, 0.02
#: Draws of the exact test of one checkpoint. Its p value is only compared with the level, so few are enough.
_EXACT_DRAWS = 199
#: Variance floor of ``share_interval`` for changes of yes-no properties.
_FLOOR = 2.0


@dataclass(frozen=True, kw_only=True)
class StepRuling:
    """Result of one checkpoint: lost, kept, or neither. Changes are probabilities.

    Attributes:
        lost_here: Whether pass@k of these problems fell significantly.
        lost: Whether it also fell significantly in the population that the problems were sampled from.
        kept: Whether pass@k fell by less than the margin at every k.
        p_here: p value for these problems, adjusted for all checkpoints; the smaller one of both tests.
        p: p value for the population, adjusted for all checkpoints.
        k: The k with the lowest change of pass@k relative to its standard error over problems.
        change: Change of pass@k at ``k``. Its bounds ``low`` and ``high`` are for the population, and simultaneous over
            all checkpoints and k.
    """

    lost_here: bool
    lost: bool
    kept: bool
    p_here: float
    p: float
    k: int
    change: float
    low: float
    high: float


def rule_steps(
    steps: Sequence[PairedCounts],
    *,
    ks: Sequence[int],
    level: float,
    exact_level: float,
    margin: float,
    rng: np.random.Generator,
    cluster_P: Int[np.ndarray, " problem"] | None = None,
    confidence: float = 0.95,
) -> tuple[StepRuling, ...]:
    """Return the result of each checkpoint, in the order of ``steps``; empty with fewer than two problems or clusters.

    - Lost: pass@k fell in the population that these problems were sampled from. The step-down test of the largest
      studentised fall over all checkpoints and k is significant at ``level`` (familywise error rate), and ``exact_key``
      of this checkpoint is significant at ``exact_level``.
    - Lost here: either that, or pass@k of these problems fell. ``checkpoint_keys``, which covers all checkpoints and k,
      is significant at ``level``, and so is ``exact_key`` at ``exact_level``.
    - Kept: the simultaneous one-sided lower bound of the change is above −``margin`` at every k.

    Source: Romano and Wolf 2005 (Econometrica 73:1237), step-down of the largest statistic.
    """
    change_GTK = by_cluster(np.stack([one.changes(ks) for one in steps], axis=1), cluster_P)
    n_units, n_steps, n_ks = change_GTK.shape
    if n_units < 2:
        return ()
    mean_TK = change_GTK.mean(axis=0)
    scale_TK = np.sqrt(((change_GTK - mean_TK) ** 2).sum(axis=0) + 1.0)
    studentised_GX, floor_X = ((change_GTK - mean_TK) / scale_TK).reshape(n_units, -1), 1.0 / scale_TK.reshape(-1)
    stretch = stdtrit(n_units - 1, _STRETCHED_AT) / ndtri(_STRETCHED_AT)
    fall_TK, no_floor_X = -mean_TK * n_units / scale_TK, np.zeros_like(floor_X)
    for draws in sorted({_LEAST_DRAWS, min(_MOST_DRAWS, max(_LEAST_DRAWS, int(2 / level)))}):
        null_DX = stretch * np.concatenate(list(draw_null(studentised_GX, no_floor_X, rng=rng, draws=draws)))
        null_DTK = null_DX.reshape(draws, n_steps, n_ks)
        p_T = stepped_down(fall_TK.max(axis=1), null_DTK.max(axis=2))
        if p_T.min() > max(_NEAR, level):
            break
    error_TK = scale_TK / n_units
    # bounds have a variance floor, so their draws need it too; the test is valid without it, and has more power
    wide_DX = null_DX + stretch * rng.standard_normal(len(null_DX))[:, None] * floor_X
    # if all problems change alike, the spread is 0: use at least the critical value of a single test
    one_sided = max(float(np.quantile(wide_DX.max(axis=1), confidence)), float(stdtrit(n_units - 1, confidence)))
    two_sided = max(
        float(np.quantile(np.abs(wide_DX).max(axis=1), confidence)),
        float(stdtrit(n_units - 1, (1 + confidence) / 2)),
    )
    kept_T = (mean_TK - one_sided * error_TK > -margin).all(axis=1)
    # the population test also detects falls of a few problems that all fall; it causes almost no more false alarms
    p_here_T = np.minimum(p_T, checkpoint_keys(steps, ks=ks, rng=rng, draws=draws_for(level)))
    lost_here_T = [
        bool(p <= level) and exact_key(one, ks=ks, rng=rng, draws=_EXACT_DRAWS) <= exact_level
        for p, one in zip(p_here_T, steps, strict=True)
    ]
    return tuple(
        StepRuling(
            lost_here=lost_here_T[t],
            lost=lost_here_T[t] and bool(p_T[t] <= level),
            kept=bool(kept_T[t]),
            p_here=float(p_here_T[t]),
            p=float(p_T[t]),
            k=ks[worst],
            change=float(mean_TK[t, worst]),
            low=float(max(-1.0, mean_TK[t, worst] - two_sided * error_TK[t, worst])),
            high=float(min(1.0, mean_TK[t, worst] + two_sided * error_TK[t, worst])),
        )
        for t, worst in enumerate(fall_TK.argmax(axis=1).tolist())
    )


def ranges(lost_T: Bool[np.ndarray, " step"] | Sequence[bool], steps_T: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Merge neighbouring lost checkpoints to ranges of steps (first, last).

    >>> ranges([False, True, True, False, True], [10, 20, 30, 40, 50])
    ((20, 30), (50, 50))
    """
    merged: list[tuple[int, int]] = []
    before = False
    for lost, step in zip(lost_T, steps_T, strict=True):
        if lost:
            merged.append((merged.pop()[0], step) if before else (step, step))
        before = bool(lost)
    return tuple(merged)


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """Accuracy of a checkpoint with one response per problem, ``greedy`` or sampled.

    The other fields compare it with the base and are None at the base. ``n_lost`` and ``n_gained`` count problems.
    ``low`` and ``high`` bound the change of accuracy (probability, 95 %). ``p`` is two-sided, by McNemar's exact test,
    not corrected for other checkpoints, and None with clusters.
    """

    step: int
    checkpoint: str
    n_problems: int
    n_correct: int
    greedy: bool
    n_lost: int | None = None
    n_gained: int | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None

    @property
    def share(self) -> float:
        """Accuracy, a probability."""
        return self.n_correct / self.n_problems

    @property
    def change(self) -> float | None:
        """Change of accuracy since the base (probability); None at the base."""
        if self.n_gained is None or self.n_lost is None:
            return None
        return (self.n_gained - self.n_lost) / self.n_problems


def accuracy_of(
    base_P: Int[np.ndarray, " problem"],
    late_P: Int[np.ndarray, " problem"],
    *,
    step: int,
    checkpoint: str,
    greedy: bool,
    cluster_P: Int[np.ndarray, " problem"] | None = None,
) -> Accuracy:
    """Return the accuracy of a checkpoint relative to the base.

    ``base_P`` and ``late_P`` are 1 for a correct response and 0 for a wrong one.

    >>> base_P, late_P = np.array([1, 1, 0, 0, 0, 0, 0]), np.array([0, 1, 1, 1, 1, 1, 1])
    >>> accuracy = accuracy_of(base_P, late_P, step=20, checkpoint="step 20", greedy=True)
    >>> accuracy.n_lost, accuracy.n_gained, accuracy.p  # 2 · (C(6, 0) + C(6, 1)) / 2^6
    (1, 5, 0.21875)
    """
    change_P = (late_P - base_P).astype(np.float64)
    change = share_interval(change_P, bounds=(-1.0, 1.0), floor=_FLOOR, cluster_P=cluster_P)
    n_lost, n_gained = int((change_P < 0).sum()), int((change_P > 0).sum())
    return Accuracy(
        step=step,
        checkpoint=checkpoint,
        n_problems=len(late_P),
        n_correct=int(late_P.sum()),
        greedy=greedy,
        n_lost=n_lost,
        n_gained=n_gained,
        low=change.low,
        high=change.high,
        p=mcnemar_p(n_lost, n_gained) if cluster_P is None else None,
    )
