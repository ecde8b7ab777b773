"""Measure of the ratio of the panel's probabilities under a checkpoint and under the base."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from oversharp.diagnostics.measures.contract import Evidence, Plot, Result, Results
from oversharp.diagnostics.measures.declare import Input, Loaded, against_base
from oversharp.diagnostics.measures.panel.scores import NO_PANEL, NONE_CORRECT, PanelScores, load_panel_scores
from oversharp.diagnostics.statistics.intervals import mean_interval
from oversharp.diagnostics.statistics.units import Interval

NO_NOISE = "no panel response is scored twice here, so the noise is unknown; run the audit again"
LEAST_EFFECTIVE_SHARE = 0.8
MOST_NATS = 700.0  # exp() of more than 709 exceeds the largest double


@dataclass(frozen=True, kw_only=True)
class _ScoresAndNoise:
    """Panel scores of a checkpoint, and the ratio that rescoring alone causes, None if unknown."""

    scores: PanelScores
    noise: Interval | None


def _load(evidence: Evidence) -> Loaded[_ScoresAndNoise]:
    """Load the panel, and the mean over problems of exp(|second score − first score|)."""
    scores, why = load_panel_scores(evidence)
    repeated = evidence.frames["repeated_logps"]
    factor = np.exp((repeated["second_logp_sum"] - repeated["logp_sum"]).abs())
    noise = {}
    for checkpoint_id, factors in factor.groupby(repeated["checkpoint_id"]):
        per_problem = factors.groupby(repeated["problem_id"], sort=True).mean()
        noise[checkpoint_id] = mean_interval(per_problem.to_numpy(dtype=np.float64), bounds=(1.0, math.inf))
    return {i: _ScoresAndNoise(scores=own, noise=noise.get(i)) for i, own in scores.items()}, why


@against_base(
    input=Input(load=_load, needs=("panel_logps", "repeated_logps"), missing=NO_PANEL),
    title="Panel probability ratio",
    unit="ratio",
    section="interference",
    rank=70,
    plot=Plot(x="step", group="scope", y_label="π_t / π_base of correct panel responses (ratio)"),
)
def panel_probability_ratio(base: _ScoresAndNoise, late: _ScoresAndNoise) -> Results:
    """Panel probability ratio: π_t / π_base of the base's correct responses.

    Meaning: the mean of π_t(y⁺) / π_base(y⁺) over the base's correct panel responses. 1 is no change, and below 1 is a
    loss. If the panel is sampled at temperature 1, a problem's mean estimates the checkpoint's success probability
    divided by the base's, over responses that the base can produce. Rewordings cancel, unlike in ``interference``.
    Scope ``noise`` is the effect of rescoring: the mean of exp(|difference|) of two scores of the same response under
    the same weights. Scope ``task:NAME`` is one task if there are several. The base has no finding.
    Unit: ratio. Estimator: mean over the correct panel responses of a problem, then over problems. 95 % t interval over
    problems. n counts problems. The ratio is reported only if the effective sample size (Σw)²/Σw² of the ratios w is
    above 80 % of the number of correct responses. Otherwise a few responses dominate the mean.
    Limits: a ratio between 1/noise and noise is no change. Small drifts of long responses lower the effective sample
    size below 80 %, so the ratio is often unknown late in training. Unknown does not mean a loss. If the panel
    temperature is not 1, responses have other weights than under the base. This does not test Def 2.1 of [A], because
    it averages over modes.
    Source: importance sampling with the base as proposal; effective sample size after Kong 1992 (technical report 348,
    University of Chicago). The limits of teacher forcing concern Δ⁺ of [C] (The Reasoning Boundary Paradox), Def 4.1.

    >>> import math
    >>> from oversharp.diagnostics.measures.examples import combine_views, tiny_evidence
    >>> panel = tiny_evidence("panel_logps", "checkpoint_id problem_id sample_index correct logp_sum n_tokens", [
    ...     ("base", "q1", 0, True, math.log(0.4), 9), ("base", "q2", 0, True, math.log(0.5), 9),
    ...     ("late", "q1", 0, True, math.log(0.2), 9), ("late", "q2", 0, True, math.log(0.4), 9)])
    >>> repeated = tiny_evidence("repeated_logps", "checkpoint_id problem_id response_id logp_sum second_logp_sum", [
    ...     ("late", "q1", "r1", -1.0, -1.001)])
    >>> evidence = combine_views(panel, repeated)
    >>> [(f.scope, round(f.value, 4), f.n) for f in panel_probability_ratio(evidence)]  # (0.5 + 0.8) / 2
    [('all', 0.65, 2), ('noise', 1.001, 1)]
    """
    scores = late.scores
    if not scores.correct_R.any():
        return NONE_CORRECT
    if late.noise is None:
        return NO_NOISE
    change_R = scores.change_nats(base.scores)
    results: dict[str, Result] = {}
    for scope, in_scope_P in scores.task_scopes():
        is_used_R = scores.correct_R & in_scope_P[scores.problem_R]
        if not is_used_R.any():
            continue
        if why_not := _why_uneven(change_R[is_used_R]):
            results[scope] = why_not
            continue
        ratio_R = np.exp(np.where(is_used_R, change_R, 0.0))
        bounds = (0.0, math.inf)
        results |= scores.intervals(ratio_R, [(scope, in_scope_P)], is_counted_R=is_used_R, bounds=bounds)
    return results | {"noise": late.noise}


def _why_uneven(change_R: Float[np.ndarray, " response"]) -> str | None:
    """Return why a few responses dominate the mean of exp(change), or None."""
    weight_R = np.exp(change_R - change_R.max())  # relative to the largest, to avoid overflow
    n_effective = float(weight_R.sum() ** 2 / np.sum(weight_R**2))
    if n_effective > LEAST_EFFECTIVE_SHARE * len(change_R):
        # a single response, or equal changes, can be arbitrarily large, so exp() may overflow
        return None if change_R.max() < MOST_NATS else f"the change exceeds {MOST_NATS:.0f} nats"
    share = 100 * n_effective / len(change_R)
    return (
        f"the ratios are too uneven: the effective sample size is {n_effective:.1f} of {len(change_R)} responses "
        f"({share:.0f} %); it must be above 80 %"
    )
