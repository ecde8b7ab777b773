"""Share of the base's leading way of solving."""

from __future__ import annotations

from oversharp.diagnostics.measures.contract import Evidence, Plot, Result
from oversharp.diagnostics.measures.declare import Input, Loaded, per_checkpoint
from oversharp.diagnostics.measures.modes.ways.counts import WAYS, WayRows, load_ways
from oversharp.diagnostics.statistics.intervals import share_interval


def _load(evidence: Evidence) -> Loaded[WayRows]:
    """Load the ways; without the base's, no way is known to lead."""
    ways, why = load_ways(evidence)
    if evidence.base_id in why:
        why = {i: why.get(i, f"base: {why[evidence.base_id]}") for i in evidence.checkpoint_ids}
    return ways, why


@per_checkpoint(
    input=Input(load=_load, needs=WAYS.needs, missing=WAYS.missing, columns=WAYS.columns),
    title="Share of the base's leading way",
    unit="share of samples",
    section="strategy",
    rank=50,
    plot=Plot(x="step", y_label="share of correct samples", y_range=(0.0, 1.0)),
)
def leading_way_share(ways: WayRows) -> Result:
    """Leading way share: the share of correct samples that use the base's most frequent way.

    Meaning: a share that climbs to 1 is collapse onto what the base preferred already; a falling one means that
    another way has replaced it, or that there are more.
    Unit: share of samples (mean over problems with a correct sample of a known way). 95 % t interval over problems
    with a variance floor. The first half of the base's samples chooses each problem's leading way, and the base's own
    share is taken from the second: chosen and measured on the same samples, the leader would seem to lose share by
    chance.
    Limits: problems whose way is unknown in the base's first half, or at the checkpoint, are excluded; n counts the
    others.
    Source: on-policy learning favours what the base finds likely, [C] (The Reasoning Boundary Paradox), section 5; the
    split is ours.

    >>> from oversharp.diagnostics.measures.examples import tiny_ways
    >>> evidence = tiny_ways([
    ...     ("base", "q", "a", True, 2), ("base", "q", "a", False, 1), ("base", "q", "b", False, 1),
    ...     ("late", "q", "a", True, 2), ("late", "q", "a", False, 1)])
    >>> [(f.checkpoint_id, f.value) for f in leading_way_share(evidence)]
    [('base', 0.5), ('late', 1.0)]
    """
    own = ways.not_used_for_choice()
    own = own[own["way"].notna() & own["problem_id"].isin(ways.leading.index)]
    if own.empty:
        return "no problem with a leading way has a correct sample of a known way"
    led = own["n"].where(own["way"] == own["problem_id"].map(ways.leading), 0)
    share = led.groupby(own["problem_id"]).sum() / own["n"].groupby(own["problem_id"]).sum()
    return share_interval(share.to_numpy(dtype=float), cluster_P=ways.evidence.clusters(map(str, share.index)))
