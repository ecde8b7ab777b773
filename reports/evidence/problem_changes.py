"""Success rate of every problem at base and last checkpoint, and the choice of problems to show."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.special import betaincinv

from oversharp.diagnostics.statistics.problem_changes import (
    ProblemCounts,
    State,
    StoppedPair,
    change_p,
    problem_states,
    rate_interval,
)
from oversharp.diagnostics.statistics.stopping import StoppingRule
from oversharp.reports.evidence.source import SeriesSource, Source

SHOWN_CASES = 16
#: Maximum share of confirmed problems among all shown problems, and of fallen problems among the remaining ones.
_SHARE_CONFIRMED, _SHARE_FALLEN = 0.5, 0.7


def problem_changes(source: Source, series: SeriesSource, late_step: int | None = None) -> pd.DataFrame:
    """Return the change of every problem from the base to ``late_step``, largest fall first.

    ``late_step`` defaults to the last step with samples. Columns: ``problem_id``; samples ``n_base, n_late``; correct
    samples ``c_base, c_late``; success rates ``base``, ``late`` and their ``change`` (probabilities); ``state``;
    ``p_adjusted`` of the change (see ``change_p``), NULL if single problems of the series are not tested. Base and late
    step have the same number of samples of a problem. With a stopping rule they have the numbers at which the problem
    stopped, and problems without all samples of the rule are left out. Then the rates are shares of these samples,
    whose mean over problems is biased. ``mean_base`` and ``mean_late`` are estimates without bias.
    """
    counts = source.problem_counts[source.problem_counts["series"] == series.name]
    base = counts[counts["step"] == series.base_step].set_index("problem_id")
    late_step = series.last_step if late_step is None else late_step
    late = counts[counts["step"] == late_step].set_index("problem_id")
    sides = {"base": base, "late": late}
    names = {"n": "n", "c": "n_correct", **({"solved": "solved"} if series.is_stopped else {})}
    both = pd.DataFrame({f"{name}_{side}": own[of] for side, own in sides.items() for name, of in names.items()})
    both = both.dropna()
    rules = {side: series.rule(is_base=side == "base") for side in sides}
    for side, rule in rules.items():
        if rule is not None:
            ends = set(rule.ends)
            is_end = [end in ends for end in zip(both[f"n_{side}"], both[f"c_{side}"], strict=True)]
            both = both[np.array(is_end, dtype=bool)]
    for side in sides:
        both[side] = both[f"c_{side}"] / both[f"n_{side}"]
    both["change"] = both["late"] - both["base"]
    counts = problem_counts(both, series)
    for place, (side, rule) in enumerate(rules.items()):
        both[f"mean_{side}"] = both[side] if rule is None else rule.pass_at_k_table([1])[counts.codes[place], 0]
    both["state"] = problem_states(counts)
    both["p_adjusted"] = np.nan if series.why_untested else change_p(counts)
    return both.reset_index().sort_values(["change", "problem_id"], kind="stable").reset_index(drop=True)


def problem_counts(changes: pd.DataFrame, series: SeriesSource) -> ProblemCounts:
    """Return the sample counts of these problems at the base and the late checkpoint."""
    base, late = (series.rule(is_base=is_base) for is_base in (True, False))
    stopped = None
    if base is not None and late is not None:
        stopped = StoppedPair(
            before=base,
            after=late,
            solved_before_P=changes["solved_base"].to_numpy(dtype=bool),
            solved_after_P=changes["solved_late"].to_numpy(dtype=bool),
        )
    return ProblemCounts(
        before_P=changes["c_base"].to_numpy(dtype=np.int64),
        n_before_P=changes["n_base"].to_numpy(dtype=np.int64),
        after_P=changes["c_late"].to_numpy(dtype=np.int64),
        n_after_P=changes["n_late"].to_numpy(dtype=np.int64),
        stopped=stopped,
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
    correct_N: Int[np.ndarray, " n"], samples_N: Int[np.ndarray, " n"], rule: StoppingRule | None = None
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Return the lower and upper bounds of the exact 95 % CIs of success rates.

    With a stopping rule, numbers that it cannot leave have the interval from 0 to 1. Source: Clopper and Pearson,
    Biometrika 26 (1934).

    >>> low, high = success_interval(np.array([0, 4, 8]), np.array([8, 8, 8]))
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.0, 0.157, 0.631], [0.369, 0.843, 1.0])
    """
    if rule is not None:
        code = {end: row for row, end in enumerate(rule.ends)}
        code_N = np.array([code.get(end, -1) for end in zip(samples_N.tolist(), correct_N.tolist(), strict=True)])
        low_N, high_N = rate_interval(rule, np.maximum(code_N, 0))
        return np.where(code_N < 0, 0.0, low_N), np.where(code_N < 0, 1.0, high_N)
    missed_N = samples_N - correct_N
    low_N = np.where(correct_N > 0, betaincinv(np.maximum(correct_N, 1), missed_N + 1, 0.025), 0.0)
    high_N = np.where(missed_N > 0, betaincinv(correct_N + 1, np.maximum(missed_N, 1), 0.975), 1.0)
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
