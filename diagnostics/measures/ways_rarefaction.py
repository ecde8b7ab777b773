"""Ways rarefaction: how many different ways of solving k samples of a problem are expected to show.

Meaning: Σ over the ways of a problem of 1 − C(n−c, k)/C(n, k), the chance that a way gone c times in n samples is among
k of them, averaged over problems. It falls with every way that training makes rare, also while pass@k stays at 1.
Unit: ways. 95 % t interval over problems with a floor for those without one, for k up to n/2 and where five problems or
more show one. Equal samples of a problem at every checkpoint.
Limits: ways that were never drawn, and samples whose way is not known, do not count. It falls under moderate sharpening
too, so it is never a verdict by itself.
Source: Hurlbert 1971, Ecology 52:577, Eq 14.

>>> from oversharp.diagnostics.measures._example import tiny_ways
>>> rows = [("base", "q", "a", True, 2), ("base", "q", "b", False, 1), ("late", "q", "a", True, 4)]
>>> evidence = tiny_ways(rows, ks=(1, 2))
>>> [(f.checkpoint_id, f.k, round(f.value, 4)) for f in compute(evidence)]  # 1 − 1/6, and 1 − 3/6
[('base', 1, 0.75), ('base', 2, 1.3333), ('late', 1, 1.0), ('late', 2, 1.0)]
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from oversharp.diagnostics.measures._counts import common_counts, too_few_samples, within_reach
from oversharp.diagnostics.measures._findings import checkpoint_ids, known, unknown
from oversharp.diagnostics.measures._ways import LEVELS, MISSING, NEEDS, OF_WAYS, rows_at, whys
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.intervals import sparse_interval
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table

NONE_KNOWN = "no correct sample has a known way"


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per checkpoint and k; unknown where a problem lacks samples or no way is known at any checkpoint."""
    why = whys(evidence)
    rows = rows_at(evidence, LEVELS[0])
    rows = rows[rows["way"].notna()]
    counts = rows.groupby(["checkpoint_id", "problem_id", "way"], observed=True)["n"].sum().reset_index()
    findings = []
    for checkpoint_id in checkpoint_ids(evidence):
        why_not = why.get(checkpoint_id) or (NONE_KNOWN if counts.empty else None)
        if why_not:
            findings += [unknown(MEASURE, checkpoint_id, why_not, k=k) for k in evidence.ks]
        else:
            findings += _findings(evidence, checkpoint_id, counts[counts["checkpoint_id"] == checkpoint_id])
    return findings


def _findings(evidence: Evidence, checkpoint_id: str, own: pd.DataFrame) -> list[Finding]:
    counts = common_counts(evidence)
    n_P = counts.n_P[checkpoint_id]
    place_W = pd.Index(counts.problem_ids).get_indexer(own["problem_id"])
    n_W, count_W = n_P[place_W], own["n"].to_numpy(dtype=np.int64)
    least = counts.least(checkpoint_id)
    findings = []
    for k in evidence.ks:
        if too_few := too_few_samples(k, least):
            findings.append(unknown(MEASURE, checkpoint_id, too_few, k=k))
            continue
        seen_W = np.zeros(len(own))
        for n in np.unique(n_W):
            seen_W[n_W == n] = pass_at_k_table(int(n), [k])[count_W[n_W == n], 0]
        seen_P = np.bincount(place_W, weights=seen_W, minlength=len(n_P))
        interval = sparse_interval(seen_P, cluster_P=counts.cluster_P)
        findings.append(known(MEASURE, checkpoint_id, within_reach(interval, k, least), k=k))
    return findings


MEASURE = Measure(
    name="ways_rarefaction",
    title="Ways that k samples show",
    unit="ways",
    section="modes",
    needs=NEEDS,
    missing=MISSING,
    plot=Plot(x="k", group="checkpoint", y_label="ways in k samples", log_x=True),
    compute=compute,
    columns=OF_WAYS,
)
