"""Distinct ways of solving among k samples."""

from __future__ import annotations

import pandas as pd

from oversharp.diagnostics.measures.contract import Evidence, Plot, Result
from oversharp.diagnostics.measures.counts import explain_too_few, keep_reliable_interval, rarefaction
from oversharp.diagnostics.measures.declare import Input, Loaded, per_checkpoint
from oversharp.diagnostics.measures.modes.ways.counts import LEVELS, WAYS, WayRows, load_ways
from oversharp.diagnostics.statistics.intervals import sparse_interval

NONE_KNOWN = "no correct sample has a known way"


def _load(evidence: Evidence) -> Loaded[WayRows]:
    """Load the ways; nothing is known if no checkpoint has a known way."""
    ways, why = load_ways(evidence)
    frame = evidence.frames["way_counts"]
    if frame[frame["level"] == LEVELS[0]]["way"].notna().any():
        return ways, why
    return ways, {**dict.fromkeys(evidence.checkpoint_ids, NONE_KNOWN), **why}


@per_checkpoint(
    input=Input(load=_load, needs=WAYS.needs, missing=WAYS.missing, columns=WAYS.columns),
    by_k=True,
    title="Ways that k samples show",
    unit="ways",
    section="strategy",
    rank=60,
    plot=Plot(x="k", group="checkpoint", y_label="ways in k samples", log_x=True),
)
def ways_rarefaction(ways: WayRows, k: int) -> Result:
    """Ways rarefaction: the expected number of distinct ways of solving among k samples of a problem.

    Meaning: Σ over the ways of a problem of 1 − C(n−c, k)/C(n, k), the probability that a way used c times in n
    samples is among k of them, averaged over problems. It falls with every way that training makes rare, even while
    pass@k stays at 1.
    Unit: ways. 95 % t interval over problems with a floor for those without one, for k up to n/2 and if five problems
    or more show one. Equally many samples of a problem at every checkpoint.
    Limits: ways that were never sampled, and samples of unknown way, do not count. It falls under moderate sharpening
    too, so it is never a verdict alone.
    Source: Hurlbert 1971, Ecology 52:577, Eq 14.

    >>> from oversharp.diagnostics.measures.examples import tiny_ways
    >>> rows = [("base", "q", "a", True, 2), ("base", "q", "b", False, 1), ("late", "q", "a", True, 4)]
    >>> evidence = tiny_ways(rows, ks=(1, 2))
    >>> [(f.checkpoint_id, f.k, round(f.value, 4)) for f in ways_rarefaction(evidence)]  # 1 − 1/6, and 1 − 3/6
    [('base', 1, 0.75), ('base', 2, 1.3333), ('late', 1, 1.0), ('late', 2, 1.0)]
    """
    if why_not := explain_too_few(k, ways.counts.fewest):
        return why_not
    rows = ways.at_level(LEVELS[0])
    counts = rows[rows["way"].notna()].groupby(["problem_id", "way"], observed=True)["n"].sum().reset_index()
    place_W = pd.Index(ways.counts.problem_ids).get_indexer(counts["problem_id"])
    seen_P = rarefaction(ways.counts.n_P, place_W, counts["n"].to_numpy(dtype="int64"), k)
    return keep_reliable_interval(sparse_interval(seen_P, cluster_P=ways.counts.cluster_P), k, ways.counts.fewest)
