"""Load the panel: responses sampled once from the base, and their log-probabilities.

A checkpoint with missing scores is unknown, because its mean would cover other responses. Means are taken within a
problem first, then over problems, because responses to one problem are correlated. The samples of pass@k contain no
panel response.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from oversharp.diagnostics.measures.contract import Evidence, cached_per_evidence
from oversharp.diagnostics.measures.counts import Counts, list_task_scopes, load_sampled_counts, select_clusters
from oversharp.diagnostics.measures.declare import Input, Loaded
from oversharp.diagnostics.statistics.intervals import mean_interval
from oversharp.diagnostics.statistics.units import Interval

NO_PANEL = "no panel; run the audit with --panel 4"
NONE_CORRECT = "no panel response is correct; run the audit with a larger --panel"

#: Name of a scope, and a mask of its problems.
Scope = tuple[str, Bool[np.ndarray, " problem"]]


@dataclass(frozen=True, kw_only=True)
class PanelScores:
    """All responses of the panel under one checkpoint, sorted by problem and sample index.

    Attributes:
        problem_R: index of each response's problem in ``problem_ids``.
        n_tokens_R: number of response tokens, including the end token.
        logp_R: log-probability in nats, summed over these tokens.
        cluster_P: cluster of each problem if the audit has clusters.
    """

    problem_ids: tuple[str, ...]
    task_P: np.ndarray
    problem_R: Int[np.ndarray, " response"]
    correct_R: Bool[np.ndarray, " response"]
    n_tokens_R: Int[np.ndarray, " response"]
    logp_R: Float[np.ndarray, " response"]
    cluster_P: Int[np.ndarray, " problem"] | None = None

    def change_nats(self, before: PanelScores) -> Float[np.ndarray, " response"]:
        """Return log π(y) − log π_before(y) of each response, in nats."""
        return self.logp_R - before.logp_R

    def problem_means(
        self, values_R: Float[np.ndarray, " response"], is_counted_R: Bool[np.ndarray, " response"] | None = None
    ) -> tuple[Float[np.ndarray, " problem"], Bool[np.ndarray, " problem"]]:
        """Return the mean of each problem, and a mask of the problems with a counted response.

        Problems without a counted response have mean 0.
        """
        is_counted_R = np.ones(len(values_R), dtype=bool) if is_counted_R is None else is_counted_R
        n_P = np.bincount(self.problem_R[is_counted_R], minlength=len(self.problem_ids))
        weights_R, n_problems = values_R[is_counted_R], len(self.problem_ids)
        sum_P = np.bincount(self.problem_R[is_counted_R], weights=weights_R, minlength=n_problems)
        return sum_P / np.maximum(n_P, 1), n_P > 0

    def intervals(
        self,
        values_R: Float[np.ndarray, " response"],
        scopes: Sequence[Scope],
        *,
        is_counted_R: Bool[np.ndarray, " response"] | None = None,
        bounds: tuple[float, float] = (-math.inf, math.inf),
    ) -> dict[str, Interval]:
        """Return the mean of the problem means with its 95 % t interval, by scope."""
        mean_P, has_mean_P = self.problem_means(values_R, is_counted_R)
        return {
            scope: mean_interval(mean_P[chosen_P], bounds=bounds, cluster_P=select_clusters(self.cluster_P, chosen_P))
            for scope, chosen_P in ((scope, in_scope_P & has_mean_P) for scope, in_scope_P in scopes)
            if chosen_P.any()
        }

    def task_scopes(self) -> list[Scope]:
        """Return ``all``, and ``task:NAME`` if there is more than one task."""
        return list_task_scopes(self.task_P)


@cached_per_evidence
def load_panel_scores(evidence: Evidence) -> Loaded[PanelScores]:
    """Load the view ``panel_logps``."""
    frame = evidence.frames["panel_logps"]
    ids = evidence.checkpoint_ids
    response = ["problem_id", "sample_index"]
    table = frame.pivot(index=response, columns="checkpoint_id", values="logp_sum").reindex(columns=ids)
    # tokens, grade and problem of a response are the same at every checkpoint
    responses = frame.drop_duplicates(response).set_index(response).reindex(table.index)
    problem_R, problem_ids = table.index.get_level_values("problem_id").factorize()
    logp_RC = table.to_numpy(dtype=np.float64)
    # the number of responses is a setting of the audit, the same for every problem
    planned = len(problem_ids) * (1 + int(table.index.get_level_values("sample_index").max()))
    why = {
        checkpoint_id: reason
        for checkpoint_id, logp_R in zip(ids, logp_RC.T, strict=True)
        if (reason := _why_not(logp_R, planned)) is not None
    }
    task_P = responses["task"].to_numpy(dtype=str)[np.flatnonzero(np.diff(problem_R, prepend=-1))]
    scores = {
        checkpoint_id: PanelScores(
            problem_ids=tuple(map(str, problem_ids)),
            task_P=task_P,
            problem_R=problem_R.astype(np.int64),
            correct_R=responses["correct"].to_numpy(dtype=bool),
            n_tokens_R=responses["n_tokens"].to_numpy(dtype=np.int64),
            logp_R=logp_R,
            cluster_P=evidence.clusters(map(str, problem_ids)),
        )
        for checkpoint_id, logp_R in zip(ids, logp_RC.T, strict=True)
        if checkpoint_id not in why
    }
    return scores, why


PANEL = Input(load=load_panel_scores, needs=("panel_logps",), missing=NO_PANEL)


def base_success_scopes(evidence: Evidence, problem_ids: Sequence[str]) -> tuple[list[Scope], str | None]:
    """Return bins of problems by the base's success rate, or the reason why there are none.

    ``base 0`` contains problems that were never solved. ``base 0-10%`` contains rates above 0 and up to 10 %, and so on
    up to ``base 90-100%``. Empty bins are omitted. The rates are from other samples than the panel, so noise in a
    problem's rate does not select its panel responses.
    """
    counts, why = load_sampled_counts(evidence)
    if evidence.base_id in why:
        return [], f"base: {why[evidence.base_id]}"
    base = counts[evidence.base_id]
    place_P, why_not = find_positions(problem_ids, base.problem_ids)
    if why_not:
        return [], why_not
    bin_P = _success_bins(base)[place_P]
    names = ["base 0", *(f"base {10 * i}-{10 * i + 10}%" for i in range(10))]
    return [(name, bin_P == i) for i, name in enumerate(names) if (bin_P == i).any()], None


def _success_bins(counts: Counts) -> Int[np.ndarray, " problem"]:
    """Return ten times the success rate of each problem, rounded up; 0 only without a correct sample."""
    if counts.rule is None:
        return -(-10 * counts.correct_P // counts.n_P)  # in integers, so that 3 of 10 is in the bin up to 30 %
    bin_P = np.ceil(10 * counts.pass_at_k(1) - 1e-9).astype(np.int64)
    return np.where(counts.is_solved, np.maximum(bin_P, 1), 0)


def find_positions(
    problem_ids: Sequence[str], sampled: Sequence[str]
) -> tuple[Int[np.ndarray, " problem"], str | None]:
    """Return the index of each panel problem in ``sampled``, or the reason why one is missing."""
    position = {problem_id: i for i, problem_id in enumerate(sampled)}
    lacking = [problem_id for problem_id in problem_ids if problem_id not in position]
    if lacking:
        why = f"{len(lacking)} of {len(problem_ids)} problems of the panel have no graded samples"
        return np.array([], dtype=np.int64), f"{why}; run the audit again to complete them"
    return np.array([position[problem_id] for problem_id in problem_ids], dtype=np.int64), None


def _why_not(logp_R: Float[np.ndarray, " response"], planned: int) -> str | None:
    n_scored = int((~np.isnan(logp_R)).sum())
    if n_scored < planned:
        return f"{n_scored} of {planned} panel responses are scored here; run the audit again to complete them"
    n_impossible = int(np.isneginf(logp_R).sum())
    if n_impossible:
        return f"{n_impossible} of {planned} panel responses have probability 0 here, so their change is not finite"
    return None
