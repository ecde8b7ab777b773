"""Trajectories of the panel's log-probabilities and of pass@k over a series."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from oversharp.diagnostics.measures.contract import Evidence
from oversharp.diagnostics.measures.counts import Counts, sampled_counts, too_few_samples
from oversharp.diagnostics.measures.panel.scores import NONE_CORRECT, panel_scores, positions


@dataclass(frozen=True, kw_only=True)
class Trajectories:
    """Panel scores and counts at the checkpoints that have both in full, in step order.

    ``logp_TP`` is the mean log-probability in nats of a problem's correct panel responses; its problems are those that
    have one, at the places ``place_P`` of the sampled ones. Differences over time are changes: the responses stay the
    same.
    """

    counts: tuple[Counts, ...]
    logp_TP: Float[np.ndarray, "checkpoint problem"]
    place_P: Int[np.ndarray, " problem"]

    def why_too_few(self, k: int) -> str | None:
        """Return why pass@k is unknown at one of the checkpoints, or None."""
        return too_few_samples(k, min(counts.fewest for counts in self.counts))

    def pass_at_k(self, k: int) -> Float[np.ndarray, "checkpoint sampled_problem"]:
        """Return the unbiased pass@k of every sampled problem, with a correct panel response or not."""
        return np.stack([counts.pass_at_k(k) for counts in self.counts])


def load_trajectories(evidence: Evidence) -> Trajectories | str:
    """Load the views ``panel_logps`` and ``sampled_counts``, or return the reason why there is nothing to compare.

    A checkpoint that lacks a part of either is excluded.
    """
    scores, why_scores = panel_scores(evidence)
    counts, why_counts = sampled_counts(evidence)
    why_not = {**why_scores, **why_counts}
    complete = [i for i in evidence.checkpoint_ids if i not in why_not]
    if len(complete) < 3:
        first = f" ({next(iter(why_not.values()))})" if why_not else ""
        return f"needs 3 complete checkpoints; there are {len(complete)}{first}"
    first_scores, first_counts = scores[complete[0]], counts[complete[0]]
    _, has_correct_P = first_scores.problem_means(first_scores.logp_R, first_scores.correct_R)
    if not has_correct_P.any():
        return NONE_CORRECT
    panel_ids = [i for i, has in zip(first_scores.problem_ids, has_correct_P, strict=True) if has]
    place_P, why_lacking = positions(panel_ids, first_counts.problem_ids)
    if why_lacking:
        return why_lacking
    means_TP = [scores[i].problem_means(scores[i].logp_R, scores[i].correct_R)[0] for i in complete]
    return Trajectories(
        counts=tuple(counts[i] for i in complete),
        logp_TP=np.stack([mean_P[has_correct_P] for mean_P in means_TP]),
        place_P=place_P,
    )
