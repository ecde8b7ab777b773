"""Kernel prediction: how well the kernel foretells which responses the next checkpoint finds likelier.

Meaning: to first order one step of policy gradient on responses j with advantages A_j changes log π(y_i|x_i) by a
multiple of Σ_j K_ij·A_j. Pearson's r over the fixed responses between that prediction, from the kernel of the
checkpoint before, and the change of their log-probability (summed over tokens) that was measured. Scope ``training
batch``: j are responses that the trainer drew between the two; ``own samples``: the earlier checkpoint's own samples
on the audited problems. Near 1: the kernel explains the change; near 0: it does not reach that far. One response with a
huge gradient can make r or break it: ``training batch, ranks`` and ``own samples, ranks`` are Spearman's correlation,
of the ranks alone. Where the two disagree, few responses carry r.
Unit: correlation, −1 to 1, so the step size does not matter. 95 % interval over problems, those of the batch too:
delete-one-problem jackknife of Fisher's z, because responses of one problem move together. n counts responses.
Limits: first order, at one point, for plain gradient steps: many steps, Adam, clipping and length normalisation all
lower r, and so do batches that were not stored. Advantages are those of correctness within a problem, normalised with
the population's standard deviation; a trainer with other rewards has others.
Source: [C] (The Reasoning Boundary Paradox), Proposition 3.1; [A] (arXiv 2601.15609), section 2.3.

>>> from oversharp.diagnostics.measures._kernel_example import gradients, tiny_kernels
>>> rows = [("q1", "panel own", True), ("q1", "panel own", False), ("q2", "panel", True)]
>>> evidence = tiny_kernels({"base": gradients((1, 0), (0, 1), (1, 1)), "late": gradients((1, 0), (0, 1), (1, 1))},
...     rows, logps={"base": (-2, -2, -2), "late": (-1.9, -2.1, -2)})  # predicted 1, −1, 0
>>> [(f.checkpoint_id, f.scope, round(f.value, 4), f.n) for f in compute(evidence) if f.value is not None]
[('late', 'own samples', 1.0, 3), ('late', 'own samples, ranks', 1.0, 3)]
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float
from scipy.stats import rankdata

from oversharp.diagnostics.measures._findings import known, unknown
from oversharp.diagnostics.measures._kernel import NO_KERNEL
from oversharp.diagnostics.measures._kernel_pairs import jackknife
from oversharp.diagnostics.measures._kernel_prediction import Prediction, predictions
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.units import Interval


def compute(evidence: Evidence) -> list[Finding]:
    """Two findings per batch and checkpoint but the first; unknown where a kernel or a batch is lacking."""
    return [
        unknown(MEASURE, checkpoint_id, made, scope=name)
        if isinstance(made, str)
        else known(MEASURE, checkpoint_id, _interval(made, ranks=ranks), scope=name, n=len(made.measured_M))
        for checkpoint_id, scope, made in predictions(evidence)
        for name, ranks in ((scope, False), (f"{scope}, ranks", True))
    ]


def _interval(prediction: Prediction, *, ranks: bool) -> Interval:
    """r with the jackknife interval of Fisher's z, back on the scale of r."""
    r = _correlation(prediction.total(), prediction.measured_M, ranks=ranks)
    assert r is not None  # predictions() gives a reason where one of the two does not vary
    audited = np.unique(prediction.problem_M)
    trained = np.setdiff1d(prediction.batch_B, audited)
    without = [
        [_without(prediction, problem_id, ranks=ranks) for problem_id in ids] for ids in (audited, trained) if len(ids)
    ]
    interval = jackknife(math.atanh(r) if abs(r) < 1.0 else 0.0, *without)
    if interval.low is None or interval.high is None or abs(r) >= 1.0:
        return Interval(mean=r, low=None, high=None, n=interval.n)
    return Interval(mean=r, low=min(r, math.tanh(interval.low)), high=max(r, math.tanh(interval.high)), n=interval.n)


def _without(prediction: Prediction, problem_id: str, *, ranks: bool) -> float | None:
    """Fisher's z without one problem, among those that are foretold and in the batch."""
    rest_M, rest_B = prediction.problem_M != problem_id, prediction.batch_B != problem_id
    predicted_M = prediction.share_MB[rest_M][:, rest_B].sum(axis=1)
    r = _correlation(predicted_M, prediction.measured_M[rest_M], ranks=ranks)
    return None if r is None or abs(r) >= 1.0 else math.atanh(r)


def _correlation(x_M: Float[np.ndarray, " member"], y_M: Float[np.ndarray, " member"], *, ranks: bool) -> float | None:
    """Pearson's r, or Spearman's of ``ranks``; None for fewer than 3 responses or where one of the two is constant."""
    if len(x_M) < 3 or np.ptp(x_M) == 0.0 or np.ptp(y_M) == 0.0:
        return None
    if ranks:
        x_M, y_M = rankdata(x_M), rankdata(y_M)
    return min(1.0, max(-1.0, float(np.corrcoef(x_M, y_M)[0, 1])))


MEASURE = Measure(
    name="kernel_prediction",
    title="Change predicted by the kernel, correlation with the measured one",
    unit="correlation",
    section="kernel",
    needs=("kernel_runs", "kernel_members", "kernel_pairs"),
    missing=NO_KERNEL,
    plot=Plot(x="step", group="scope", y_label="correlation of predicted and measured Δ log π", y_range=(-1.0, 1.0)),
    compute=compute,
    signed=True,
    of_base=False,
)
