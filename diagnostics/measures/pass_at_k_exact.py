"""Exact pass@k: coverage from the probabilities of all correct modes, without sampling noise.

Meaning: with p⁺ the sum of the probabilities of a problem's correct modes, pass@k = 1 − (1 − p⁺)^k, averaged over
problems. Any k is legal, because nothing is sampled.
Unit: probability. 95 % t interval over problems with a variance floor: it speaks about other problems like these;
on these problems the value is exact.
Limits: only where all accepted responses of a problem are listed. Probabilities are at temperature 1 without
truncation, whatever the sampling settings of the audit are.
Source: [A] (arXiv 2601.15609), section 2 (modes and their probabilities).

>>> import math
>>> from diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", [
...     ("base", "q", "6 * 7", math.log(0.25)), ("base", "q", "7 * 6", math.log(0.25))], ks=(1, 2))
>>> [(f.k, round(f.value, 4)) for f in compute(evidence)]
[(1, 0.5), (2, 0.75)]
"""

from __future__ import annotations

import itertools

from diagnostics.measures._exact import exact_modes, pass_at_k_from_success
from diagnostics.measures._findings import checkpoint_ids, known, unknown
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.records.types import Finding
from diagnostics.statistics.intervals import share_interval


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per checkpoint and k; unknown where a mode is not scored."""
    modes = exact_modes(evidence)
    findings = []
    for checkpoint_id, k in itertools.product(checkpoint_ids(evidence), evidence.ks):
        if checkpoint_id in modes.why:
            findings.append(unknown(MEASURE, checkpoint_id, modes.why[checkpoint_id], k=k))
            continue
        value_P = pass_at_k_from_success(modes.success_probabilities(checkpoint_id), k)
        findings.append(known(MEASURE, checkpoint_id, share_interval(value_P), k=k))
    return findings


MEASURE = Measure(
    name="pass_at_k_exact",
    title="Exact pass@k",
    unit="probability",
    section="coverage",
    needs=("mode_logps",),
    missing="the problems do not list every accepted response (modes), so exact probabilities are unknown",
    plot=Plot(x="k", group="checkpoint", y_label="exact pass@k", log_x=True, y_range=(0.0, 1.0)),
    compute=compute,
)
