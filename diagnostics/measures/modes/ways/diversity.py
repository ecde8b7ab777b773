"""Measures of the number and the shares of ways of solving, at each checkpoint."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from oversharp.diagnostics.measures.contract import Evidence, Plot, Result, Results
from oversharp.diagnostics.measures.counts import (
    count_labels,
    effective_number,
    keep_reliable_interval,
    rarefaction,
)
from oversharp.diagnostics.measures.declare import Loaded, per_checkpoint
from oversharp.diagnostics.measures.modes.ways.counts import LEVELS, NO_PAIR, SCOPES, WAYS, WayRows, load_ways
from oversharp.diagnostics.statistics.intervals import share_interval, sparse_interval
from oversharp.diagnostics.statistics.units import Interval

NONE_KNOWN = "no correct sample has a known way"


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
    """Effective ways: the effective number of ways of solving a problem.

    Meaning: the probability that two correct samples of a problem use the same way (unbiased Simpson index) is averaged
    over problems. The effective number is 1 divided by this mean. It replaces ``effective_modes`` for tasks that do not
    list every correct response. Ways are parsed from the responses, so a task with a single gold answer also has a
    value. Scope ``all`` counts ways. ``written`` counts each different set of steps as a way. ``operations``, ``final``
    and ``strategy`` are coarser.
    Unit: ways. The 95 % interval is the reciprocal of the t interval of the mean index with a variance floor. n counts
    problems with at least two correct samples of a known way. The upper bound is missing if the index could be 0.
    Limits: samples of unknown way are excluded (``ways_unknown`` is their share), and checkpoints cover different
    problems. The number depends on the reader that parses ways: all solutions that only add count as one way. It also
    falls under moderate sharpening, so a fall alone does not show a loss.
    Source: Simpson 1949, Nature 163:688; as effective number, Hill 1973, Ecology 54:427 (order 2).

    >>> from oversharp.diagnostics.measures.examples import tiny_ways
    >>> rows = [("base", "q", "13 26", True, 2), ("base", "q", "26 32", False, 2), ("late", "q", "13 26", True, 4)]
    >>> ways = effective_ways(tiny_ways(rows))
    >>> [(f.checkpoint_id, round(f.value, 4)) for f in ways if f.scope == "all"]  # 4 of 12 pairs; then all
    [('base', 3.0), ('late', 1.0)]
    """
    return {scope: _effective(ways, level) for level, scope in zip(LEVELS, SCOPES, strict=True)}


def _effective(ways: WayRows, level: str) -> Result:
    counts = count_labels(ways.evidence, ways.select_level(level), "way", least=2)
    if not counts.n_problems:
        return NO_PAIR
    return effective_number(counts) or "no two correct samples of any problem are solved in the same way; draw more"


def _load_with_base(evidence: Evidence) -> Loaded[WayRows]:
    """Load the ways. Without the base the leading way is unknown at every checkpoint."""
    ways, why = load_ways(evidence)
    if evidence.base_id in why:
        why = {i: why.get(i, f"base: {why[evidence.base_id]}") for i in evidence.checkpoint_ids}
    return ways, why


@per_checkpoint(
    input=replace(WAYS, load=_load_with_base),
    title="Share of the base's leading way",
    unit="share of samples",
    section="strategy",
    rank=50,
    plot=Plot(x="step", y_label="share of correct samples", y_range=(0.0, 1.0)),
)
def leading_way_share(ways: WayRows) -> Result:
    """Leading way share: the share of correct samples that use the base's most frequent way.

    Meaning: a share that rises to 1 is collapse onto the base's preference. A falling share means that another way
    replaced the leading way, or that there are more ways.
    Unit: share of samples (mean over problems with a correct sample of a known way). 95 % t interval over problems with
    a variance floor. The first half of the base's samples determines each problem's leading way, and the base's own
    share is computed from the second half. If the same samples were used for both, the leading way would seem to lose
    share by chance.
    Limits: problems whose way is unknown in the first half of the base's samples, or at the checkpoint, are excluded. n
    counts the other problems.
    Source: on-policy learning favours responses that the base finds likely, [C] (The Reasoning Boundary Paradox),
    section 5; the split is ours.

    >>> from oversharp.diagnostics.measures.examples import tiny_ways
    >>> evidence = tiny_ways([
    ...     ("base", "q", "a", True, 2), ("base", "q", "a", False, 1), ("base", "q", "b", False, 1),
    ...     ("late", "q", "a", True, 2), ("late", "q", "a", False, 1)])
    >>> [(f.checkpoint_id, f.value) for f in leading_way_share(evidence)]
    [('base', 0.5), ('late', 1.0)]
    """
    own = ways.select_comparable()
    own = own[own["way"].notna() & own["problem_id"].isin(ways.leading.index)]
    if own.empty:
        return "no problem with a leading way has a correct sample of a known way"
    return _share_of_samples(ways, own, own["way"] == own["problem_id"].map(ways.leading))


def _load_known(evidence: Evidence) -> Loaded[WayRows]:
    """Load the ways, or a reason for all checkpoints if no correct sample has a known way."""
    ways, why = load_ways(evidence)
    frame = evidence.frames["way_counts"]
    if frame[frame["level"] == LEVELS[0]]["way"].notna().any():
        return ways, why
    return ways, {**dict.fromkeys(evidence.checkpoint_ids, NONE_KNOWN), **why}


@per_checkpoint(
    input=replace(WAYS, load=_load_known),
    by_k=True,
    title="Ways among k samples",
    unit="ways",
    section="strategy",
    rank=60,
    plot=Plot(x="k", group="checkpoint", y_label="ways among k samples", log_x=True),
)
def ways_rarefaction(ways: WayRows, k: int) -> Result:
    """Ways rarefaction: the expected number of distinct ways among k samples.

    Meaning: a way that c of n samples use is among k of them with probability 1 − C(n−c, k)/C(n, k). The value is the
    sum of these probabilities over a problem's ways, averaged over problems. It falls with every way that training
    makes rare, even if pass@k stays at 1.
    Unit: ways. 95 % t interval over problems with a variance floor for problems without a way, for k up to n/2 and if
    at least five problems have a way. Each problem has the same number of samples at every checkpoint.
    Limits: ways that were never sampled, and samples of unknown way, do not count. It also falls under moderate
    sharpening, so a fall alone does not show a loss.
    Source: Hurlbert 1971, Ecology 52:577, Eq 14.

    >>> from oversharp.diagnostics.measures.examples import tiny_ways
    >>> rows = [("base", "q", "a", True, 2), ("base", "q", "b", False, 1), ("late", "q", "a", True, 4)]
    >>> evidence = tiny_ways(rows, ks=(1, 2))
    >>> [(f.checkpoint_id, f.k, round(f.value, 4)) for f in ways_rarefaction(evidence)]  # 1 − 1/6, and 1 − 3/6
    [('base', 1, 0.75), ('base', 2, 1.3333), ('late', 1, 1.0), ('late', 2, 1.0)]
    """
    if why_not := ways.counts.explain_too_few(k):
        return why_not
    rows = ways.select_level(LEVELS[0])
    counts = rows[rows["way"].notna()].groupby(["problem_id", "way"], observed=True)["n"].sum().reset_index()
    place_W = pd.Index(ways.counts.problem_ids).get_indexer(counts["problem_id"])
    seen_P = rarefaction(ways.counts.n_P, place_W, counts["n"].to_numpy(dtype="int64"), k)
    return keep_reliable_interval(sparse_interval(seen_P, cluster_P=ways.counts.cluster_P), k, ways.counts.fewest)


@per_checkpoint(
    input=WAYS,
    title="Correct samples of an unknown way",
    unit="share of samples",
    section="strategy",
    rank=70,
    plot=Plot(x="step", y_label="share of correct samples", y_range=(0.0, 1.0)),
)
def ways_unknown(ways: WayRows) -> Result:
    """Ways unknown: the share of correct samples whose way of solving could not be parsed.

    Meaning: these samples contain no equation, program or expression that the reader can parse. The other measures of
    ways exclude them, or count them so that they cannot appear as a loss.
    Unit: share of samples (mean over problems with a correct sample). 95 % t interval over problems with a variance
    floor.
    Limits: a share that rises over training means that responses change their form, for example to fewer words. Then
    the excluded samples are not a random subset.
    Source: ours.

    >>> from oversharp.diagnostics.measures.examples import tiny_ways
    >>> evidence = tiny_ways([("base", "q", "13 26", True, 3), ("base", "q", None, False, 1)])
    >>> [(f.checkpoint_id, f.value) for f in ways_unknown(evidence)]
    [('base', 0.25)]
    """
    own = ways.select_level(LEVELS[0])
    if own.empty:
        return "no sample is correct"
    return _share_of_samples(ways, own, own["way"].isna())


def _share_of_samples(ways: WayRows, own: pd.DataFrame, is_counted: pd.Series) -> Interval:
    """Return the counted share of each problem's samples, averaged over problems."""
    counted = own["n"].where(is_counted, 0)
    share = counted.groupby(own["problem_id"]).sum() / own["n"].groupby(own["problem_id"]).sum()
    return share_interval(share.to_numpy(dtype=float), cluster_P=ways.evidence.clusters(map(str, share.index)))
