"""Predicted and measured change of log-probability from one checkpoint to the next."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from oversharp.diagnostics.measures.kernel.gradients.batch import NO_ADVANTAGE
from oversharp.diagnostics.measures.kernel.gradients.coupling import NO_FIXED, NO_OWN, Coupling, match_rows
from oversharp.diagnostics.theory.coupling import first_order_influence

TRAINING, OWN = "training batch", "own samples"
SCOPES = (TRAINING, OWN)


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Predicted and measured change of log π, for the responses of panel and modes at both ends.

    Attributes:
        share_MB: contribution of each problem of the batch to Σ_j K_ij·A_j. The prediction has an unknown positive
            factor, the step size.
        batch_B: ids of these problems.
        measured_M: measured change of log π in nats.
    """

    share_MB: Float[np.ndarray, "member problem"]
    batch_B: np.ndarray
    measured_M: Float[np.ndarray, " member"]
    problem_M: np.ndarray
    correct_M: Bool[np.ndarray, " member"]

    def total(self) -> Float[np.ndarray, " member"]:
        """Return the prediction for each response from the whole batch."""
        return np.asarray(self.share_MB.sum(axis=1))


def predict_step(before: Coupling, after: Coupling, scope: str) -> Prediction | str:
    """Predict the change from ``before`` to ``after`` by the kernel of ``before``.

    Returns the reason if that is not possible.
    """
    draw_S = before.batch_S if scope == TRAINING else before.own_S
    if not len(draw_S):
        return "the run directory contains no responses of the trainer between the two" if scope == TRAINING else NO_OWN
    batches = [batch for batch in before.batches(draw_S) if batch.is_informative]
    if not batches:
        return NO_ADVANTAGE if scope == OWN else "each stored training batch is all correct or all wrong: no advantages"
    fixed, later = before.fixed, after.fixed
    place_M, later_M = match_rows(fixed, later)
    if not len(place_M):
        return NO_FIXED
    shares = []
    for batch in batches:
        cross_MS = before.rows.kernel_NN[np.ix_(before.fixed_F[place_M], batch.mode_S)]
        shares.append(first_order_influence(cross_MS, batch.advantage_S, learning_rate=1.0))
    share_MB = np.stack(shares, axis=1)
    predicted_M = share_MB.sum(axis=1)
    measured_M = later.logp_N[later_M] - fixed.logp_N[place_M]
    if len(place_M) < 3 or np.ptp(predicted_M) == 0.0 or np.ptp(measured_M) == 0.0:
        return "fewer than three fixed responses, or all of them changed equally"
    return Prediction(
        share_MB=share_MB,
        batch_B=np.array([batch.problem_id for batch in batches]),
        measured_M=measured_M,
        problem_M=fixed.problem_N[place_M],
        correct_M=fixed.correct_N[place_M],
    )
