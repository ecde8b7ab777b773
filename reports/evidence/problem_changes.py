"""Success rate of every problem at base and last checkpoint, and the choice of problems to show."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.stats import beta

from oversharp.diagnostics.statistics.problem_changes import ProblemCounts, State, change_p, problem_states
from oversharp.reports.evidence.source import SeriesSource, Source

SHOWN_CASES = 16
#: Maximum share of confirmed problems among all shown problems, and of fallen problems among the remaining ones.
_SHARE_CONFIRMED, _SHARE_FALLEN = 0.5, 0.7


def problem_changes(source: Source, series: SeriesSource, late_step: int | None = None) -> pd.DataFrame:
    """Return the change of every problem from the base to ``late_step``, largest fall first.

    ``late_step`` defaults to the last step with samples. Columns: ``problem_id``; samples ``n_base, n_late``; correct
    samples ``c_base, c_late``; success rates ``base``, ``late`` and their ``change`` (probabilities); ``state``;
    ``p_adjusted`` of the change (see ``change_p``), NULL if single problems of the series are not tested. Base and late
    step have the same number of samples of a problem.
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
    counts = problem_counts(both)
    both["state"] = problem_states(counts)
    both["p_adjusted"] = np.nan if series.why_untested else change_p(counts)
    return both.reset_index().sort_values(["change", "problem_id"], kind="stable").reset_index(drop=True)


def problem_counts(changes: pd.DataFrame) -> ProblemCounts:
    """Return the sample counts of these problems at the base and the late checkpoint."""
    return ProblemCounts(
        before_P=changes["c_base"].to_numpy(dtype=np.int64),
        n_before_P=changes["n_base"].to_numpy(dtype=np.int64),
        after_P=changes["c_late"].to_numpy(dtype=np.int64),
        n_after_P=changes["n_late"].to_numpy(dtype=np.int64),
    )


def intermediate_success(source: Source, series: SeriesSource) -> pd.DataFrame:
    """Return the success of each problem between base and last checkpoint, indexed by ``problem_id``.

    A problem that is lost at the end may have been solved often in between. Columns: ``step, n, n_correct`` of the
    intermediate checkpoint with the highest success rate, NULL without one; ``none_at``, the steps after the base
    (including the last) without a correct sample.
    """
    own = source.problem_counts[source.problem_counts["series"] == series.name]
    own = own[(own["step"] != series.base_step) & (own["step"] <= series.last_step)]
    none_at = own[own["n_correct"] == 0].groupby("problem_id")["step"].agg(lambda steps: tuple(sorted(map(int, steps))))
    inner = own[own["step"] != series.last_step]
    inner = inner.assign(share=inner["n_correct"] / inner["n"])
    most = inner.sort_values(["share", "step"], ascending=[False, True], kind="stable").groupby("problem_id").first()
    ids = pd.Index(sorted(own["problem_id"].unique()), name="problem_id")
    return most[["step", "n", "n_correct"]].reindex(ids).assign(none_at=none_at.reindex(ids))


def success_interval(
    correct_N: Int[np.ndarray, " n"], samples_N: Int[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Return the lower and upper bounds of the exact 95 % CIs of success rates.

    Source: Clopper and Pearson, Biometrika 26 (1934).

    >>> low, high = success_interval(np.array([0, 4, 8]), np.array([8, 8, 8]))
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.0, 0.157, 0.631], [0.369, 0.843, 1.0])
    """
    missed_N = samples_N - correct_N
    low_N = np.where(correct_N > 0, beta.ppf(0.025, np.maximum(correct_N, 1), missed_N + 1), 0.0)
    high_N = np.where(missed_N > 0, beta.ppf(0.975, correct_N + 1, np.maximum(missed_N, 1)), 1.0)
    return low_N, high_N


def pick_problems(changes: Sequence[pd.DataFrame], confirmed: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the ids of at most ``SHOWN_CASES`` problems to show: confirmed changes, then falls, then gains.

    ``changes`` (see ``problem_changes``) and ``confirmed`` (problem ids) have one entry per series, and the problems of
    the series are taken in turn. Problems lost in any series come before problems that only fell.
    """

    def in_state(state: State) -> list[str]:
        """Return the problems that have this state in any series, largest changes first."""
        own = [[*frame.loc[frame["state"] == state, "problem_id"]] for frame in changes]
        return _merge_round_robin([ids[::-1] for ids in own] if state in ("gained", "rose") else own)

    first = _merge_round_robin(confirmed)[: int(SHOWN_CASES * _SHARE_CONFIRMED)]
    left = SHOWN_CASES - len(first)
    fallen = [
        problem_id for problem_id in dict.fromkeys([*in_state("lost"), *in_state("fell")]) if problem_id not in first
    ]
    gained_ids = [
        problem_id
        for problem_id in dict.fromkeys([*in_state("gained"), *in_state("rose")])
        if problem_id not in {*first, *fallen}
    ]
    n_fallen = max(round(_SHARE_FALLEN * left), left - len(gained_ids))
    return tuple([*first, *fallen[:n_fallen], *gained_ids][:SHOWN_CASES])


def _merge_round_robin(lists: Sequence[Sequence[str]]) -> list[str]:
    """Merge lists by taking one element of each in turn, without duplicates.

    >>> _merge_round_robin([["a", "b"], ["a", "c", "d"]])
    ['a', 'b', 'c', 'd']
    """
    longest = max(map(len, lists), default=0)
    return list(dict.fromkeys(str(own[i]) for i in range(longest) for own in lists if i < len(own)))
