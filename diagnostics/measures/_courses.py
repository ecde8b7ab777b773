"""The course of the panel's log-probabilities over a series, beside that of pass@k."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from oversharp.diagnostics.measures._counts import CorrectCounts, sampled_counts, too_few_samples
from oversharp.diagnostics.measures._findings import checkpoint_ids
from oversharp.diagnostics.measures._panel import NONE_CORRECT, panel_of, positions
from oversharp.diagnostics.measures.contract import Evidence


@dataclass(frozen=True, kw_only=True)
class Courses:
    """Panel and samples at the checkpoints that have both in full, in step order, or ``why`` there is nothing to link.

    ``logp_TP`` is the mean log-probability in nats of a problem's correct panel responses; its problems are those that
    have one, numbers ``at_P`` in ``counts``. Differences in time are changes: the responses stay the same.
    """

    counts: CorrectCounts
    checkpoint_ids: tuple[str, ...]
    logp_TP: Float[np.ndarray, "checkpoint problem"]
    at_P: Int[np.ndarray, " problem"]
    why: str | None

    def too_few(self, k: int) -> str | None:
        """Why pass@k is unknown at one of the checkpoints, or None."""
        return too_few_samples(k, min(self.counts.least(checkpoint_id) for checkpoint_id in self.checkpoint_ids))

    def pass_at_k(self, k: int) -> Float[np.ndarray, "checkpoint sampled_problem"]:
        """Unbiased pass@k of every sampled problem, with a correct panel response or not."""
        return np.stack([self.counts.pass_at_k(checkpoint_id, k) for checkpoint_id in self.checkpoint_ids])


def courses(evidence: Evidence) -> Courses:
    """From the views ``panel_logps`` and ``sampled_counts``; a checkpoint that lacks a part of either is left out."""
    panel, counts = panel_of(evidence), sampled_counts(evidence)
    why_not = {**panel.why, **counts.why}
    complete = tuple(i for i in checkpoint_ids(evidence) if i not in why_not)
    mean_and_some = [panel.problem_means(panel.logp_R[i], panel.correct_R) for i in complete]
    some_P = mean_and_some[0][1] if complete else np.zeros(len(panel.problem_ids), dtype=bool)
    logp_TP = np.array([mean_P[some_P] for mean_P, _ in mean_and_some]).reshape(len(complete), int(some_P.sum()))
    at_P, lacking = positions(
        [i for i, some in zip(panel.problem_ids, some_P, strict=True) if some], counts.problem_ids
    )
    if len(complete) < 3:
        lacking = f"needs 3 complete checkpoints; there are {len(complete)}"
        if why_not:
            lacking += f" ({next(iter(why_not.values()))})"
    elif not some_P.any():
        lacking = NONE_CORRECT
    return Courses(counts=counts, checkpoint_ids=complete, logp_TP=logp_TP, at_P=at_P, why=lacking)
