"""Success of every problem at the base and at the last checkpoint, and which problems are worth reading. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.stats import beta

from oversharp.diagnostics.statistics.problem_changes import ProblemCounts, State, change_p, problem_states
from oversharp.reports.evidence.source import SeriesSource, Source

SHOWN_CASES = 16
_SHARE_CONFIRMED, _SHARE_FALLEN = 0.5, 0.7  # of the shown ones; of what confirmed ones leave


def problem_changes(source: Source, series: SeriesSource, late_step: int | None = None) -> pd.DataFrame:
    """One row per problem, largest fall first, from the base to ``late_step`` (default: the last one with samples).

    Columns: ``problem_id, n_base, c_base, n_late, c_late``; success ``base``, ``late`` and their ``change``
    (probabilities); ``state``; ``p_adjusted`` of the change, see ``change_p``, NULL where the series says why
    nothing is tested. Base and last checkpoint have as many samples of a problem.
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
    """The counts of these rows, from the base to the late checkpoint."""
    return ProblemCounts(
        before_P=changes["c_base"].to_numpy(dtype=np.int64),
        n_before_P=changes["n_base"].to_numpy(dtype=np.int64),
        after_P=changes["c_late"].to_numpy(dtype=np.int64),
        n_after_P=changes["n_late"].to_numpy(dtype=np.int64),
    )


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
