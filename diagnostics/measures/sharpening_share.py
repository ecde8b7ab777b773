"""Of the rise of pass@1 since the base, the share that the base drawn sharper has too, at equal pass@k.

Meaning: 1 says that training gave what a temperature gives, 0 that none of its rise is sharpening. Above 1 sharpening
does better than training did.
Three controls, by name, each a frontier of its own (the scope): ``temperature``, the base drawn at lower temperatures
(``--controls``); ``power``, its sampled responses reweighted to p^α, where they hold 90 % of its probability;
``answers``, the answers of m draws that agree, from counts alone and so for every import. k is the largest power of two
up to half of the fewest samples, up to those of the controls, and for ``answers`` up to a sixteenth.
Unit: part of the rise of pass@1. Estimator: 1 − ``frontier_gain`` / rise; interval by the same bootstrap. n counts
problems.
Limits: unknown unless pass@1 surely rose; the share of a small rise is known badly, and given only where pass@1 came
out high: its interval is therefore taken wider than the others (at 98 %). In the worst simulated case that gives it
often enough to count, it holds the truth in 93 % of the audits that give it (benchmarks/results/frontier.md).
Source: ours; see ``frontier_gain``.

>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", [
...     (c, f"q{i}", 8, hits) for c, *two in (("base", 3, 2), ("late", 6, 1)) for i, hits in enumerate(two * 20)], n=8)
>>> colder = tiny_evidence("control_counts", "checkpoint_id problem_id temperature own_temperature n n_correct", [
...     ("base", f"q{i}", 0.5, 1.0, 8, hits) for i, hits in enumerate([7, 1] * 20)], n=8)
>>> evidence.frames.update(colder.frames)
>>> [(f.scope, f.checkpoint_id, f.value and round(f.value, 3)) for f in compute(evidence) if f.scope == "temperature"]
[('temperature', 'late', 1.5)]
"""

from __future__ import annotations

from oversharp.diagnostics.measures._counts import OF_ANSWERS
from oversharp.diagnostics.measures._frontier import findings
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per checkpoint but the base, for each way of drawing the base sharper."""
    return findings(MEASURE, evidence, lambda against: against.share)


MEASURE = Measure(
    name="sharpening_share",
    title="Share of the rise that is sharpening",
    unit="part of the rise",
    section="coverage",
    needs=("sampled_counts",),
    also=("control_counts", "greedy_grades", "base_responses", "answer_counts"),
    missing="no graded samples",
    plot=Plot(x="step", group="scope", y_label="part of the rise"),
    compute=compute,
    columns=OF_ANSWERS,
    signed=True,
    of_base=False,
)
