"""Share of correct samples whose way of solving is unknown."""

from __future__ import annotations

from oversharp.diagnostics.measures.contract import Plot, Result
from oversharp.diagnostics.measures.declare import per_checkpoint
from oversharp.diagnostics.measures.modes.ways.counts import LEVELS, WAYS, WayRows
from oversharp.diagnostics.statistics.intervals import share_interval


@per_checkpoint(
    input=WAYS,
    title="Correct samples of an unknown way",
    unit="share of samples",
    section="strategy",
    rank=70,
    plot=Plot(x="step", y_label="share of correct samples", y_range=(0.0, 1.0)),
)
def ways_unknown(ways: WayRows) -> Result:
    """Ways unknown: the share of correct samples whose way of solving could not be read.

    Meaning: these contain no equation, program or expression, or none that the reader can parse. They are no separate
    class: the other measures of ways exclude them, or count them against a loss.
    Unit: share of samples (mean over problems with a correct sample). 95 % t interval over problems with a variance
    floor.
    Limits: a share that rises over training means that responses change their form, for example to fewer words. The
    excluded samples are then no random subset.
    Source: ours.

    >>> from oversharp.diagnostics.measures.examples import tiny_ways
    >>> evidence = tiny_ways([("base", "q", "13 26", True, 3), ("base", "q", None, False, 1)])
    >>> [(f.checkpoint_id, f.value) for f in ways_unknown(evidence)]
    [('base', 0.25)]
    """
    own = ways.at_level(LEVELS[0])
    if own.empty:
        return "no sample is correct"
    unknown = own["n"].where(own["way"].isna(), 0)
    share = unknown.groupby(own["problem_id"]).sum() / own["n"].groupby(own["problem_id"]).sum()
    return share_interval(share.to_numpy(dtype=float), cluster_P=ways.evidence.clusters(map(str, share.index)))
