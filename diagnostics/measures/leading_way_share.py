"""Leading way share: the share of correct samples that go the way which the base goes most often.

Meaning: a share that climbs to 1 is collapse onto what the base preferred already; one that falls means that another
way has taken its place, or that there are more.
Unit: share of samples (mean over problems with a correct sample of a known way). 95 % t interval over problems with a
variance floor. The first half of the base's samples chooses each problem's leading way, and the base's own share is
taken from the second: chosen and measured on the same samples, the leader would seem to lose share by chance.
Limits: problems whose way is not known in the base's first half, or now, are left out; n says how many are in.
Source: on-policy learning favours what the base finds likely, [C] (The Reasoning Boundary Paradox), section 5; the
split is ours.

>>> from oversharp.diagnostics.measures._example import tiny_ways
>>> evidence = tiny_ways([("base", "q", "a", True, 2), ("base", "q", "a", False, 1), ("base", "q", "b", False, 1),
...                       ("late", "q", "a", True, 2), ("late", "q", "a", False, 1)])
>>> [(f.checkpoint_id, f.value) for f in compute(evidence)]
[('base', 0.5), ('late', 1.0)]
"""

from __future__ import annotations

from oversharp.diagnostics.measures._findings import findings_at, known, places, unknown
from oversharp.diagnostics.measures._ways import MISSING, NEEDS, OF_WAYS, besides_the_choice, leading_ways, whys
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.intervals import share_interval


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per checkpoint; unknown where no problem has a leading way and a correct sample of a known one."""
    why = dict(whys(evidence))
    if len(evidence.checkpoints) and evidence.base_id in why:  # without it nobody knows which way leads
        why = {i: why.get(i, f"base: {why[evidence.base_id]}") for i in evidence.checkpoints["checkpoint_id"]}

    def at(checkpoint_id: str) -> list[Finding]:
        leading = leading_ways(evidence)
        own = besides_the_choice(evidence, checkpoint_id)
        own = own[own["way"].notna() & own["problem_id"].isin(leading.index)]
        if own.empty:
            return [
                unknown(MEASURE, checkpoint_id, "no problem with a leading way has a correct sample of a known way")
            ]
        led = own["n"].where(own["way"] == own["problem_id"].map(leading), 0)
        share = led.groupby(own["problem_id"]).sum() / own["n"].groupby(own["problem_id"]).sum()
        interval = share_interval(share.to_numpy(dtype=float), cluster_P=evidence.clusters(map(str, share.index)))
        return [known(MEASURE, checkpoint_id, interval)]

    return findings_at(MEASURE, places(evidence, why), at)


MEASURE = Measure(
    name="leading_way_share",
    title="Share of the base's leading way",
    unit="share of samples",
    section="modes",
    needs=NEEDS,
    missing=MISSING,
    plot=Plot(x="step", y_label="share of correct samples", y_range=(0.0, 1.0)),
    compute=compute,
    columns=OF_WAYS,
)
