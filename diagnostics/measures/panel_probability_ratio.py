"""Panel probability ratio: how many times as likely the base's correct responses are now.

Meaning: the mean of π_t(y⁺) / π_base(y⁺) over the base's correct panel responses; 1 is no change, below 1 a loss. If
the panel is drawn at temperature 1, a problem's mean estimates success probability now over success probability of the
base, counting only what the base can produce: rewordings cancel, which they do not in ``interference``. Scope ``noise``
is what rescoring alone does: the mean of exp(|difference|) of two scores of the same response under the same weights.
Scope ``task:NAME`` is one task of several. The base itself has no row.
Unit: ratio. Estimator: mean over the correct panel responses of a problem, then over problems; 95 % t interval over
problems; n counts problems. Shown only if the effective sample size (Σw)²/Σw² of the ratios w is above 80 % of the
number of correct responses; otherwise a few responses decide, and the reason names it.
Limits: a ratio between 1/noise and noise is no change. Small drifts of long responses already push the effective sample
size below 80 %, so it is often unknown late in training: unknown is no loss. At a panel temperature other than 1 it
weighs what the base finds likely differently than the base does. No test of Def 2.1 of [A]: it averages over modes.
Source: importance sampling with the base as proposal; effective sample size after Kong 1992 (technical report 348,
University of Chicago). The limits of teacher forcing concern Δ⁺ of [C] (The Reasoning Boundary Paradox), Def 4.1.

>>> import math
>>> from dataclasses import replace
>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> panel = tiny_evidence("panel_logps", "checkpoint_id problem_id sample_index correct logp_sum n_tokens", [
...     ("base", "q1", 0, True, math.log(0.4), 9), ("base", "q2", 0, True, math.log(0.5), 9),
...     ("late", "q1", 0, True, math.log(0.2), 9), ("late", "q2", 0, True, math.log(0.4), 9)])
>>> repeated = tiny_evidence("repeated_logps", "checkpoint_id problem_id response_id logp_sum second_logp_sum", [
...     ("late", "q1", "r1", -1.0, -1.001)])
>>> evidence = replace(panel, frames={**panel.frames, **repeated.frames})
>>> [(f.scope, round(f.value, 4), f.n) for f in compute(evidence)]  # (0.5 + 0.8) / 2
[('all', 0.65, 2), ('noise', 1.001, 1)]
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float

from oversharp.diagnostics.measures._findings import comparisons, known, unknown
from oversharp.diagnostics.measures._panel import NO_PANEL, NONE_CORRECT, panel_of
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.intervals import mean_interval
from oversharp.diagnostics.statistics.units import Interval

NO_NOISE = "no panel response is scored twice here, so the noise is unknown; run the audit again"
LEAST_EFFECTIVE_SHARE = 0.8
MOST_NATS = 700.0  # exp(709) is the largest that a double holds


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per scope and checkpoint but the base; unknown where a few responses decide, or without the noise."""
    panel = panel_of(evidence)
    findings = []
    for checkpoint_id, why_not in comparisons(evidence, panel.why):
        noise = _noise(evidence, checkpoint_id)
        if why_not or not panel.correct_R.any():
            findings.append(unknown(MEASURE, checkpoint_id, why_not or NONE_CORRECT))
            continue
        if noise is None:
            findings.append(unknown(MEASURE, checkpoint_id, NO_NOISE))
            continue
        change_R = panel.change_nats(evidence.base_id, checkpoint_id)
        for scope, in_scope_P in panel.task_scopes():
            used_R = panel.correct_R & in_scope_P[panel.problem_R]
            if not used_R.any():
                continue
            too_uneven = _too_uneven(change_R[used_R])
            if too_uneven:
                findings.append(unknown(MEASURE, checkpoint_id, too_uneven, scope=scope))
                continue
            ratio_R = np.exp(np.where(used_R, change_R, 0.0))
            ((_, interval),) = panel.intervals(ratio_R, [(scope, in_scope_P)], among_R=used_R, bounds=(0.0, math.inf))
            findings.append(known(MEASURE, checkpoint_id, interval, scope=scope))
        findings.append(known(MEASURE, checkpoint_id, noise, scope="noise"))
    return findings


def _too_uneven(change_R: Float[np.ndarray, " response"]) -> str | None:
    """Why a mean of exp(change) rests on too few of the responses, or None."""
    weight_R = np.exp(change_R - change_R.max())  # relative to the largest: no overflow
    n_effective = float(weight_R.sum() ** 2 / np.sum(weight_R**2))
    if n_effective > LEAST_EFFECTIVE_SHARE * len(change_R):
        # One response, or a panel that moved as one: even, but beyond what a double holds.
        return None if change_R.max() < MOST_NATS else f"the change exceeds {MOST_NATS:.0f} nats"
    share = 100 * n_effective / len(change_R)
    return (
        f"the ratios are too uneven: {n_effective:.1f} of {len(change_R)} responses are effective ({share:.0f} %), "
        "above 80 % is needed"
    )


def _noise(evidence: Evidence, checkpoint_id: str) -> Interval | None:
    """Mean of exp(|second score − first score|), problem means first; None where nothing is scored twice."""
    frame = evidence.frames["repeated_logps"]
    here = frame[frame["checkpoint_id"] == checkpoint_id]
    if here.empty:
        return None
    factor = np.exp((here["second_logp_sum"] - here["logp_sum"]).abs())
    per_problem = factor.groupby(here["problem_id"], sort=True).mean()
    return mean_interval(per_problem.to_numpy(dtype=np.float64), bounds=(1.0, math.inf))


MEASURE = Measure(
    name="panel_probability_ratio",
    title="Panel probability ratio",
    unit="ratio",
    section="interference",
    needs=("panel_logps", "repeated_logps"),
    missing=NO_PANEL,
    plot=Plot(x="step", group="scope", y_label="π_t / π_base of correct panel responses (ratio)"),
    compute=compute,
    of_base=False,
)
