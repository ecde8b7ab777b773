"""Δ_π: by how much the least likely sampled correct response is likelier than the most likely sampled wrong one.

Meaning: π⁺_min − π⁻_max, under the base, over a checkpoint's own samples of a problem; the mean over problems with
both kinds. Above 0 the base was already sure of what is right there, and then a batch is sure to take probability from
all that it did not sample (``z_prime_share``). Below 0 nothing follows.
Unit: difference of probabilities, −1 to 1. 95 % t interval over problems; n counts problems.
Limits: probabilities of whole responses: near 0 where responses are long. The least and the most of few samples grow
apart with more of them, so compare checkpoints of one audit.
Source: [A] (arXiv 2601.15609), Theorem 2.3. Δ_π > 0 is sufficient for Z′ > 1, not necessary.

>>> from math import log
>>> from diagnostics.measures._example import tiny_evidence
>>> columns = "checkpoint_id problem_id sample_index response_id correct base_logp_sum"
>>> evidence = tiny_evidence("own_logps", columns, [
...     ("base", "q1", 0, "a", True, log(0.6)), ("base", "q1", 1, "b", False, log(0.2)),
...     ("base", "q2", 0, "c", True, log(0.1)), ("base", "q2", 1, "d", True, log(0.8))])
>>> [(round(f.value, 4), f.n) for f in compute(evidence)]
[(0.4, 1)]
"""

from __future__ import annotations

from diagnostics.measures._findings import checkpoint_ids, unknown
from diagnostics.measures._kernel_findings import over_problems
from diagnostics.measures._own import NO_OWN_LOGPS
from diagnostics.measures._z_prime import NONE_MIXED, own_partitions
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.records.types import Finding


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per checkpoint; unknown where no batch has both correct and wrong samples."""
    complete, why = own_partitions(evidence)
    findings = []
    for checkpoint_id in checkpoint_ids(evidence):
        if checkpoint_id in why:
            findings.append(unknown(MEASURE, checkpoint_id, why[checkpoint_id]))
            continue
        gaps = [one.bounds().gap.value for one in complete[checkpoint_id]]
        known_gaps = [gap for gap in gaps if gap is not None]
        findings.append(over_problems(MEASURE, checkpoint_id, known_gaps, scope="all", why=NONE_MIXED))
    return findings


MEASURE = Measure(
    name="delta_pi",
    title="Probability gap Δ_π",
    unit="difference of probabilities",
    section="kernel",
    needs=("own_logps",),
    missing=NO_OWN_LOGPS,
    plot=Plot(x="step", y_label="π⁺_min − π⁻_max under the base"),
    compute=compute,
    signed=True,
)
