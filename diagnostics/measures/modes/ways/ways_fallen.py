"""Ways of solving that became significantly rarer."""

from __future__ import annotations

import numpy as np

from oversharp.diagnostics.measures.contract import Plot, Results
from oversharp.diagnostics.measures.declare import against_base
from oversharp.diagnostics.measures.modes.ways.counts import WAYS, WayRows, pair_ways
from oversharp.diagnostics.statistics.problem_changes import SURE, ProblemCounts, change_p
from oversharp.diagnostics.statistics.units import Interval

SCOPES = ("fell", "lost")


@against_base(
    input=WAYS,
    scopes=SCOPES,
    title="Ways that surely fell",
    unit="ways",
    section="strategy",
    rank=30,
    plot=Plot(x="step", group="scope", y_label="ways of single problems"),
)
def ways_fallen(base: WayRows, late: WayRows) -> Results:
    """Ways fallen: ways of solving a problem that became significantly rarer than under the base (5 %).

    Meaning: scope ``fell`` counts the ways of single problems whose share of the samples fell significantly, ``lost``
    those of them that no sample uses any more. Pass@k does not show this while another way is left.
    Unit: ways. Fisher's exact test for each way of each problem, one-sided, with Holm's correction over all of them:
    if none fell, the probability that any is called fallen is 5 % at most. n counts the ways that the base used at
    least once. Equally many samples of a problem at both. The base has no row.
    Limits: with few samples only a frequent way can fall significantly. A correct sample of unknown way may be of any
    way of its problem: all are counted for each, so an unparsed way is never called a loss. A way that falls because
    another rises faster is a loss by definition 2.1 of [A], and may be the aim of training.
    Source: Definition 2.1 of [A] (arXiv 2601.15609), applied to ways; Fisher's test; Holm 1979, Scand. J. Stat. 6:65.

    >>> from oversharp.diagnostics.measures.examples import tiny_ways
    >>> rows = [("base", "q", "a", True, 16), ("base", "q", "b", False, 16), ("late", "q", "a", True, 32)]
    >>> evidence = tiny_ways(rows, n=32)
    >>> [(f.scope, f.value, f.n) for f in ways_fallen(evidence)]
    [('fell', 1.0, 2), ('lost', 1.0, 2)]
    """
    ways = pair_ways(base, late)
    n_seen = int((ways.base_W > 0).sum())
    if not n_seen:
        return dict.fromkeys(SCOPES, "the base goes no known way")
    after_W = np.minimum(ways.late_W + ways.unknown_W, ways.n_W)
    counts = ProblemCounts(before_P=ways.base_W, n_before_P=ways.n_W, after_P=after_W, n_after_P=ways.n_W)
    has_fallen_W = (change_p(counts) <= SURE) & (after_W < ways.base_W)
    return {
        scope: Interval(mean=float(is_counted_W.sum()), low=None, high=None, n=n_seen)
        for scope, is_counted_W in zip(SCOPES, (has_fallen_W, has_fallen_W & (after_W == 0)), strict=True)
    }
