"""The panel as arrays: responses drawn once from the base, and the log-probability every checkpoint gives them.

A checkpoint that has not scored the whole panel would be a mean over other responses: it gets a reason instead. Means
over the panel are taken within a problem first, then over problems, because responses to one problem move together.
The panel is drawn beside the samples that pass@k rests on, so no response is in both.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from oversharp.diagnostics.measures._counts import sampled_counts, scopes
from oversharp.diagnostics.measures._findings import among, checkpoint_ids
from oversharp.diagnostics.measures.contract import Evidence
from oversharp.diagnostics.statistics.intervals import mean_interval
from oversharp.diagnostics.statistics.units import Interval

NO_PANEL = "no panel; run the audit with --panel 4"
NONE_CORRECT = "no panel response is correct; run the audit with a larger --panel"

#: A scope: its name, and which problems of the panel it holds.
Scope = tuple[str, Bool[np.ndarray, " problem"]]


@dataclass(frozen=True, kw_only=True)
class BasePanel:
    """All responses of the panel, sorted by problem and sample index, at each checkpoint that scored all of them.

    ``problem_R`` numbers the problem of each response (0 … P−1 in the order of ``problem_ids``); ``n_tokens_R`` counts
    response tokens, the end token included; ``logp_R`` is in nats, summed over those tokens, by checkpoint id.
    ``cluster_P`` numbers the cluster of each problem where any are named.
    ``why`` has the reason for every checkpoint that is not in ``logp_R``.
    """

    problem_ids: tuple[str, ...]
    task_P: np.ndarray
    problem_R: Int[np.ndarray, " response"]
    correct_R: Bool[np.ndarray, " response"]
    n_tokens_R: Int[np.ndarray, " response"]
    logp_R: Mapping[str, Float[np.ndarray, " response"]]
    why: Mapping[str, str]
    cluster_P: Int[np.ndarray, " problem"] | None = None

    def change_nats(self, before_id: str, after_id: str) -> Float[np.ndarray, " response"]:
        """log π_after(y) − log π_before(y) of each response. ``KeyError`` for a checkpoint with a reason in ``why``."""
        return self.logp_R[after_id] - self.logp_R[before_id]

    def problem_means(
        self, values_R: Float[np.ndarray, " response"], among_R: Bool[np.ndarray, " response"] | None = None
    ) -> tuple[Float[np.ndarray, " problem"], Bool[np.ndarray, " problem"]]:
        """Mean over the responses ``among_R`` (None: all) of each problem, and which problems have one.

        Problems without one hold 0.
        """
        among_R = np.ones(len(values_R), dtype=bool) if among_R is None else among_R
        n_P = np.bincount(self.problem_R[among_R], minlength=len(self.problem_ids))
        sum_P = np.bincount(self.problem_R[among_R], weights=values_R[among_R], minlength=len(self.problem_ids))
        return sum_P / np.maximum(n_P, 1), n_P > 0

    def intervals(
        self,
        values_R: Float[np.ndarray, " response"],
        of: Sequence[Scope],
        *,
        among_R: Bool[np.ndarray, " response"] | None = None,
        bounds: tuple[float, float] = (-math.inf, math.inf),
    ) -> list[tuple[str, Interval]]:
        """Mean over problems of the problem means, with a 95 % t interval, in each scope that has a response."""
        mean_P, some_P = self.problem_means(values_R, among_R)
        return [
            (scope, mean_interval(mean_P[held_P], bounds=bounds, cluster_P=among(self.cluster_P, held_P)))
            for scope, held_P in ((scope, in_scope_P & some_P) for scope, in_scope_P in of)
            if held_P.any()
        ]

    def task_scopes(self) -> list[Scope]:
        """``all``, and ``task:NAME`` where there is more than one task."""
        return scopes(self.task_P)


def panel_of(evidence: Evidence) -> BasePanel:
    """The view ``panel_logps`` as arrays. Without a panel every checkpoint has a reason and the arrays are empty."""
    return evidence.once(_panel_of)


def _panel_of(evidence: Evidence) -> BasePanel:
    frame = evidence.frames["panel_logps"]
    ids = checkpoint_ids(evidence)
    if frame.empty:
        none = np.array([], dtype=np.int64)
        return BasePanel(
            problem_ids=(),
            task_P=np.array([], dtype=str),
            problem_R=none,
            correct_R=none.astype(bool),
            n_tokens_R=none,
            logp_R={},
            why=dict.fromkeys(ids, NO_PANEL),
        )
    response = ["problem_id", "sample_index"]
    table = frame.pivot(index=response, columns="checkpoint_id", values="logp_sum").reindex(columns=ids)
    # The response itself is the same at every checkpoint: its tokens, its grade, its problem.
    facts = frame.drop_duplicates(response).set_index(response).reindex(table.index)
    problem_R, problem_ids = table.index.get_level_values("problem_id").factorize()
    logp_RC = table.to_numpy(dtype=np.float64)
    # How many responses a problem has is a setting of the audit, the same for every problem.
    planned = len(problem_ids) * (1 + int(table.index.get_level_values("sample_index").max()))
    why = {
        checkpoint_id: reason
        for checkpoint_id, logp_R in zip(ids, logp_RC.T, strict=True)
        if (reason := _why_not(logp_R, planned)) is not None
    }
    return BasePanel(
        problem_ids=tuple(map(str, problem_ids)),
        task_P=facts["task"].to_numpy(dtype=str)[np.flatnonzero(np.diff(problem_R, prepend=-1))],
        problem_R=problem_R.astype(np.int64),
        correct_R=facts["correct"].to_numpy(dtype=bool),
        n_tokens_R=facts["n_tokens"].to_numpy(dtype=np.int64),
        logp_R={i: logp_R for i, logp_R in zip(ids, logp_RC.T, strict=True) if i not in why},
        why=why,
        cluster_P=evidence.clusters(map(str, problem_ids)),
    )


def steps(evidence: Evidence, why: Mapping[str, str]) -> Iterator[tuple[str, str, str | None]]:
    """Every checkpoint but the first: the one before it, itself, and the reason why the two cannot be compared."""
    for before_id, after_id in itertools.pairwise(checkpoint_ids(evidence)):
        before_why = f"the checkpoint before: {why[before_id]}" if before_id in why else None
        yield before_id, after_id, before_why or why.get(after_id)


def base_success_scopes(evidence: Evidence, problem_ids: Sequence[str]) -> tuple[list[Scope], str | None]:
    """Problems by the base's success rate over all its samples, or why there is none of them.

    ``base 0`` was never solved; ``base 0-10%`` holds rates above 0 and up to 10 %, and so on to ``base 90-100%``.
    Bins without a problem are left out. The samples are not those of the panel, so noise in a problem's rate does not
    select its panel responses. Reads the view ``sampled_counts``.
    """
    counts = sampled_counts(evidence)
    if evidence.base_id in counts.why:
        return [], f"base: {counts.why[evidence.base_id]}"
    at_P, lacking = positions(problem_ids, counts.problem_ids)
    if lacking:
        return [], lacking
    n_P, correct_P = counts.n_P[evidence.base_id][at_P], counts.correct_P[evidence.base_id][at_P]
    bin_P = -(-10 * correct_P // n_P)  # rounded up, in whole numbers: 3 of 10 is in the bin up to 30 %
    names = ["base 0", *(f"base {10 * i}-{10 * i + 10}%" for i in range(10))]
    return [(name, bin_P == i) for i, name in enumerate(names) if (bin_P == i).any()], None


def success_scopes(evidence: Evidence, panel: BasePanel) -> list[Scope]:
    """``base_success_scopes`` of the panel's problems; none where the base's success rates are unknown."""
    counts = evidence.frames.get("sampled_counts")
    if counts is None or counts.empty or not panel.problem_ids:
        return []
    return base_success_scopes(evidence, panel.problem_ids)[0]


def positions(problem_ids: Sequence[str], among: Sequence[str]) -> tuple[Int[np.ndarray, " problem"], str | None]:
    """Where the panel's problems stand among those that were sampled, or why that is unknown."""
    position = {problem_id: i for i, problem_id in enumerate(among)}
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
