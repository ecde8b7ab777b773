"""Ways fallen: ways of solving a problem that surely became rarer than under the base.

Meaning: scope ``fell`` counts the ways of single problems whose share of the samples fell by more than luck, ``lost``
those of them that no sample goes any more. What pass@k does not show while another way is left.
Unit: ways. Fisher's exact test for each way of each problem, one-sided, with Holm's correction over all of them: where
none fell, any is called fallen with a chance of 5 % at most. n counts the ways that the base went at least once. Equal
samples of a problem at both. The base itself has no row.
Limits: with few samples only a frequent way can surely fall. A correct sample whose way is not known may be of any way
of its problem: all are counted for each, so that what could not be read is never called a loss. A way that falls
because another rises faster is a loss to definition 2.1 of [A], and may be what was wanted.
Source: Definition 2.1 of [A] (arXiv 2601.15609), asked of ways; Fisher's test; Holm 1979, Scand. J. Stat. 6:65.

>>> from oversharp.diagnostics.measures._example import tiny_ways
>>> rows = [("base", "q", "a", True, 16), ("base", "q", "b", False, 16), ("late", "q", "a", True, 32)]
>>> evidence = tiny_ways(rows, n=32)
>>> [(f.scope, f.value, f.n) for f in compute(evidence)]
[('fell', 1.0, 2), ('lost', 1.0, 2)]
"""

from __future__ import annotations

import numpy as np

from oversharp.diagnostics.measures._findings import comparisons, findings_at, unknown
from oversharp.diagnostics.measures._ways import MISSING, NEEDS, OF_WAYS, ways_beside_base, whys
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.problem_changes import SURE, ProblemCounts, change_p

SCOPES = ("fell", "lost")


def compute(evidence: Evidence) -> list[Finding]:
    """Two findings per checkpoint but the base; unknown where either lacks samples or the base goes no known way."""

    def at(checkpoint_id: str) -> list[Finding]:
        ways = ways_beside_base(evidence, checkpoint_id)
        n_seen = int((ways.base_W > 0).sum())
        if not n_seen:
            return [unknown(MEASURE, checkpoint_id, "the base goes no known way", scope=scope) for scope in SCOPES]
        after_W = np.minimum(ways.late_W + ways.unread_W, ways.n_W)
        counts = ProblemCounts(before_P=ways.base_W, n_before_P=ways.n_W, after_P=after_W, n_after_P=ways.n_W)
        fell_W = (change_p(counts) <= SURE) & (after_W < ways.base_W)
        return [
            Finding(
                checkpoint_id=checkpoint_id, measure=MEASURE.name, unit=MEASURE.unit, scope=scope, value=value, n=n_seen
            )
            for scope, value in zip(SCOPES, (float(fell_W.sum()), float((fell_W & (after_W == 0)).sum())), strict=True)
        ]

    return findings_at(MEASURE, comparisons(evidence, whys(evidence)), at, scopes=SCOPES)


MEASURE = Measure(
    name="ways_fallen",
    title="Ways that surely fell",
    unit="ways",
    section="modes",
    needs=NEEDS,
    missing=MISSING,
    plot=Plot(x="step", group="scope", y_label="ways of single problems"),
    compute=compute,
    of_base=False,
    columns=OF_WAYS,
)
