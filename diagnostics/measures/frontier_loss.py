"""Pass@k against that of the base drawn sharper, at equal pass@1: what was lost beyond what sharpening costs.

Meaning: a higher pass@1 costs pass@k where it is had by drawing the base sharper. Below 0 the run paid more: that part
is forgetting. The rest of the fall of pass@k is reweighting, which a higher temperature gives back.
Three controls, by name, each a frontier of its own (the scope): ``temperature``, the base drawn at lower temperatures
(``--controls``); ``power``, its sampled responses reweighted to p^α, where they hold 90 % of its probability;
``answers``, the answers of m draws that agree, from counts alone and so for every import. k is the largest power of two
up to half of the fewest samples, up to those of the controls, and for ``answers`` up to a sixteenth.
Unit: probability (difference). Estimator and interval: as of ``frontier_gain``. n counts problems.
Limits: where no sharpening reaches the run's pass@1, there is nothing to compare with, and the reason says so.
Source: ours; see ``frontier_gain``.

>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", [
...     (c, f"q{i}", 8, hits) for c, *two in (("base", 3, 2), ("late", 6, 1)) for i, hits in enumerate(two * 20)], n=8)
>>> colder = tiny_evidence("control_counts", "checkpoint_id problem_id temperature own_temperature n n_correct", [
...     ("base", f"q{i}", 0.5, 1.0, 8, hits) for i, hits in enumerate([7, 1] * 20)], n=8)
>>> evidence.frames.update(colder.frames)
>>> [(f.scope, f.checkpoint_id, f.value and round(f.value, 3)) for f in compute(evidence) if f.scope == "temperature"]
[('temperature', 'late', -0.041)]
"""

from __future__ import annotations

from oversharp.diagnostics.measures._counts import OF_ANSWERS
from oversharp.diagnostics.measures._frontier import findings
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per checkpoint but the base, for each way of drawing the base sharper."""
    return findings(MEASURE, evidence, lambda against: against.loss)


MEASURE = Measure(
    name="frontier_loss",
    title="Pass@k against the sharpened base",
    unit="probability",
    section="coverage",
    needs=("sampled_counts",),
    also=("control_counts", "greedy_grades", "base_responses", "answer_counts"),
    missing="no graded samples",
    plot=Plot(x="step", group="scope", y_label="pass@k − sharpened base"),
    compute=compute,
    columns=OF_ANSWERS,
    signed=True,
    of_base=False,
)
