"""A checkpoint against the base sampled sharper: gain at equal pass@k, loss at equal pass@1, share of sharpening."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

from oversharp.diagnostics.measures.contract import Evidence, Plot, Result, Results, Unknown
from oversharp.diagnostics.measures.counts import ANSWER_COLUMNS, NO_SAMPLES, Counts, sampled_counts
from oversharp.diagnostics.measures.coverage.sharpening.controls import compare_controls
from oversharp.diagnostics.measures.declare import comparisons, per_series
from oversharp.diagnostics.statistics.frontier import AgainstFrontier, Matched
from oversharp.diagnostics.statistics.units import Interval, few_clusters, named_clusters

_ALSO = ("control_counts", "greedy_grades", "base_responses", "answer_counts")


@per_series(
    needs=("sampled_counts",),
    missing=NO_SAMPLES,
    also=_ALSO,
    columns=ANSWER_COLUMNS,
    title="Gain beyond sharpening",
    unit="probability",
    section="coverage",
    plot=Plot(x="step", group="scope", y_label="pass@1 − sharpened base"),
    signed=True,
    of_base=False,
)
def frontier_gain(evidence: Evidence) -> Iterator[tuple[str, Results]]:
    """Gain beyond sharpening: pass@1 less that of the sharpened base at equal pass@k.

    Meaning: a lower temperature of the base also raises pass@1, at the price of pass@k. This is the rest of the rise,
    which training added. At 0 the run equals a lower temperature; below 0 sharpening is better.
    The scope is one of three controls, each with a separate frontier: ``temperature``, the base sampled at lower
    temperatures (``--controls``); ``power``, its sampled responses reweighted to p^α, if they hold 90 % of its
    probability; ``answers``, the answers of m draws that agree, from counts alone and so for every import. k is the
    largest power of two up to half of the fewest samples, up to those of the controls, and for ``answers`` up to a
    sixteenth. The first-order bias of the points of ``answers`` is removed (jackknife). They need 32 samples of each
    problem for 2 draws that agree, 64 for 3, 128 for 4 and 256 for 8, so that they are accurate to half a point.
    Unit: probability (difference). Estimator: unbiased pass@1 and pass@k; the frontier between its points is made
    monotone (isotonic regression) and interpolated over the sharpness; 95 % interval by a bootstrap over problems that
    resamples all points together. n counts problems.
    Limits: if pass@k is outside the range between the base and the sharpest control, the gain has bounds but no value.
    The frontier is flat where pass@k is near 1, and the gain is then uncertain: see ``frontier_loss``.
    Source: temperature as a control is ours; power sampling is arXiv 2510.14901; isotonic regression by scikit-learn.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", [
    ...     (c, f"q{i}", 8, hits)
    ...     for c, *two in (("base", 3, 2), ("late", 6, 1)) for i, hits in enumerate(two * 20)], n=8)
    >>> colder = tiny_evidence("control_counts", "checkpoint_id problem_id temperature own_temperature n n_correct", [
    ...     ("base", f"q{i}", 0.5, 1.0, 8, hits) for i, hits in enumerate([7, 1] * 20)], n=8)
    >>> evidence.frames.update(colder.frames)
    >>> [(f.checkpoint_id, round(f.value, 3)) for f in frontier_gain(evidence) if f.scope == "temperature"]
    [('late', -0.062)]
    """
    return _results(evidence, lambda against: against.gain)


@per_series(
    needs=("sampled_counts",),
    missing=NO_SAMPLES,
    also=_ALSO,
    columns=ANSWER_COLUMNS,
    title="Pass@k against the sharpened base",
    unit="probability",
    section="coverage",
    plot=Plot(x="step", group="scope", y_label="pass@k − sharpened base"),
    signed=True,
    of_base=False,
)
def frontier_loss(evidence: Evidence) -> Iterator[tuple[str, Results]]:
    """Pass@k less that of the sharpened base at equal pass@1: the loss beyond the price of sharpening.

    Meaning: a lower temperature of the base raises pass@1 at the price of pass@k. Below 0 the run paid more: that part
    is forgetting. The rest of the fall of pass@k is reweighting, which a higher temperature restores.
    The scope is one of three controls, each with a separate frontier: ``temperature``, the base sampled at lower
    temperatures (``--controls``); ``power``, its sampled responses reweighted to p^α, if they hold 90 % of its
    probability; ``answers``, the answers of m draws that agree, from counts alone and so for every import. k is the
    largest power of two up to half of the fewest samples, up to those of the controls, and for ``answers`` up to a
    sixteenth.
    Unit: probability (difference). Estimator and interval: as for ``frontier_gain``. n counts problems.
    Limits: if no sharpening reaches the run's pass@1, there is nothing to compare with, and the reason says so.
    Source: ours; see ``frontier_gain``.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", [
    ...     (c, f"q{i}", 8, hits)
    ...     for c, *two in (("base", 3, 2), ("late", 6, 1)) for i, hits in enumerate(two * 20)], n=8)
    >>> colder = tiny_evidence("control_counts", "checkpoint_id problem_id temperature own_temperature n n_correct", [
    ...     ("base", f"q{i}", 0.5, 1.0, 8, hits) for i, hits in enumerate([7, 1] * 20)], n=8)
    >>> evidence.frames.update(colder.frames)
    >>> [(f.checkpoint_id, round(f.value, 3)) for f in frontier_loss(evidence) if f.scope == "temperature"]
    [('late', -0.041)]
    """
    return _results(evidence, lambda against: against.loss)


@per_series(
    needs=("sampled_counts",),
    missing=NO_SAMPLES,
    also=_ALSO,
    columns=ANSWER_COLUMNS,
    title="Share of the rise that is sharpening",
    unit="part of the rise",
    section="coverage",
    plot=Plot(x="step", group="scope", y_label="part of the rise"),
    signed=True,
    of_base=False,
)
def sharpening_share(evidence: Evidence) -> Iterator[tuple[str, Results]]:
    """Share of sharpening: the part of the rise of pass@1 that the sharpened base also has at equal pass@k.

    Meaning: at 1 training equals a lower temperature, at 0 none of its rise is sharpening. Above 1 sharpening is
    better than training.
    The scope is one of three controls, each with a separate frontier: ``temperature``, the base sampled at lower
    temperatures (``--controls``); ``power``, its sampled responses reweighted to p^α, if they hold 90 % of its
    probability; ``answers``, the answers of m draws that agree, from counts alone and so for every import. k is the
    largest power of two up to half of the fewest samples, up to those of the controls, and for ``answers`` up to a
    sixteenth.
    Unit: part of the rise of pass@1. Estimator: 1 − ``frontier_gain`` / rise; interval by the same bootstrap. n counts
    problems.
    Limits: unknown unless pass@1 rose significantly (5 %). The share of a small rise is uncertain, and it is reported
    only for audits in which pass@1 happened to be high: its interval is therefore wider than the others (98 %). In the
    worst simulated case that reports it often enough to count, the interval contains the truth in 93 % of the audits
    that report it (benchmarks/results/frontier.md).
    Source: ours; see ``frontier_gain``.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", [
    ...     (c, f"q{i}", 8, hits)
    ...     for c, *two in (("base", 3, 2), ("late", 6, 1)) for i, hits in enumerate(two * 20)], n=8)
    >>> colder = tiny_evidence("control_counts", "checkpoint_id problem_id temperature own_temperature n n_correct", [
    ...     ("base", f"q{i}", 0.5, 1.0, 8, hits) for i, hits in enumerate([7, 1] * 20)], n=8)
    >>> evidence.frames.update(colder.frames)
    >>> [(f.checkpoint_id, round(f.value, 3)) for f in sharpening_share(evidence) if f.scope == "temperature"]
    [('late', 1.5)]
    """
    return _results(evidence, lambda against: against.share)


def _results(evidence: Evidence, choose: Callable[[AgainstFrontier], Matched]) -> Iterator[tuple[str, Results]]:
    """Yield every checkpoint but the base against every control; the scope is the control's name."""
    counts, why = sampled_counts(evidence)
    for comparison in compare_controls(evidence):
        place: Any = (comparison.control.name, comparison.control.k or None)
        for checkpoint_id, _ in comparisons(evidence, why):
            if checkpoint_id in comparison.why:
                yield checkpoint_id, {place: comparison.why[checkpoint_id]}
            else:
                matched = choose(comparison.against[checkpoint_id])
                yield checkpoint_id, {place: _result(matched, counts[checkpoint_id])}


def _result(matched: Matched, counts: Counts) -> Result:
    few = few_clusters(counts.cluster_P)
    n = len(counts.problem_ids)
    over: Literal["problems", "clusters"] = "problems" if named_clusters(counts.cluster_P) is None else "clusters"
    if matched.value is None:
        assert matched.why is not None
        return Unknown(why=matched.why, n=n, low=matched.low, high=matched.high, over=over, why_no_interval=few)
    return Interval(mean=matched.value, low=matched.low, high=matched.high, n=n, over=over, why=few)
