"""Mode shares, exactly: how the correct probability is split between the base's leading mode and the others.

Meaning: π(mode | correct), averaged over problems. Scope ``dominant`` is the mode that is likeliest under the base,
``second`` the base's second, ``other`` all others; the three sum to 1. A dominant share that climbs to 1 is mode
collapse onto what the base preferred already.
Unit: share of probability. 95 % t interval over problems with a variance floor.
Limits: only where all accepted responses of a problem are listed, and some problem lists two; problems that the
checkpoint cannot solve at all are left out. Ties under the base go to the first mode in lexical order.
Source: [A] (arXiv 2601.15609), section 2 (modes and their probabilities).

>>> import math
>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", [
...     ("base", "q1", "a", math.log(0.3)), ("base", "q1", "b", math.log(0.1)),
...     ("late", "q1", "a", math.log(0.2)), ("late", "q1", "b", math.log(0.6))])
>>> [(f.checkpoint_id, f.scope, round(f.value, 4)) for f in compute(evidence)][:4]
[('base', 'dominant', 0.75), ('base', 'second', 0.25), ('base', 'other', 0.0), ('late', 'dominant', 0.25)]
"""

from __future__ import annotations

import numpy as np

from oversharp.diagnostics.measures._exact import NO_MODES, exact_modes
from oversharp.diagnostics.measures._findings import among, checkpoint_ids, known, unknown
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.intervals import share_interval

SCOPES = ("dominant", "second", "other")


def compute(evidence: Evidence) -> list[Finding]:
    """Three findings per checkpoint, one per scope; unknown where a mode, here or under the base, is not scored."""
    modes = exact_modes(evidence)
    ids = checkpoint_ids(evidence)
    why = dict(modes.why)
    if ids and evidence.base_id in why:
        why = dict.fromkeys(ids, f"base: {why[evidence.base_id]}")
    findings = []
    for checkpoint_id in ids:
        if why_not := why.get(checkpoint_id) or modes.one_each:
            findings += [unknown(MEASURE, checkpoint_id, why_not, scope=scope) for scope in SCOPES]
            continue
        # Rank of each mode under the base within its problem: 0 is dominant. Stable, so ties keep lexical order.
        order_M = np.lexsort((-modes.logp_M[evidence.base_id], modes.problem_M))
        rank_M = np.empty(len(order_M), dtype=np.int64)
        rank_M[order_M] = np.arange(len(order_M)) - modes.start_P[modes.problem_M]
        share_M, solvable_P = modes.conditional_shares(checkpoint_id)
        if not solvable_P.any():
            why_not = "every mode of every problem has probability 0"
            findings += [unknown(MEASURE, checkpoint_id, why_not, scope=scope) for scope in SCOPES]
            continue
        for rank, scope in enumerate(SCOPES):
            share_P = modes.sum_by_problem(np.where(np.minimum(rank_M, 2) == rank, share_M, 0.0))
            share = share_interval(share_P[solvable_P], cluster_P=among(modes.cluster_P, solvable_P))
            findings.append(known(MEASURE, checkpoint_id, share, scope=scope))
    return findings


MEASURE = Measure(
    name="mode_share_exact",
    title="Mode shares (exact)",
    unit="share of probability",
    section="modes",
    needs=("mode_logps",),
    missing=NO_MODES,
    plot=Plot(x="step", group="scope", y_label="share of correct probability", y_range=(0.0, 1.0)),
    compute=compute,
)
