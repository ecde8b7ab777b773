"""Answer agreement: the chance that two samples of one problem give the same final answer.

Meaning: the unbiased Simpson index Σ c(c−1) / (n(n−1)) over distinct answers, right or wrong, averaged over problems.
1 means that all samples of every problem agree; its reciprocal is an effective number of answers. Unlike entropy it
has no bias at any sample size, so it is the first number to trust when n is small.
Unit: probability. 95 % t interval over problems with a variance floor; n counts problems.
Limits: rises under moderate sharpening too, so it is never a verdict by itself; blind to rare answers. Needs two
samples per problem.
Source: Simpson 1949, Nature 163:688.

>>> from diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("answer_counts", "checkpoint_id problem_id answer mode correct n", [
...     ("base", "q", "4", "2+2", True, 3), ("base", "q", "5", None, False, 1)], n=4)
>>> [(f.checkpoint_id, f.value) for f in compute(evidence)]  # 6 of 12 ordered pairs agree
[('base', 0.5)]
"""

from __future__ import annotations

from diagnostics.measures._counts import answers_by_checkpoint
from diagnostics.measures._findings import checkpoint_ids, known, unknown
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.records.types import Finding
from diagnostics.statistics.entropy import simpson_index
from diagnostics.statistics.intervals import share_interval


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per checkpoint; unknown where a problem lacks samples or n < 2."""
    answers, why = answers_by_checkpoint(evidence)
    findings = []
    for checkpoint_id in checkpoint_ids(evidence):
        why_not = why.get(checkpoint_id) or ("one sample per problem has no pairs" if evidence.n < 2 else None)
        if why_not:
            findings.append(unknown(MEASURE, checkpoint_id, why_not))
            continue
        counts = answers[checkpoint_id]
        index_P = simpson_index(counts.counts_A, counts.group_A, counts.n_problems)
        findings.append(known(MEASURE, checkpoint_id, share_interval(index_P)))
    return findings


MEASURE = Measure(
    name="answer_simpson",
    title="Answer agreement (Simpson)",
    unit="probability",
    section="entropy",
    needs=("answer_counts",),
    missing="no graded samples",
    plot=Plot(x="step", y_label="chance that two samples agree", y_range=(0.0, 1.0)),
    compute=compute,
)
