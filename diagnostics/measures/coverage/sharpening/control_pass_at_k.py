"""Measure of pass@k for samples drawn at other temperatures, and for reweighted samples of the base."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from oversharp.diagnostics.measures.contract import Evidence, Plot, Result, Results
from oversharp.diagnostics.measures.counts import ANSWER_COLUMNS, ControlSamples, load_sampled_counts
from oversharp.diagnostics.measures.coverage.sharpening.controls import EXPONENTS, load_controls
from oversharp.diagnostics.measures.declare import per_series
from oversharp.diagnostics.statistics.intervals import share_interval

MISSING = "not sampled at another temperature; run the audit with --controls"


@per_series(
    needs=("control_counts",),
    missing=MISSING,
    also=("sampled_counts", "base_responses", "greedy_grades", "answer_counts"),
    columns=ANSWER_COLUMNS,
    title="Pass@k of the controls",
    unit="probability",
    section="coverage",
    plot=Plot(x="step", group="scope", y_label="pass@k", y_range=(0.0, 1.0)),
)
def control_pass_at_k(evidence: Evidence) -> Iterator[tuple[str, Results]]:
    """Pass@k of the controls: samples at other temperatures, and the base reweighted.

    Meaning: for the base, these are the points of the sharpening frontiers. For another checkpoint, it is pass@k at a
    higher temperature. The scope is the temperature, such as ``T=0.6``, or for the base the exponent, such as
    ``power=2``. In ``power=2`` the base's samples are reweighted to p²; it is unknown if its distinct samples have less
    than 90 % of its probability mass. Do not pool these samples with the audit's own samples: settings and random
    numbers differ.
    Unit: probability. Estimator: mean over problems of the unbiased estimate. 95 % t interval over problems with a
    variance floor. n counts problems. k are the powers of two up to the number of samples, and for ``power`` up to half
    of it.
    Limits: only with ``--controls``. If the audit uses top-p or top-k, these samples use the same values.
    Source: ours; pass@k as in Chen et al. 2021 (arXiv 2107.03374).

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> columns = "checkpoint_id problem_id temperature own_temperature n n_correct"
    >>> evidence = tiny_evidence("control_counts", columns, [("base", f"q{i}", 0.5, 1.0, 2, 1) for i in range(40)], n=2)
    >>> [(f.checkpoint_id, f.scope, f.k, f.value) for f in control_pass_at_k(evidence)]
    [('base', 'T=0.5', 1, 0.5), ('base', 'T=0.5', 2, 1.0)]
    """
    controls = evidence.frames["control_counts"]
    n_problems = controls["problem_id"].nunique()
    for checkpoint_id in evidence.checkpoint_ids:
        own = controls[controls["checkpoint_id"] == checkpoint_id]
        if own.empty:
            yield checkpoint_id, MISSING
        for temperature, rows in own.sort_values("problem_id").groupby("temperature"):
            yield checkpoint_id, _pass_at_temperature(evidence, rows, f"T={temperature:g}", n_problems)
    if len(evidence.frames.get("sampled_counts", ())):
        yield evidence.base_id, _pass_reweighted(evidence)


def _pass_at_temperature(evidence: Evidence, rows: pd.DataFrame, scope: str, n_problems: int) -> Results:
    if len(rows) < n_problems or (rows["n"] != rows["n_planned"]).any():
        return {scope: "the samples are incomplete"}
    drawn = ControlSamples.from_rows(evidence, rows)
    cluster_P = evidence.clusters(rows["problem_id"])
    return {
        (scope, k): share_interval(drawn.pass_at_k(k), cluster_P=cluster_P)
        for k in (2**power for power in range(drawn.n_most.bit_length()))
    }


def _pass_reweighted(evidence: Evidence) -> dict[tuple[str, int | None], Result]:
    """Return pass@k of the base's reweighted samples, empty if it is unknown."""
    power = next(control for control in load_controls(evidence) if control.name == "power")
    if power.rate_SP is None:
        return {}
    cluster_P = load_sampled_counts(evidence)[0][evidence.base_id].cluster_P
    return {
        (f"power={exponent:g}", k): share_interval(1.0 - (1.0 - rate_P) ** k, cluster_P=cluster_P)
        for exponent, rate_P in zip(EXPONENTS[1:], power.rate_SP, strict=True)
        for k in (2**i for i in range(power.k.bit_length()))
    }
