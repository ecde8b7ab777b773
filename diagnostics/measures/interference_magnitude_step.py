"""Interference magnitude from checkpoint to checkpoint: how far the base's responses moved since the one before.

Meaning: ‖Δ‖ of the training between two neighbouring checkpoints, correct responses and wrong ones, up or down. If it
grows, updates reach further beyond their batches: the model tells problems apart less. Scope ``all`` is the whole
problem set, ``task:NAME`` one task of several,
``base 0-10%`` and so on problems by base success. The base has no row.
Unit: nats², a mean square without a root, of the sum over a response's tokens. Estimator: mean over all panel responses
of a problem, then over problems. 95 % t interval over problems; n counts problems of the panel.
Limits: the paper's update is one optimiser step; here it is all of them between two checkpoints, so values compare
only where checkpoints are evenly spaced, and grow with the learning rate. A few responses that moved far make most of
it. The panel is drawn at the panel temperature, and wordings of one mode that trade places (phrasing noise) count as
movement. Squares do not add up: the steps' sum is not ``interference_magnitude``.
Source: [C] (The Reasoning Boundary Paradox), Def 4.1, Fig 2B, with the base as μ.

>>> from diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("panel_logps", "checkpoint_id problem_id sample_index correct logp_sum n_tokens", [
...     ("base", "q1", 0, True, -8.0, 9), ("base", "q2", 0, False, -5.0, 9),
...     ("20", "q1", 0, True, -6.0, 9), ("20", "q2", 0, False, -8.0, 9),
...     ("40", "q1", 0, True, -7.0, 9), ("40", "q2", 0, False, -8.0, 9)])
>>> [(f.checkpoint_id, f.value) for f in compute(evidence)]
[('20', 6.5), ('40', 0.5)]
"""

from __future__ import annotations

from diagnostics.measures._interference import magnitude_findings
from diagnostics.measures._panel import NO_PANEL, panel_of, steps, success_scopes
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.records.types import Finding


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per scope and checkpoint but the first; unknown where either has scored a part of the panel only."""
    panel = panel_of(evidence)
    return magnitude_findings(
        MEASURE, panel, steps(evidence, panel.why), [*panel.task_scopes(), *success_scopes(evidence, panel)]
    )


MEASURE = Measure(
    name="interference_magnitude_step",
    title="Interference magnitude between checkpoints",
    unit="nats²",
    section="interference",
    needs=("panel_logps", "sampled_counts"),
    missing=NO_PANEL,
    plot=Plot(x="step", group="scope", y_label="mean squared change since the checkpoint before (nats²)"),
    compute=compute,
    of_base=False,
)
