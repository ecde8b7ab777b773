"""The rule that turns counts into a label. It was fixed before looking at any series.

``benchmarks/calibration.py`` simulates how often it cries wolf and what it misses; its results are committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Int
from scipy.stats import t as student_t

from diagnostics.statistics.clusters import by_cluster
from diagnostics.statistics.keys import (
    EXACT_DRAWS,
    POPULATION_DRAWS,
    PairedCounts,
    exact_key,
    mean_changes,
    population_key,
)
from diagnostics.verdict.explanations import Unread, guessing_p, read_alone
from diagnostics.verdict.steps import StepRuling, rule_steps

#: over_sharpened       both keys: on these problems and on problems like these
#: over_sharpened_here  the exact key alone: on these problems
#: degraded             a key, but pass@1 surely fell too: the model got worse, not only narrower
#: format               a key, but what could be read of the samples does not show it
#: guessing             a key, but wrong answers that were accepted at the base would explain it
#: mode_collapse        pass@k holds, correct responses outside the dominant mode are lost
#: lost_at_steps        nothing of this in the window as a whole, but at checkpoints of it
#: no_loss              pass@k fell by no more than ``MARGIN`` at any k
Label = Literal[
    "over_sharpened",
    "over_sharpened_here",
    "degraded",
    "format",
    "guessing",
    "mode_collapse",
    "lost_at_steps",
    "no_loss",
    "inconclusive",
]

#: Both keys, the minority channel, and single checkpoints. Together they cry wolf in less than 4.5 % of series without
#: a loss: far enough below 5 % for a simulation to show it.
KEY_LEVEL, MINORITY_LEVEL, STEP_LEVEL = 0.03, 0.005, 0.005
#: What else explains a loss stands unless the data speak against it at this level.
EXPLAINED_LEVEL = 0.01
#: A fall of pass@k that is too small to matter, in probability, and how sure one must be that it is no larger.
MARGIN, MARGIN_CONFIDENCE = 0.02, 0.95
#: A rate of cut-off, unread or timed-out samples that rose by more than this (probability) may pass for lost modes.
NOTABLE_RISE = 0.01
#: Least draws for every unit of a level: p values must be finer than what they are held against. More than the most
#: would take minutes; then the smallest p value there is may lie above the level, and no loss is found.
_DRAWS_PER_LEVEL, _MOST_DRAWS = 18, 50_000


@dataclass(frozen=True, kw_only=True)
class SeenCounts:
    """What the rule looks at.

    ``total`` counts correct samples, those of the late checkpoints pooled; ``window`` are the same checkpoints one by
    one, which say how far pass@k fell; ``steps`` are all checkpoints, the last of them the window, looked at for
    ``step_ks``. ``minority`` counts,
    pooled too, correct samples outside the mode that dominated an independent half of the base's samples. ``unread``
    are samples that count as wrong for their form, None where that is unknown. ``guess_share`` of wrong responses may
    be accepted; ``cluster_P`` says which problems are related. ``spent`` is the part of all levels that this look may
    use: 1 where a verdict is read once, of one run.
    """

    total: PairedCounts
    window: Sequence[PairedCounts]
    steps: Sequence[PairedCounts]
    ks: Sequence[int]
    step_ks: Sequence[int]
    minority: PairedCounts | None = None
    minority_ks: Sequence[int] = ()
    unread: Unread | None = None
    guess_share: float = 0.0
    cluster_P: Int[np.ndarray, " problem"] | None = None
    spent: float = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Ruling:
    """The label and what it rests on; ``p_minority`` is None where no problem shows its modes.

    ``p_read`` is the exact key's over read samples alone, ``p_guessing`` that of accepted guesses; None where there was
    nothing to explain. ``steps`` is empty where nothing can be said of single checkpoints.
    """

    label: Label
    p_exact: float
    p_population: float
    p_minority: float | None
    #: The least lower bound of the change of pass@k over k, one-sided; None for a single problem.
    least_change: float | None
    #: p value of a fall by ``MARGIN`` or more at some k; None for a single problem.
    p_no_loss: float | None = None
    #: The highest the change of pass@1 may be, one-sided; None for a single problem.
    first_most: float | None = None
    p_read: float | None = None
    p_guessing: float | None = None
    steps: tuple[StepRuling, ...] = ()
    modes_collapsed: bool = False


def spent_share(*, number: int, declared: int | None, runs: int) -> float:
    """The part of the levels that look ``number`` (from 1) may use, so that all looks together stay below them.

    Declared looks share evenly, an unknown number as 1 / (j (j + 1)), which adds up to 1; looks beyond the declared
    number too. Runs of which one is chosen share once more. By the union bound this holds at any stopping time.

    >>> [spent_share(number=j, declared=None, runs=1) for j in (1, 2, 3)]
    [0.5, 0.16666666666666666, 0.08333333333333333]
    >>> spent_share(number=2, declared=10, runs=2)
    0.05
    """
    if declared is not None and number <= declared:
        return 1.0 / (declared * runs)
    return 1.0 / (number * (number + 1) * runs)


def draws_for(level: float) -> int:
    """Draws that make p values fine enough to be held against ``level``."""
    return min(_MOST_DRAWS, max(EXACT_DRAWS, int(_DRAWS_PER_LEVEL / level)))


def rule(seen: SeenCounts, *, rng: np.random.Generator) -> Ruling:
    """The label of a series from its counts. Raises ``ValueError`` without a problem or for a k above the samples.

    >>> half = np.full(200, 128)
    >>> same = PairedCounts(base_P=half, late_P=half, n_base=256, n_late=256)
    >>> seen = SeenCounts(total=same, window=[same], steps=[same], ks=[1, 8, 64], step_ks=[1, 8, 64])
    >>> rule(seen, rng=np.random.default_rng(0)).label
    'no_loss'
    """
    if seen.total.n_problems == 0:
        raise ValueError("a verdict needs at least one problem")
    key_level, minority_level = KEY_LEVEL * seen.spent, MINORITY_LEVEL * seen.spent
    p_exact = exact_key(seen.total, ks=seen.ks, rng=rng, draws=draws_for(key_level))
    positive = p_exact <= key_level
    # the second key decides nothing where the first does not turn: it is told, and need not be finer than usual
    draws = max(POPULATION_DRAWS, draws_for(key_level)) if positive else POPULATION_DRAWS
    p_population = population_key(seen.total, ks=seen.ks, rng=rng, draws=draws, cluster_P=seen.cluster_P)
    p_minority = None
    if seen.minority is not None and seen.minority.n_problems and seen.minority_ks:
        p_minority = exact_key(seen.minority, ks=seen.minority_ks, rng=rng, draws=draws_for(minority_level))
    least_change, first_most, p_no_loss = _bounds(seen)
    collapsed = p_minority is not None and p_minority <= minority_level
    steps = rule_steps(
        seen.steps,
        ks=seen.step_ks,
        level=STEP_LEVEL * seen.spent,
        exact_level=KEY_LEVEL,
        margin=MARGIN,
        rng=rng,
        cluster_P=seen.cluster_P,
    )
    lost_late = [pair for pair, step in zip(seen.window, steps[-len(seen.window) :], strict=False) if step.lost]
    p_read = _p_read(seen, rng) if positive or lost_late else None
    p_guessing = None
    if positive or lost_late:
        p_guessing = _p_guessing(seen.total if positive else lost_late[0], seen.ks, seen.guess_share, rng)
    elif collapsed and seen.minority is not None:
        p_guessing = _p_guessing(seen.minority, seen.minority_ks, seen.guess_share, rng)
    label: Label = "inconclusive"
    if p_read is not None and p_read > EXPLAINED_LEVEL:
        label = "format"
    elif p_guessing is not None and p_guessing > EXPLAINED_LEVEL:
        label = "guessing"
    elif positive and first_most is not None and first_most < 0:
        label = "degraded"
    elif positive:
        label = "over_sharpened" if p_population <= key_level else "over_sharpened_here"
    elif collapsed:
        label = "mode_collapse"
    elif lost_late:
        label = "lost_at_steps"
    elif least_change is not None and least_change > -MARGIN:
        label = "no_loss"
    return Ruling(
        label=label,
        p_exact=p_exact,
        p_population=p_population,
        p_minority=p_minority,
        least_change=least_change,
        p_no_loss=p_no_loss,
        first_most=first_most,
        p_read=p_read,
        p_guessing=p_guessing,
        steps=steps,
        modes_collapsed=collapsed,
    )


def _p_read(seen: SeenCounts, rng: np.random.Generator) -> float | None:
    """The exact key's p value over read samples alone; None where not notably more of them went unread."""
    if seen.unread is None or seen.unread.rise(seen.total) <= NOTABLE_RISE:
        return None
    read = read_alone(seen.total, seen.unread, rng=rng)
    return exact_key(read, ks=[k for k in seen.ks if k == 1 or 2 * k <= min(read.n_base, read.n_late)], rng=rng)


def _p_guessing(counts: PairedCounts, ks: Sequence[int], share: float, rng: np.random.Generator) -> float | None:
    """p value of accepted guesses as the cause of what was found; None where none are accepted."""
    return guessing_p(counts, share=share, ks=ks, rng=rng) if share > 0 else None


def _bounds(seen: SeenCounts) -> tuple[float | None, float | None, float | None]:
    """Bounds of changes, one-sided each: the least lower one over k, the upper one of pass@1.

    Then the p value of a fall by ``MARGIN`` or more at some k, the largest over k.
    """
    change_GK = by_cluster(mean_changes(seen.window, seen.ks), seen.cluster_P)
    n_units = len(change_GK)
    if n_units < 2:
        return None, None, None
    mean_K = change_GK.mean(axis=0)
    error_K = np.sqrt((n_units - 1) * change_GK.var(axis=0, ddof=1) + 1.0) / n_units
    reach_K = student_t.ppf(MARGIN_CONFIDENCE, n_units - 1) * error_K
    p_K = student_t.sf((mean_K + MARGIN) / error_K, n_units - 1)
    return float((mean_K - reach_K).min()), float(mean_K[0] + reach_K[0]), float(p_K.max())
