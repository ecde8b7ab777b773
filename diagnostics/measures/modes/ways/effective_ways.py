"""Effective number of ways of solving."""

from __future__ import annotations

from oversharp.diagnostics.measures.contract import Plot, Result, Results
from oversharp.diagnostics.measures.counts import count_labels, reciprocal
from oversharp.diagnostics.measures.declare import per_checkpoint
from oversharp.diagnostics.measures.modes.ways.counts import LEVELS, NO_PAIR, SCOPES, WAYS, WayRows
from oversharp.diagnostics.statistics.entropy import simpson_index
from oversharp.diagnostics.statistics.intervals import share_interval


@per_checkpoint(
    input=WAYS,
    scopes=SCOPES,
    title="Effective ways of solving",
    unit="ways",
    section="strategy",
    rank=20,
    plot=Plot(x="step", group="scope", y_label="effective number of ways"),
)
def effective_ways(ways: WayRows) -> Results:
    """Effective ways: the number of equally frequent ways of solving with the same chance of agreement.

    Meaning: 1 / mean over problems of the probability that two correct samples of one problem use the same way
    (unbiased Simpson index). It is ``effective_modes`` for tasks that do not list every correct response: the ways are
    read from the responses, so that a task with one gold answer has a number too. Scope ``all`` counts ways,
    ``written`` every different set of steps; ``operations`` and ``strategy`` are coarser.
    Unit: ways. 95 % interval: the reciprocal of the t interval of the mean index with a variance floor; n counts
    problems with at least two correct samples of a known way. The upper end is open (None) if the index could be 0.
    Limits: samples of unknown way are excluded (``ways_unknown`` is their share), and the problems that count differ
    between checkpoints. As good as the reader: solutions in additions alone all count as one way. It falls under
    moderate sharpening too, so it is never a verdict alone.
    Source: Simpson 1949, Nature 163:688; as effective number, Hill 1973, Ecology 54:427 (order 2).

    >>> from oversharp.diagnostics.measures.examples import tiny_ways
    >>> rows = [("base", "q", "13 26", True, 2), ("base", "q", "26 32", False, 2), ("late", "q", "13 26", True, 4)]
    >>> ways = effective_ways(tiny_ways(rows))
    >>> [(f.checkpoint_id, round(f.value, 4)) for f in ways if f.scope == "all"]  # 4 of 12 pairs; then all
    [('base', 3.0), ('late', 1.0)]
    """
    return {scope: _effective(ways, level) for level, scope in zip(LEVELS, SCOPES, strict=True)}


def _effective(ways: WayRows, level: str) -> Result:
    counts = count_labels(ways.evidence, ways.at_level(level), "way", least=2)
    if not counts.n_problems:
        return NO_PAIR
    index_P = simpson_index(counts.counts_A, counts.group_A, counts.n_problems)
    index = share_interval(index_P, cluster_P=counts.cluster_P)
    if index.mean == 0.0:
        return "no two correct samples of a problem go the same way; draw more samples"
    return reciprocal(index)
