"""Input of the measures of this folder: one row per sample, with its numbers of turns and calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from oversharp.diagnostics.measures.contract import Evidence, Results, cached_per_evidence
from oversharp.diagnostics.measures.counts import find_incomplete
from oversharp.diagnostics.measures.declare import Input, Loaded
from oversharp.diagnostics.statistics.units import Interval

#: In a series without trajectories the measures have no findings, so this reason is rare.
NO_TURNS = "no sample has several turns or tool calls"


@dataclass(frozen=True, kw_only=True)
class AgentSamples:
    """Samples of one checkpoint: rows of the view ``agent_samples``, by problem.

    Attributes:
        rows: the samples, sorted by problem and index.
        problem_P: the problems in order.
        cluster_P: cluster of each problem if the audit has clusters.
        longest: number of turns of the longest sample of the series.
    """

    rows: pd.DataFrame
    problem_P: tuple[str, ...]
    cluster_P: Int[np.ndarray, " problem"] | None
    longest: int

    def mean_by_problem(self, value_S: pd.Series) -> Float[np.ndarray, " problem"]:
        """Return the mean over each problem's samples."""
        mean_P: Float[np.ndarray, " problem"] = value_S.groupby(self.rows["problem_id"]).mean().to_numpy(np.float64)
        return mean_P

    def sum_by_problem(self, value_S: pd.Series) -> Float[np.ndarray, " problem"]:
        """Return the sum over each problem's samples."""
        sum_P: Float[np.ndarray, " problem"] = value_S.groupby(self.rows["problem_id"]).sum().to_numpy(np.float64)
        return sum_P

    def by_grade(self, name: str, interval: Callable[[AgentSamples, pd.Series], Interval]) -> Results:
        """Return ``interval`` of a column over all samples, and over the correct and the other ones."""
        is_correct = self.rows["correct"].astype(bool)
        parts = {"all": self, "correct": self.only(is_correct), "not_correct": self.only(~is_correct)}
        return {scope: interval(part, part.rows[name]) for scope, part in parts.items() if len(part.rows)}

    def only(self, is_kept_S: pd.Series) -> AgentSamples:
        """Return the samples that are kept, with their problems."""
        rows = self.rows[is_kept_S]
        kept = set(rows["problem_id"])
        is_kept_P = np.array([problem in kept for problem in self.problem_P], dtype=bool)
        return AgentSamples(
            rows=rows,
            problem_P=tuple(problem for problem in self.problem_P if problem in kept),
            cluster_P=None if self.cluster_P is None else self.cluster_P[is_kept_P],
            longest=self.longest,
        )


@cached_per_evidence
def load_agent_samples(evidence: Evidence) -> Loaded[AgentSamples]:
    """Load the samples of the first round."""
    frame = evidence.frames["agent_samples"].sort_values(["problem_id", "sample_index"])
    why = find_incomplete(evidence, frame, pd.Series(1, index=frame.index))
    values, longest = {}, 0 if "n_turns" not in frame else int(frame["n_turns"].max() if len(frame) else 0)
    for checkpoint_id, rows in frame.groupby("checkpoint_id"):
        problems = tuple(map(str, rows["problem_id"].unique()))
        values[str(checkpoint_id)] = AgentSamples(
            rows=rows, problem_P=problems, cluster_P=evidence.clusters(problems), longest=longest
        )
    return values, why


AGENT_SAMPLES = Input(load=load_agent_samples, needs=("agent_samples",), missing=NO_TURNS, first_round=True)
