"""Pass@1 beyond that of the base drawn sharper, at equal pass@k: what training gave that sharpening does not give.

Meaning: of a rise of pass@1, drawing the base at a lower temperature gives a part for nothing, and pays for it in
pass@k. What is left is training's. At 0 the run is a temperature; below 0 sharpening does better.
Three controls, by name, each a frontier of its own (the scope): ``temperature``, the base drawn at lower temperatures
(``--controls``); ``power``, its sampled responses reweighted to p^α, where they hold 90 % of its probability;
``answers``, the answers of m draws that agree, from counts alone and so for every import. k is the largest power of two
up to half of the fewest samples, up to those of the controls, and for ``answers`` up to a sixteenth. The points of
``answers`` have their first bias taken off (jackknife) and go as far as the samples tell them within half a point: 2
draws that agree from 32 samples of each problem on, 3 from 64, 4 from 128, 8 from 256.
Unit: probability (difference). Estimator: unbiased pass@1 and pass@k; the frontier between its points is made monotone
(isotonic regression) and interpolated over the sharpness; 95 % interval by a bootstrap over problems, redrawing
all points together. n counts problems.
Limits: where pass@k is that of no point between the base and the sharpest draw, the gain has bounds but no value. The
frontier is flat where pass@k is near 1, and the gain is then known badly: see ``frontier_loss``.
Source: temperature as a control is ours; power sampling is arXiv 2510.14901; isotonic regression by scikit-learn.

>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", [
...     (c, f"q{i}", 8, hits) for c, *two in (("base", 3, 2), ("late", 6, 1)) for i, hits in enumerate(two * 20)], n=8)
>>> colder = tiny_evidence("control_counts", "checkpoint_id problem_id temperature own_temperature n n_correct", [
...     ("base", f"q{i}", 0.5, 1.0, 8, hits) for i, hits in enumerate([7, 1] * 20)], n=8)
>>> evidence.frames.update(colder.frames)
>>> [(f.scope, f.checkpoint_id, f.value and round(f.value, 3)) for f in compute(evidence) if f.scope == "temperature"]
[('temperature', 'late', -0.062)]
"""

from __future__ import annotations

from oversharp.diagnostics.measures._counts import OF_ANSWERS
from oversharp.diagnostics.measures._frontier import findings
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per checkpoint but the base, for each way of drawing the base sharper."""
    return findings(MEASURE, evidence, lambda against: against.gain)


MEASURE = Measure(
    name="frontier_gain",
    title="Gain beyond sharpening",
    unit="probability",
    section="coverage",
    needs=("sampled_counts",),
    also=("control_counts", "greedy_grades", "base_responses", "answer_counts"),
    missing="no graded samples",
    plot=Plot(x="step", group="scope", y_label="pass@1 − sharpened base"),
    compute=compute,
    columns=OF_ANSWERS,
    signed=True,
    of_base=False,
)
