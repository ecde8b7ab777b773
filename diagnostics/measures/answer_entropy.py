"""Answer entropy: how much the final answers of one problem's samples differ, averaged over problems.

Meaning: −Σ p log p over distinct final answers, right or wrong; a response without a parseable answer is the answer
NA. Scope ``all`` is the Chao–Wang–Jost estimate, nearly unbiased; ``plug_in`` puts observed frequencies into the
formula, as [B] does, and hides much of a real drop at small n.
Unit: nats ([B] prints bits: multiply by 1.4427). 95 % t interval over problems; n counts problems.
Limits: falls under moderate sharpening too, so it is never a verdict by itself. Comparable only at the same number of
samples per problem, which the audit keeps equal. Needs two samples per problem.
Source: [B] (arXiv 2510.04028), C.5; Chao, Wang, Jost 2013, Methods in Ecology and Evolution 4:1091.

>>> from diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("answer_counts", "checkpoint_id problem_id answer mode correct n", [
...     ("base", "q", "4", "2+2", True, 2), ("base", "q", "NA", None, False, 2),
...     ("late", "q", "4", "2+2", True, 4)], n=4)
>>> [(f.checkpoint_id, f.scope, round(f.value, 4)) for f in compute(evidence)]
[('base', 'all', 0.8333), ('base', 'plug_in', 0.6931), ('late', 'all', 0.0), ('late', 'plug_in', 0.0)]
"""

from __future__ import annotations

import math

from diagnostics.measures._counts import answers_by_checkpoint
from diagnostics.measures._findings import checkpoint_ids, known, unknown
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.records.types import Finding
from diagnostics.statistics.entropy import chao_wang_jost_entropy, plug_in_entropy
from diagnostics.statistics.intervals import mean_interval

ESTIMATORS = {"all": chao_wang_jost_entropy, "plug_in": plug_in_entropy}


def compute(evidence: Evidence) -> list[Finding]:
    """Two findings per checkpoint, scopes ``all`` and ``plug_in``; unknown where a problem lacks samples or n < 2."""
    answers, why = answers_by_checkpoint(evidence)
    findings = []
    for checkpoint_id in checkpoint_ids(evidence):
        why_not = why.get(checkpoint_id) or ("one sample per problem has no entropy" if evidence.n < 2 else None)
        for scope, estimate in ESTIMATORS.items():
            if why_not:
                findings.append(unknown(MEASURE, checkpoint_id, why_not, scope=scope))
                continue
            counts = answers[checkpoint_id]
            entropy_P = estimate(counts.counts_A, counts.group_A, counts.n_problems)
            interval = mean_interval(entropy_P, bounds=(0.0, math.inf))
            findings.append(known(MEASURE, checkpoint_id, interval, scope=scope))
    return findings


MEASURE = Measure(
    name="answer_entropy",
    title="Answer entropy",
    unit="nats",
    section="entropy",
    needs=("answer_counts",),
    missing="no graded samples",
    plot=Plot(x="step", group="scope", y_label="answer entropy (nats)"),
    compute=compute,
)
