"""Mode entropy, exactly: the entropy of π(mode | correct), averaged over problems.

Meaning: how evenly the correct probability is spread over a problem's correct modes. 0 means one mode is left; exp of
it is an effective number of modes.
Unit: nats. 95 % t interval over problems with a floor for those at 0, where five problems or more are above it; n
counts problems.
Limits: falls under every kind of sharpening, the moderate kind too, so it is never a verdict by itself. Only where all
accepted responses of a problem are listed, and some problem lists two; problems that the checkpoint cannot solve at all
are left out.
Source: Shannon entropy over the correct modes of [A] (arXiv 2601.15609), section 2.

>>> import math
>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", [
...     ("base", "q1", "a", math.log(0.2)), ("base", "q1", "b", math.log(0.2)),
...     ("late", "q1", "a", math.log(0.9)), ("late", "q1", "b", -math.inf)])
>>> [(f.checkpoint_id, round(f.value, 4)) for f in compute(evidence)]  # log 2, then nothing left
[('base', 0.6931), ('late', 0.0)]
"""

from __future__ import annotations

import numpy as np

from oversharp.diagnostics.measures._exact import NO_MODES, exact_modes
from oversharp.diagnostics.measures._findings import among, checkpoint_ids, known, unknown
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.intervals import sparse_interval


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per checkpoint; unknown where a mode is not scored or no problem can be solved."""
    modes = exact_modes(evidence)
    findings = []
    for checkpoint_id in checkpoint_ids(evidence):
        if why_not := modes.why.get(checkpoint_id) or modes.one_each:
            findings.append(unknown(MEASURE, checkpoint_id, why_not))
            continue
        share_M, solvable_P = modes.conditional_shares(checkpoint_id)
        if not solvable_P.any():
            findings.append(unknown(MEASURE, checkpoint_id, "every mode of every problem has probability 0"))
            continue
        surprise_M = -np.log(np.where(share_M > 0.0, share_M, 1.0))  # 0 · log 0 = 0
        entropy_P = modes.sum_by_problem(share_M * surprise_M)[solvable_P]
        entropy = sparse_interval(entropy_P, cluster_P=among(modes.cluster_P, solvable_P))
        findings.append(known(MEASURE, checkpoint_id, entropy))
    return findings


MEASURE = Measure(
    name="mode_entropy_exact",
    title="Mode entropy (exact)",
    unit="nats",
    section="entropy",
    needs=("mode_logps",),
    missing=NO_MODES,
    plot=Plot(x="step", y_label="entropy of correct modes (nats)"),
    compute=compute,
)
