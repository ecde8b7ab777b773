"""Measure of how well the kernel predicts the measured change."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float

from oversharp.diagnostics.measures.contract import Plot, Result, Results
from oversharp.diagnostics.measures.declare import against_previous
from oversharp.diagnostics.measures.kernel.gradients.coupling import COUPLINGS, Coupling
from oversharp.diagnostics.measures.kernel.gradients.pairs import jackknife
from oversharp.diagnostics.measures.kernel.gradients.predictions import SCOPES, Prediction, predict_step
from oversharp.diagnostics.statistics.units import Interval


@against_previous(
    input=COUPLINGS,
    scopes=[f"{scope}{part}" for scope in SCOPES for part in ("", ", ranks")],
    title="Change predicted by the kernel, correlation with the measured one",
    unit="correlation",
    section="kernel",
    rank=10,
    plot=Plot(x="step", group="scope", y_label="correlation of predicted and measured Δ log π", y_range=(-1.0, 1.0)),
    signed=True,
)
def kernel_prediction(before: Coupling, after: Coupling) -> Results:
    """Kernel prediction: how well the kernel predicts the change to the next checkpoint.

    Meaning: to first order, one policy-gradient step on responses j with advantages A_j changes log π(y_i|x_i) by a
    multiple of Σ_j K_ij·A_j. This prediction uses the kernel of the previous checkpoint. The value is Pearson's r
    between the prediction and the measured change of log-probability (summed over tokens), over the responses of the
    panel and the modes. If r is near 1, the kernel explains the change. If it is near 0, it does not. Scopes:
    - ``training batch``: the responses j are those that the trainer sampled between the two checkpoints.
    - ``own samples``: the responses j are the previous checkpoint's own samples on the audited problems.
    - ``training batch, ranks`` and ``own samples, ranks``: Spearman's rank correlation instead of r. One response with
      a huge gradient can dominate r. If the two disagree, few responses dominate r.
    Unit: correlation, −1 to 1, so the step size has no effect. 95 % interval by a jackknife of Fisher's z that leaves
    out one problem at a time, including the problems of the batch, because responses of one problem are correlated. n
    counts responses.
    Limits: the prediction is first-order, at one point, for plain gradient steps. Many steps, Adam, clipping, length
    normalisation and batches that were not stored all lower r. Advantages are computed from correctness within a
    problem, normalised by the population's standard deviation. A trainer with other rewards has other advantages.
    Source: [C] (The Reasoning Boundary Paradox), Proposition 3.1; [A] (arXiv 2601.15609), section 2.3.

    >>> from oversharp.diagnostics.measures.kernel.gradients.examples import gradients, tiny_kernels
    >>> rows = [("q1", "panel own", True), ("q1", "panel own", False), ("q2", "panel", True)]
    >>> kernel_NN = gradients((1, 0), (0, 1), (1, 1))
    >>> logps = {"base": (-2, -2, -2), "late": (-1.9, -2.1, -2)}  # predicted 1, −1, 0
    >>> findings = kernel_prediction(tiny_kernels({"base": kernel_NN, "late": kernel_NN}, rows, logps=logps))
    >>> [(f.checkpoint_id, f.scope, round(f.value, 4), f.n) for f in findings if f.value is not None]
    [('late', 'own samples', 1.0, 3), ('late', 'own samples, ranks', 1.0, 3)]
    """
    results: dict[str, Result] = {}
    for scope in SCOPES:
        predicted = predict_step(before, after, scope)
        for name, ranks in ((scope, False), (f"{scope}, ranks", True)):
            results[name] = predicted if isinstance(predicted, str) else _interval(predicted, ranks=ranks)
    return results


def _interval(prediction: Prediction, *, ranks: bool) -> Interval:
    """Return r with its interval: a jackknife of Fisher's z, transformed back to r."""
    r = _correlation(prediction.total(), prediction.measured_M, ranks=ranks)
    assert r is not None  # predict_step() returns a reason if one of the two does not vary
    audited = np.unique(prediction.problem_M)
    trained = np.setdiff1d(prediction.batch_B, audited)
    without = [
        [_without(prediction, problem_id, ranks=ranks) for problem_id in ids] for ids in (audited, trained) if len(ids)
    ]
    n = len(prediction.measured_M)
    interval = jackknife(math.atanh(r) if abs(r) < 1.0 else 0.0, *without)
    if interval.low is None or interval.high is None or abs(r) >= 1.0:
        return Interval(mean=r, low=None, high=None, n=n)
    return Interval(mean=r, low=min(r, math.tanh(interval.low)), high=max(r, math.tanh(interval.high)), n=n)


def _without(prediction: Prediction, problem_id: str, *, ranks: bool) -> float | None:
    """Return Fisher's z without one problem, both as a predicted problem and in the batch."""
    rest_M, rest_B = prediction.problem_M != problem_id, prediction.batch_B != problem_id
    predicted_M = prediction.share_MB[rest_M][:, rest_B].sum(axis=1)
    r = _correlation(predicted_M, prediction.measured_M[rest_M], ranks=ranks)
    return None if r is None or abs(r) >= 1.0 else math.atanh(r)


def _correlation(x_M: Float[np.ndarray, " member"], y_M: Float[np.ndarray, " member"], *, ranks: bool) -> float | None:
    """Return Pearson's or Spearman's r, None for fewer than 3 responses or constant values."""
    if len(x_M) < 3 or np.ptp(x_M) == 0.0 or np.ptp(y_M) == 0.0:
        return None
    if ranks:
        from scipy.stats import rankdata  # takes a second to import

        x_M, y_M = rankdata(x_M), rankdata(y_M)
    return min(1.0, max(-1.0, float(np.corrcoef(x_M, y_M)[0, 1])))
