"""Effective modes: how many equally frequent correct modes a problem's correct samples amount to.

Meaning: 1 / mean over problems of the chance that two correct samples of one problem share their mode (unbiased
Simpson index). 1 means a single way to solve each problem is left.
Unit: modes. 95 % interval: the t interval of the mean index with a variance floor, turned over; n counts problems with
at least two correct samples. The upper end is open (None) where the index could be 0.
Limits: the problems with two correct samples differ between checkpoints. Falls under moderate sharpening too, so it
is never a verdict by itself. Needs a verifier that names the mode of a solution; unknown where no problem shows a
second correct mode at any checkpoint, as with verifiers whose modes are the answers.
Source: Simpson 1949, Nature 163:688; as effective number, Hill 1973, Ecology 54:427 (order 2).

>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("answer_counts", "checkpoint_id problem_id answer mode correct n", [
...     ("base", "q", "42", "6 * 7", True, 2), ("base", "q", "42", "7 * 6", True, 2),
...     ("late", "q", "42", "6 * 7", True, 4)], n=4)
>>> [(f.checkpoint_id, round(f.value, 4)) for f in compute(evidence)]  # 4 of 12 ordered pairs agree; then all
[('base', 3.0), ('late', 1.0)]
"""

from __future__ import annotations

from oversharp.diagnostics.measures._counts import (
    OF_ANSWERS,
    ONE_MODE,
    correct_modes_by_checkpoint,
    shows_a_second_mode,
)
from oversharp.diagnostics.measures._findings import checkpoint_ids, known, reciprocal, unknown
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.entropy import simpson_index
from oversharp.diagnostics.statistics.intervals import share_interval


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per checkpoint; unknown where a problem lacks samples or no two correct samples share a mode."""
    modes, why = correct_modes_by_checkpoint(evidence)
    findings = []
    for checkpoint_id in checkpoint_ids(evidence):
        if checkpoint_id in why:
            findings.append(unknown(MEASURE, checkpoint_id, why[checkpoint_id]))
            continue
        counts = modes[checkpoint_id]
        if counts.n_problems == 0:
            why_not = "no problem has two correct samples with a named mode"
            findings.append(unknown(MEASURE, checkpoint_id, why_not))
            continue
        if not shows_a_second_mode(evidence):
            findings.append(unknown(MEASURE, checkpoint_id, ONE_MODE))
            continue
        index_P = simpson_index(counts.counts_A, counts.group_A, counts.n_problems)
        index = share_interval(index_P, cluster_P=counts.cluster_P)
        if index.mean == 0.0:
            why_not = "no two correct samples of a problem share their mode; draw more samples"
            findings.append(unknown(MEASURE, checkpoint_id, why_not))
            continue
        findings.append(known(MEASURE, checkpoint_id, reciprocal(index)))
    return findings


MEASURE = Measure(
    name="effective_modes",
    title="Effective correct modes",
    unit="modes",
    section="modes",
    needs=("answer_counts",),
    missing="no graded samples",
    plot=Plot(x="step", y_label="effective number of correct modes"),
    compute=compute,
    columns=OF_ANSWERS,
)
