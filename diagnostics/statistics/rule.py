"""The rule that turns counts into a label. It was fixed before looking at any series.

``benchmarks/calibration.py`` simulates how often it cries wolf and what it misses; its results are committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.stats import t as student_t

from diagnostics.statistics.keys import PairedCounts, exact_key, mean_changes, population_key

#: over_sharpened       both keys: on these problems and on problems like these
#: over_sharpened_here  the exact key alone: on these problems
#: mode_collapse        pass@k holds, correct responses outside the dominant mode are lost
#: no_loss              pass@k fell by no more than ``MARGIN`` at any k
Label = Literal["over_sharpened", "over_sharpened_here", "mode_collapse", "no_loss", "inconclusive"]

#: Both keys, and the minority channel. Each test is exact, so that without a loss 3.5 % of series cry wolf: far enough
#: below 5 % for a simulation to show it.
KEY_LEVEL, MINORITY_LEVEL = 0.03, 0.005
#: A fall of pass@k that is too small to matter, in probability, and how sure one must be that it is no larger.
MARGIN, MARGIN_CONFIDENCE = 0.02, 0.95


@dataclass(frozen=True, kw_only=True, slots=True)
class Ruling:
    """The label and what it rests on; ``p_minority`` is None where no problem shows its modes."""

    label: Label
    p_exact: float
    p_population: float
    p_minority: float | None
    #: The least lower bound of the change of pass@k over k, one-sided; None for a single problem.
    least_change: float | None

    @property
    def modes_collapsed(self) -> bool:
        """Whether minority modes are lost, whatever the label says beside."""
        return self.p_minority is not None and self.p_minority <= MINORITY_LEVEL


def rule(
    total: PairedCounts,
    *,
    window: Sequence[PairedCounts],
    ks: Sequence[int],
    minority: PairedCounts | None,
    minority_ks: Sequence[int],
    rng: np.random.Generator,
) -> Ruling:
    """The label of a series from its counts.

    ``total`` counts correct samples, those of the late checkpoints pooled; ``window`` are the same checkpoints one by
    one, which say how far pass@k fell. ``minority`` counts, pooled too, correct samples outside the mode that dominated
    an independent half of the base's samples. Raises ``ValueError`` without a problem or for a k above the samples.

    >>> rng = np.random.default_rng(0)
    >>> half = np.full(200, 128)
    >>> same = PairedCounts(base_P=half, late_P=half, n_base=256, n_late=256)
    >>> rule(same, window=[same], ks=[1, 8, 64], minority=None, minority_ks=[], rng=rng).label
    'no_loss'
    """
    if total.n_problems == 0:
        raise ValueError("a verdict needs at least one problem")
    p_exact = exact_key(total, ks=ks, rng=rng)
    p_population = population_key(total, ks=ks, rng=rng)
    p_minority = None
    if minority is not None and minority.n_problems and minority_ks:
        p_minority = exact_key(minority, ks=minority_ks, rng=rng)
    least_change = _least_change(window, ks)
    label: Label = "inconclusive"
    if p_exact <= KEY_LEVEL:
        label = "over_sharpened" if p_population <= KEY_LEVEL else "over_sharpened_here"
    elif p_minority is not None and p_minority <= MINORITY_LEVEL:
        label = "mode_collapse"
    elif least_change is not None and least_change > -MARGIN:
        label = "no_loss"
    return Ruling(
        label=label, p_exact=p_exact, p_population=p_population, p_minority=p_minority, least_change=least_change
    )


def _least_change(window: Sequence[PairedCounts], ks: Sequence[int]) -> float | None:
    change_PK = mean_changes(window, ks)
    n_problems = len(change_PK)
    if n_problems < 2:
        return None
    error_K = np.sqrt((n_problems - 1) * change_PK.var(axis=0, ddof=1) + 1.0) / n_problems
    return float((change_PK.mean(axis=0) - student_t.ppf(MARGIN_CONFIDENCE, n_problems - 1) * error_K).min())
