"""Ways unknown: the share of correct samples whose way of solving could not be read.

Meaning: in these no equation, program or expression was found, or none that the reader takes in. They are no class of
their own: the other measures of ways leave them out, or count them against a loss.
Unit: share of samples (mean over problems with a correct sample). 95 % t interval over problems with a variance floor.
Limits: a share that rises over training means that responses are written otherwise, in fewer words say. What is left
out then is no sample of what is read.
Source: ours.

>>> from oversharp.diagnostics.measures._example import tiny_ways
>>> evidence = tiny_ways([("base", "q", "13 26", True, 3), ("base", "q", None, False, 1)])
>>> [(f.checkpoint_id, f.value) for f in compute(evidence)]
[('base', 0.25)]
"""

from __future__ import annotations

from oversharp.diagnostics.measures._findings import findings_at, known, places, unknown
from oversharp.diagnostics.measures._ways import LEVELS, MISSING, NEEDS, OF_WAYS, rows_at, whys
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.intervals import share_interval


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per checkpoint; unknown where a problem lacks samples or none has a correct one."""
    rows = rows_at(evidence, LEVELS[0])

    def at(checkpoint_id: str) -> list[Finding]:
        own = rows[rows["checkpoint_id"] == checkpoint_id]
        if own.empty:
            return [unknown(MEASURE, checkpoint_id, "no sample is correct")]
        unread = own["n"].where(own["way"].isna(), 0)
        share = unread.groupby(own["problem_id"]).sum() / own["n"].groupby(own["problem_id"]).sum()
        interval = share_interval(share.to_numpy(dtype=float), cluster_P=evidence.clusters(map(str, share.index)))
        return [known(MEASURE, checkpoint_id, interval)]

    return findings_at(MEASURE, places(evidence, whys(evidence)), at)


MEASURE = Measure(
    name="ways_unknown",
    title="Correct samples of an unknown way",
    unit="share of samples",
    section="modes",
    needs=NEEDS,
    missing=MISSING,
    plot=Plot(x="step", y_label="share of correct samples", y_range=(0.0, 1.0)),
    compute=compute,
    columns=OF_WAYS,
)
