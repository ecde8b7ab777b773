"""Interference from checkpoint to checkpoint: how the base's correct responses changed since the one before.

Meaning: Δ⁺ of the training between two neighbouring checkpoints. Below 0, these updates made solutions that the base
had less likely (negative interference). Scope ``all`` is the whole problem set, ``task:NAME`` one task of several,
``base 0-10%`` and so on problems by base success.
The base has no row.
Unit: nats per response: the sum over its tokens. Estimator: mean over the correct panel responses of a problem, then
over problems. 95 % paired t interval over problems; n counts problems with a correct panel response.
Limits: the paper's update is one optimiser step; here it is all of them between two checkpoints, so values compare
only where checkpoints are evenly spaced. Not a test of Def 2.1 of [A]: wordings of one mode that trade places (phrasing
noise) move it too. The panel is drawn at the panel temperature. The steps add up to ``interference``.
Source: [C] (The Reasoning Boundary Paradox), Def 4.1, Eq 5, Fig 2C, with the base as μ.

>>> from diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("panel_logps", "checkpoint_id problem_id sample_index correct logp_sum n_tokens", [
...     ("base", "q1", 0, True, -8.0, 9), ("base", "q2", 0, True, -5.0, 9),
...     ("20", "q1", 0, True, -6.0, 9), ("20", "q2", 0, True, -4.0, 9),
...     ("40", "q1", 0, True, -7.0, 9), ("40", "q2", 0, True, -6.0, 9)])
>>> [(f.checkpoint_id, f.value) for f in compute(evidence)]
[('20', 1.5), ('40', -1.5)]
"""

from __future__ import annotations

from diagnostics.measures._interference import direction_findings
from diagnostics.measures._panel import NO_PANEL, panel_of, steps, success_scopes
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.records.types import Finding


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per scope and checkpoint but the first; unknown where either has scored a part of the panel only."""
    panel = panel_of(evidence)
    return direction_findings(
        MEASURE, panel, steps(evidence, panel.why), [*panel.task_scopes(), *success_scopes(evidence, panel)]
    )


MEASURE = Measure(
    name="interference_step",
    title="Interference between checkpoints",
    unit="nats per response",
    section="interference",
    needs=("panel_logps", "sampled_counts"),
    missing=NO_PANEL,
    plot=Plot(x="step", group="scope", y_label="Δ⁺ since the checkpoint before (nats per response)"),
    compute=compute,
    signed=True,
    of_base=False,
)
