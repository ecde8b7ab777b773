"""Success of every problem at the base and at the last checkpoint, and which problems are worth reading. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import lgamma
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.stats import beta

from diagnostics.statistics.confirmation import fisher_fell, holm
from reports.evidence.source import SeriesSource, Source

State = Literal["lost", "fell", "unchanged", "rose", "gained"]
#: In the order of the change.
STATES: tuple[State, ...] = ("lost", "fell", "unchanged", "rose", "gained")
SHOWN_CASES = 16
#: Below this adjusted p-value the counts of one draw show that a problem was lost.
SURE = 0.05
_SHARE_CONFIRMED, _SHARE_FALLEN = 0.5, 0.7  # of the shown ones; of what confirmed ones leave


def problem_changes(source: Source, series: SeriesSource, late_step: int | None = None) -> pd.DataFrame:
    """One row per problem, largest fall first, from the base to ``late_step`` (default: the last one with samples).

    Columns: ``problem_id, n_base, c_base, n_late, c_late``; success ``base``, ``late`` and their ``change``
    (probabilities); ``state``; ``p`` and ``p_adjusted`` of a fall, see ``chance_of_fall``. Base and last
    checkpoint have as many samples of a problem.
    """
    counts = source.problem_counts[source.problem_counts["series"] == series.name]
    base = counts[counts["step"] == series.base_step].set_index("problem_id")
    late_step = series.last_step if late_step is None else late_step
    late = counts[counts["step"] == late_step].set_index("problem_id")
    both = pd.DataFrame(
        {"n_base": base["n"], "c_base": base["n_correct"], "n_late": late["n"], "c_late": late["n_correct"]}
    ).dropna()
    both["base"] = both["c_base"] / both["n_base"]
    both["late"] = both["c_late"] / both["n_late"]
    both["change"] = both["late"] - both["base"]
    both["state"] = np.select(
        [
            (both["c_base"] > 0) & (both["c_late"] == 0),
            (both["c_base"] == 0) & (both["c_late"] > 0),
            both["change"] < 0,
            both["change"] > 0,
        ],
        ["lost", "gained", "fell", "rose"],
        "unchanged",
    )
    both["p"], both["p_adjusted"] = chance_of_fall(both)
    return both.reset_index().sort_values(["change", "problem_id"], kind="stable").reset_index(drop=True)


def chance_of_fall(changes: pd.DataFrame) -> tuple[Float[np.ndarray, " problem"], Float[np.ndarray, " problem"]]:
    """How likely so few correct samples late are if nothing changed: p of every problem by itself, and adjusted.

    Fisher's exact test, one-sided: the hits of both sides, dealt at random. Adjusted by Holm's method over all problems
    that the base solved; 1 for the others, which cannot fall.

    >>> rows = pd.DataFrame({"n_base": [8, 8, 8], "c_base": [8, 1, 0], "n_late": [8, 8, 8], "c_late": [0, 0, 8]})
    >>> [values.round(4).tolist() for values in chance_of_fall(rows)]
    [[0.0001, 0.5, 1.0], [0.0002, 0.5, 1.0]]
    """
    correct_base_P, n_base_P, correct_late_P, n_late_P = (
        changes[name].to_numpy(dtype=np.int64) for name in ("c_base", "n_base", "c_late", "n_late")
    )
    p_P = fisher_fell(correct_base_P, n_base_P, correct_late_P, n_late_P)
    solved_P = correct_base_P > 0
    adjusted_P = np.ones(len(p_P))
    adjusted_P[solved_P] = holm(p_P[solved_P])
    return p_P, adjusted_P


def between(source: Source, series: SeriesSource) -> pd.DataFrame:
    """What happened on the way, by ``problem_id``: a problem that is lost at last may have been solved often before.

    Columns: ``step, n, n_correct`` of the checkpoint between base and last that solved it most often, NULL where there
    is none between; ``none_at``, the steps after the base, the last too, without a correct sample.
    """
    own = source.problem_counts[source.problem_counts["series"] == series.name]
    own = own[(own["step"] != series.base_step) & (own["step"] <= series.last_step)]
    none_at = own[own["n_correct"] == 0].groupby("problem_id")["step"].agg(lambda steps: tuple(sorted(map(int, steps))))
    inner = own[own["step"] != series.last_step]
    inner = inner.assign(share=inner["n_correct"] / inner["n"])
    most = inner.sort_values(["share", "step"], ascending=[False, True], kind="stable").groupby("problem_id").first()
    ids = pd.Index(sorted(own["problem_id"].unique()), name="problem_id")
    return most[["step", "n", "n_correct"]].reindex(ids).assign(none_at=none_at.reindex(ids))


def lost_by_chance(changes: pd.DataFrame) -> float:
    """Problems that lose every correct sample if nothing changed: the same hits, dealt to both sides at random.

    Of m hits among n_base + n_late samples all fall to the base with probability C(n_base, m) / C(n_base + n_late, m).
    With equal n as many are gained.

    >>> one = pd.DataFrame({"n_base": [8], "c_base": [1], "n_late": [8], "c_late": [0]})
    >>> round(lost_by_chance(one), 6), round(lost_by_chance(pd.concat([one, one.assign(c_late=1)])), 4)
    (0.5, 0.7333)
    """
    total = 0.0
    hits = changes["c_base"] + changes["c_late"]
    for (n_base, n_late, m), times in changes.groupby(["n_base", "n_late", hits], sort=True).size().items():
        if 0 < m <= n_base:
            total += times * np.exp(_log_choose(n_base, m) - _log_choose(n_base + n_late, m))
    return float(total)


def _log_choose(n: float, k: float) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


def success_interval(
    correct_N: Int[np.ndarray, " n"], samples_N: Int[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Bounds of the 95 % interval of success from counts of one problem, exact for the binomial.

    Source: Clopper and Pearson, Biometrika 26 (1934).

    >>> low, high = success_interval(np.array([0, 4, 8]), np.array([8, 8, 8]))
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.0, 0.157, 0.631], [0.369, 0.843, 1.0])
    """
    missed_N = samples_N - correct_N
    low_N = np.where(correct_N > 0, beta.ppf(0.025, np.maximum(correct_N, 1), missed_N + 1), 0.0)
    high_N = np.where(missed_N > 0, beta.ppf(0.975, correct_N + 1, np.maximum(missed_N, 1)), 1.0)
    return low_N, high_N


def picked_problems(changes: Sequence[pd.DataFrame], confirmed: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Problems to read, at most ``SHOWN_CASES`` of all series, which take turns: confirmed ones, falls, gains.

    ``changes`` and ``confirmed`` (problem ids) are per series. Lost in any series comes before fallen.
    """

    def of(state: State) -> list[str]:
        """In any series, the largest changes first."""
        own = [[*frame.loc[frame["state"] == state, "problem_id"]] for frame in changes]
        return _taking_turns([ids[::-1] for ids in own] if state in ("gained", "rose") else own)

    first = _taking_turns(confirmed)[: int(SHOWN_CASES * _SHARE_CONFIRMED)]
    left = SHOWN_CASES - len(first)
    fallen = [one for one in dict.fromkeys([*of("lost"), *of("fell")]) if one not in first]
    gained_ids = [one for one in dict.fromkeys([*of("gained"), *of("rose")]) if one not in {*first, *fallen}]
    n_fallen = max(round(_SHARE_FALLEN * left), left - len(gained_ids))
    return tuple([*first, *fallen[:n_fallen], *gained_ids][:SHOWN_CASES])


def _taking_turns(lists: Sequence[Sequence[str]]) -> list[str]:
    """
    >>> _taking_turns([["a", "b"], ["a", "c", "d"]])
    ['a', 'b', 'c', 'd']
    """
    longest = max(map(len, lists), default=0)
    return list(dict.fromkeys(str(own[i]) for i in range(longest) for own in lists if i < len(own)))
