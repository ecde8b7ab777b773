"""Measures of problems that are solved at least once: lost, gained and kept since the base."""

from __future__ import annotations

from oversharp.diagnostics.measures.contract import Plot, Result
from oversharp.diagnostics.measures.counts import SOLVED, Counts, select_clusters
from oversharp.diagnostics.measures.declare import against_base
from oversharp.diagnostics.statistics.intervals import yes_no_interval
from oversharp.diagnostics.statistics.units import Interval

_PLOT = Plot(x="step", y_label="share of problems", y_range=(0.0, 1.0))


@against_base(input=SOLVED, title="Problems lost", unit="share of problems", section="problems", rank=10, plot=_PLOT)
def problems_lost(base: Counts, late: Counts) -> Interval:
    """Problems lost: solved at least once in n samples by the base, never by the checkpoint.

    Meaning: the problems that the model no longer solves at this sampling budget.
    Unit: share of problems. 95 % exact binomial interval over problems. The base has no finding.
    Limits: a problem with a small success probability can be lost or gained by chance. If nothing changed, a set of
    hundreds of problems shows about as many lost as gained. So compare the value with ``problems_gained``. To show that
    a single problem was lost, sample it again. The value depends on n, which is the same for base and checkpoint. With
    a stopping rule, n is the smallest cap of all checkpoints.
    Source: coverage shrinkage, [C] (The Reasoning Boundary Paradox), section 4.2; the counting rule is ours.

    >>> from oversharp.diagnostics.measures.examples import tiny_flow
    >>> [(f.checkpoint_id, f.value, f.n) for f in problems_lost(tiny_flow())]
    [('late', 0.25, 4)]
    """
    return yes_no_interval(base.is_solved & ~late.is_solved, cluster_P=late.cluster_P)


@against_base(input=SOLVED, title="Problems gained", unit="share of problems", section="problems", rank=20, plot=_PLOT)
def problems_gained(base: Counts, late: Counts) -> Interval:
    """Problems gained: never solved in n samples by the base, at least once by the checkpoint.

    Meaning: the problems that the model newly solves at this sampling budget.
    Unit: share of problems. 95 % exact binomial interval over problems. The base has no finding.
    Limits: part of the gain is chance. Compare it with ``problems_lost``. The value depends on n, which is the same for
    base and checkpoint. With a stopping rule, n is the smallest cap of all checkpoints.
    Source: coverage shrinkage, [C] (The Reasoning Boundary Paradox), section 4.2; the counting rule is ours.

    >>> from oversharp.diagnostics.measures.examples import tiny_flow
    >>> [(f.checkpoint_id, f.value, f.n) for f in problems_gained(tiny_flow())]
    [('late', 0.25, 4)]
    """
    return yes_no_interval(~base.is_solved & late.is_solved, cluster_P=late.cluster_P)


@against_base(input=SOLVED, title="Problems kept", unit="share of problems", section="problems", rank=30, plot=_PLOT)
def problems_kept(base: Counts, late: Counts) -> Interval:
    """Problems kept: solved at least once in n samples by the base and by the checkpoint.

    Meaning: the problems that the model still solves. The shares of problems kept, lost, gained, and solved by neither
    sum to 1.
    Unit: share of problems. 95 % exact binomial interval over problems. The base has no finding.
    Limits: the value depends on n, which is the same for base and checkpoint. With a stopping rule, n is the smallest
    cap of all checkpoints.
    Source: coverage shrinkage, [C] (The Reasoning Boundary Paradox), section 4.2; the counting rule is ours.

    >>> from oversharp.diagnostics.measures.examples import tiny_flow
    >>> [(f.checkpoint_id, f.value, f.n) for f in problems_kept(tiny_flow())]
    [('late', 0.5, 4)]
    """
    return yes_no_interval(base.is_solved & late.is_solved, cluster_P=late.cluster_P)


@against_base(
    input=SOLVED,
    title="Support retention rate",
    unit="share of problems",
    section="problems",
    rank=50,
    plot=_PLOT,
)
def support_retention(base: Counts, late: Counts) -> Result:
    """Support retention rate (SRR): the share of the base's solved problems that stay solved.

    Meaning: ``problems_kept`` divided by the sum of problems kept and lost. A problem is solved if at least one of n
    samples is correct. 1 means that no problem was lost at this sampling budget.
    Unit: share of problems, among those that the base solves. n counts these. 95 % exact binomial interval over them.
    The base has no finding.
    Limits: the value is below 1 even if nothing changed, because rare successes of the base need not occur again (see
    ``problems_lost``). Compare it with ``net_discovery``, which the same chance raises. The value depends on n, which
    is the same for base and checkpoint. With a stopping rule, n is the smallest cap of all checkpoints.
    Source: Wu et al. 2025 (arXiv 2507.14843), support retention rate. There it counts solutions, here problems.

    >>> from oversharp.diagnostics.measures.examples import tiny_flow
    >>> [(f.checkpoint_id, round(f.value, 3), f.n) for f in support_retention(tiny_flow())]
    [('late', 0.667, 3)]
    """
    if not base.is_solved.any():
        return "the base solves no problem"
    cluster_P = select_clusters(late.cluster_P, base.is_solved)
    return yes_no_interval(late.is_solved[base.is_solved], cluster_P=cluster_P)


@against_base(
    input=SOLVED, title="Net discovery rate", unit="share of problems", section="problems", rank=60, plot=_PLOT
)
def net_discovery(base: Counts, late: Counts) -> Result:
    """Net discovery rate (NDR): the share of solved problems that the base never solved.

    Meaning: ``problems_gained`` divided by the sum of problems kept and gained. A problem is solved if at least one of
    n samples is correct.
    Unit: share of problems, among those that the checkpoint solves. n counts these. 95 % exact binomial interval over
    them. The base has no finding.
    Limits: the value is above 0 even if nothing changed, because the checkpoint solves some problems that the base
    failed only by chance (see ``problems_gained``). It does not measure losses: compare it with ``support_retention``.
    The value depends on n, which is the same for base and checkpoint. With a stopping rule, n is the smallest cap of
    all checkpoints.
    Source: Wu et al. 2025 (arXiv 2507.14843), net discovery rate. There it counts solutions, here problems.

    >>> from oversharp.diagnostics.measures.examples import tiny_flow
    >>> [(f.checkpoint_id, round(f.value, 3), f.n) for f in net_discovery(tiny_flow())]
    [('late', 0.333, 3)]
    """
    if not late.is_solved.any():
        return "no problem is solved here"
    cluster_P = select_clusters(late.cluster_P, late.is_solved)
    return yes_no_interval(~base.is_solved[late.is_solved], cluster_P=cluster_P)
