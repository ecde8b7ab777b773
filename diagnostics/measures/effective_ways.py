"""Effective ways: how many equally frequent ways of solving a problem's correct samples amount to.

Meaning: 1 / mean over problems of the chance that two correct samples of one problem go the same way (unbiased Simpson
index). It is what ``effective_modes`` is where every correct response is listed; here the ways are read from the
responses themselves, so that a task with one gold answer has a number too. Scope ``all`` is of ways, ``written`` of
every different set of steps, ``operations`` and ``strategy`` are coarser.
Unit: ways. 95 % interval: the t interval of the mean index with a variance floor, turned over; n counts problems with
at least two correct samples of a known way. The upper end is open (None) where the index could be 0.
Limits: samples whose way is not known are left out (``ways_unknown`` says how many), and the problems that count differ
between checkpoints. As good as the reader: solutions in additions alone all read as one way. It falls under moderate
sharpening too, so it is never a verdict by itself.
Source: Simpson 1949, Nature 163:688; as effective number, Hill 1973, Ecology 54:427 (order 2).

>>> from oversharp.diagnostics.measures._example import tiny_ways
>>> rows = [("base", "q", "13 26", True, 2), ("base", "q", "26 32", False, 2), ("late", "q", "13 26", True, 4)]
>>> evidence = tiny_ways(rows)
>>> [(f.checkpoint_id, round(f.value, 4)) for f in compute(evidence) if f.scope == "all"]  # 4 of 12 pairs; then all
[('base', 3.0), ('late', 1.0)]
"""

from __future__ import annotations

import pandas as pd

from oversharp.diagnostics.measures._findings import checkpoint_ids, known, reciprocal, unknown
from oversharp.diagnostics.measures._ways import LEVELS, MISSING, NEEDS, NO_PAIR, OF_WAYS, rows_at, scope_of, whys
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.entropy import simpson_index
from oversharp.diagnostics.statistics.intervals import share_interval


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per checkpoint and level; unknown where no problem has two correct samples of a known way."""
    why = whys(evidence)
    findings = []
    for level in LEVELS:
        rows = rows_at(evidence, level)
        rows = rows[rows["way"].notna()]
        counts = rows.groupby(["checkpoint_id", "problem_id", "way"], observed=True)["n"].sum().reset_index()
        of_checkpoint = dict(tuple(counts.groupby("checkpoint_id")))
        for checkpoint_id in checkpoint_ids(evidence):
            if checkpoint_id in why:
                findings.append(unknown(MEASURE, checkpoint_id, why[checkpoint_id], scope=scope_of(level)))
            else:
                findings.append(_finding(evidence, checkpoint_id, level, of_checkpoint.get(checkpoint_id)))
    return findings


def _finding(evidence: Evidence, checkpoint_id: str, level: str, counts: pd.DataFrame | None) -> Finding:
    if counts is not None:
        counts = counts[counts.groupby("problem_id")["n"].transform("sum") >= 2]
    if counts is None or counts.empty:
        return unknown(MEASURE, checkpoint_id, NO_PAIR, scope=scope_of(level))
    group_A, problems = pd.factorize(counts["problem_id"])
    index_P = simpson_index(counts["n"].to_numpy(), group_A, len(problems))
    index = share_interval(index_P, cluster_P=evidence.clusters(map(str, problems)))
    if index.mean == 0.0:
        why_not = "no two correct samples of a problem go the same way; draw more samples"
        return unknown(MEASURE, checkpoint_id, why_not, scope=scope_of(level))
    return known(MEASURE, checkpoint_id, reciprocal(index), scope=scope_of(level))


MEASURE = Measure(
    name="effective_ways",
    title="Effective ways of solving",
    unit="ways",
    section="modes",
    needs=NEEDS,
    missing=MISSING,
    plot=Plot(x="step", group="scope", y_label="effective number of ways"),
    compute=compute,
    columns=OF_WAYS,
)
