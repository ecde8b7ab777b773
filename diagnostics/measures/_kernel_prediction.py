"""The change of log-probability that a kernel predicts, beside the one that the next checkpoint shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from oversharp.diagnostics.measures._batch import NO_ADVANTAGE
from oversharp.diagnostics.measures._kernel import NO_FIXED, NO_OWN, Coupling, couplings, matched
from oversharp.diagnostics.measures._panel import steps
from oversharp.diagnostics.measures.contract import Evidence
from oversharp.diagnostics.theory.influence import first_order_influence

TRAINING, OWN = "training batch", "own samples"
SCOPES = (TRAINING, OWN)


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The fixed responses that both checkpoints have: Σ_j K_ij·A_j of each, and its change of log π in nats.

    The prediction is right up to a common positive factor, the step size. ``share_MB`` is what the draws j of each
    problem of the batch add to it; ``batch_B`` names these problems.
    """

    share_MB: Float[np.ndarray, "member problem"]
    batch_B: np.ndarray
    measured_M: Float[np.ndarray, " member"]
    problem_M: np.ndarray
    correct_M: Bool[np.ndarray, " member"]

    def total(self) -> Float[np.ndarray, " member"]:
        """The prediction for each response, from the whole batch."""
        total_M: Float[np.ndarray, " member"] = self.share_MB.sum(axis=1)
        return total_M


def predictions(evidence: Evidence) -> Iterator[tuple[str, str, Prediction | str]]:
    """Every checkpoint but the first, and scope: the prediction from the checkpoint before, or why there is none."""
    found, why = couplings(evidence)
    for before_id, after_id, why_not in steps(evidence, why):
        for scope in SCOPES:
            yield after_id, scope, why_not or prediction(found[before_id], found[after_id], scope)


def prediction(before: Coupling, after: Coupling, scope: str) -> Prediction | str:
    """What the kernel of ``before`` says of the step to ``after``, or why it says nothing."""
    draw_S = before.batch_S if scope == TRAINING else before.own_S
    if not len(draw_S):
        return "the run directory holds no responses of the trainer between the two" if scope == TRAINING else NO_OWN
    batches = [batch for batch in before.batches(draw_S) if batch.is_informative]
    if not batches:
        return NO_ADVANTAGE if scope == OWN else "every stored training batch is all correct or all wrong: no advantage"
    fixed, later = before.fixed, after.fixed
    at_M, later_M = matched(fixed, later)
    if not len(at_M):
        return NO_FIXED
    shares = []
    for batch in batches:
        cross_MS = before.rows.kernel_NN[np.ix_(before.fixed_F[at_M], batch.mode_S)]
        shares.append(first_order_influence(cross_MS, batch.advantage_S, learning_rate=1.0))
    share_MB = np.stack(shares, axis=1)
    predicted_M = share_MB.sum(axis=1)
    measured_M = later.logp_N[later_M] - fixed.logp_N[at_M]
    if len(at_M) < 3 or np.ptp(predicted_M) == 0.0 or np.ptp(measured_M) == 0.0:
        return "fewer than three fixed responses, or none of them moved differently from the others"
    return Prediction(
        share_MB=share_MB,
        batch_B=np.array([batch.problem_id for batch in batches]),
        measured_M=measured_M,
        problem_M=fixed.problem_N[at_M],
        correct_M=fixed.correct_N[at_M],
    )
