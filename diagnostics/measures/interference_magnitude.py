"""Interference magnitude against base: how far the log-probabilities of the base's responses have moved at all.

Meaning: ‖Δ‖, correct responses and wrong ones, up or down. At 0 nothing outside the training batches changed; no loss
of coverage is possible then. Scope ``all`` is the whole problem set, ``task:NAME`` one task of several, ``base 0-10%``
and so on problems by base success. The base itself has no row.
Unit: nats², a mean square without a root, of the sum over a response's tokens. Estimator: mean over all panel responses
of a problem, then over problems. 95 % t interval over problems; n counts problems of the panel.
Limits: a few responses that moved far make most of it. It says nothing of direction: sharpening that only raises
correct responses has a large magnitude too. Long responses move further. The panel is drawn at the panel temperature,
and wordings of one mode that trade places (phrasing noise) count as movement.
Source: [C] (The Reasoning Boundary Paradox), Def 4.1, with the base as μ and all training as the update.

>>> from diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("panel_logps", "checkpoint_id problem_id sample_index correct logp_sum n_tokens", [
...     ("base", "q1", 0, True, -8.0, 9), ("base", "q2", 0, False, -5.0, 9),
...     ("late", "q1", 0, True, -6.0, 9), ("late", "q2", 0, False, -8.0, 9)])
>>> [(f.checkpoint_id, f.value, f.n) for f in compute(evidence)]  # (2² + 3²) / 2 nats²
[('late', 6.5, 2)]
"""

from __future__ import annotations

from diagnostics.measures._findings import comparisons
from diagnostics.measures._interference import magnitude_findings
from diagnostics.measures._panel import NO_PANEL, panel_of, success_scopes
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.records.types import Finding


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per scope and checkpoint but the base; unknown where either has scored a part of the panel only."""
    panel = panel_of(evidence)
    pairs = [(evidence.base_id, checkpoint_id, why) for checkpoint_id, why in comparisons(evidence, panel.why)]
    return magnitude_findings(MEASURE, panel, pairs, [*panel.task_scopes(), *success_scopes(evidence, panel)])


MEASURE = Measure(
    name="interference_magnitude",
    title="Interference magnitude against base",
    unit="nats²",
    section="interference",
    needs=("panel_logps", "sampled_counts"),
    missing=NO_PANEL,
    plot=Plot(x="step", group="scope", y_label="mean squared change (nats²)"),
    compute=compute,
    of_base=False,
)
