"""Checkpoints against the sharpened base: gain, loss, and share of sharpening."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot, Result, Results, Unknown
from oversharp.diagnostics.measures.counts import ANSWER_COLUMNS, NO_SAMPLES, Counts, load_sampled_counts
from oversharp.diagnostics.measures.coverage.sharpening.controls import compare_controls
from oversharp.diagnostics.measures.declare import compare_with_base, per_series
from oversharp.diagnostics.statistics.frontier import AgainstFrontier, Matched
from oversharp.diagnostics.statistics.units import Interval, few_clusters, named_clusters


def _declare(
    *, title: str, unit: str, y_label: str
) -> Callable[[Callable[[Evidence], Iterable[tuple[str, Results]]]], Measure]:
    return per_series(
        needs=("sampled_counts",),
        missing=NO_SAMPLES,
        also=("control_counts", "greedy_grades", "base_responses", "answer_counts"),
        columns=ANSWER_COLUMNS,
        title=title,
        unit=unit,
        section="coverage",
        plot=Plot(x="step", group="scope", y_label=y_label),
        signed=True,
        of_base=False,
    )


@_declare(title="Gain beyond sharpening", unit="probability", y_label="pass@1 − sharpened base")
def frontier_gain(evidence: Evidence) -> Iterator[tuple[str, Results]]:
    """Gain beyond sharpening: pass@1 minus that of the sharpened base at equal pass@k.

    Meaning: a lower temperature of the base also raises pass@1, and lowers pass@k. The gain is the rest of the rise,
    which training added. At 0 the run equals a lower temperature; below 0 a lower temperature is better.
    The scope is one of three controls, each with a separate frontier. ``temperature``: the base sampled at lower
    temperatures (``--controls``). ``power``: its samples reweighted to p^α, if they cover 90 % of its probability.
    ``answers``: the answers of m draws that agree, which need only counts and exist for every import. k is the largest
    power of two up to half of the fewest samples, up to the samples of the controls, and for ``answers`` up to a
    sixteenth. ``answers`` corrects the first-order bias of its points (jackknife). To be accurate to half a percentage
    point, it needs 32 samples of each problem for 2 draws that agree, 64 for 3, 128 for 4 and 256 for 8.
    Unit: probability (difference). Estimator: unbiased pass@1 and pass@k; the frontier between its points is made
    monotone (isotonic regression) and interpolated over the sharpness; 95 % interval by a bootstrap over problems that
    resamples all points together. n counts problems.
    Limits: if pass@k is outside the range between the base and the sharpest control, the gain has bounds but no value.
    The frontier is flat where pass@k is near 1, and the gain is then uncertain: see ``frontier_loss``.
    Source: temperature as a control is ours; power sampling is arXiv 2510.14901; isotonic regression by scikit-learn.

    >>> from oversharp.diagnostics.measures.examples import tiny_frontier
    >>> [(f.checkpoint_id, round(f.value, 3)) for f in frontier_gain(tiny_frontier()) if f.scope == "temperature"]
    [('late', -0.062)]
    """
    return _results(evidence, lambda against: against.gain)


@_declare(title="Pass@k against the sharpened base", unit="probability", y_label="pass@k − sharpened base")
def frontier_loss(evidence: Evidence) -> Iterator[tuple[str, Results]]:
    """Loss beyond sharpening: pass@k minus that of the sharpened base at equal pass@1.

    Meaning: a lower temperature of the base raises pass@1 and lowers pass@k. Below 0 the run lost more pass@k than
    that: this part is forgetting. The rest of the fall of pass@k is reweighting, which a higher temperature restores.
    Scopes and k are those of ``frontier_gain``.
    Unit: probability (difference). Estimator and interval: as for ``frontier_gain``. n counts problems.
    Limits: unknown if no sharpening of the base reaches the run's pass@1.
    Source: ours; see ``frontier_gain``.

    >>> from oversharp.diagnostics.measures.examples import tiny_frontier
    >>> [(f.checkpoint_id, round(f.value, 3)) for f in frontier_loss(tiny_frontier()) if f.scope == "temperature"]
    [('late', -0.041)]
    """
    return _results(evidence, lambda against: against.loss)


@_declare(title="Share of the rise that is sharpening", unit="part of the rise", y_label="part of the rise")
def sharpening_share(evidence: Evidence) -> Iterator[tuple[str, Results]]:
    """Share of sharpening: the part of the rise of pass@1 that the sharpened base also has.

    Meaning: at 1 training equals a lower temperature; at 0 no part of its rise is sharpening. Above 1 a lower
    temperature is better than training. Scopes and k are those of ``frontier_gain``.
    Unit: part of the rise of pass@1. Estimator: 1 − ``frontier_gain`` / rise; interval by the same bootstrap. n counts
    problems.
    Limits: unknown unless pass@1 rose significantly (5 %). The share of a small rise is uncertain, and it is reported
    only for audits in which pass@1 happened to be high: its interval is therefore wider than the others (98 %). In the
    worst simulated case that reports it often enough to count, the interval contains the truth in 93 % of the audits
    that report it (benchmarks/results/frontier.md).
    Source: ours; see ``frontier_gain``.

    >>> from oversharp.diagnostics.measures.examples import tiny_frontier
    >>> [(f.checkpoint_id, round(f.value, 3)) for f in sharpening_share(tiny_frontier()) if f.scope == "temperature"]
    [('late', 1.5)]
    """
    return _results(evidence, lambda against: against.share)


def _results(evidence: Evidence, choose: Callable[[AgainstFrontier], Matched]) -> Iterator[tuple[str, Results]]:
    """Yield the comparisons of every checkpoint with every control, by the control's name."""
    counts, why = load_sampled_counts(evidence)
    for comparison in compare_controls(evidence):
        scope_and_k: Any = (comparison.control.name, comparison.control.k or None)
        for checkpoint_id, _ in compare_with_base(evidence, why):
            if checkpoint_id in comparison.why:
                yield checkpoint_id, {scope_and_k: comparison.why[checkpoint_id]}
            else:
                matched = choose(comparison.against[checkpoint_id])
                yield checkpoint_id, {scope_and_k: _result(matched, counts[checkpoint_id])}


def _result(matched: Matched, counts: Counts) -> Result:
    few = few_clusters(counts.cluster_P)
    n = len(counts.problem_ids)
    over: Literal["problems", "clusters"] = "problems" if named_clusters(counts.cluster_P) is None else "clusters"
    if matched.value is None:
        assert matched.why is not None
        return Unknown(why=matched.why, n=n, low=matched.low, high=matched.high, over=over, why_no_interval=few)
    return Interval(mean=matched.value, low=matched.low, high=matched.high, n=n, over=over, why=few)
