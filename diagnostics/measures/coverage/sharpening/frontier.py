"""Measures that compare checkpoints with the sharpened base: gain, loss, share."""

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

    Meaning: sampling the base at a lower temperature also raises pass@1, and lowers pass@k. The gain is the part of the
    rise of pass@1 that a lower temperature does not explain. If it is 0, training did no more than a lower temperature.
    If it is below 0, a lower temperature is better than training.
    The base is sharpened by three controls. Each control is a scope with its own frontier.
    - ``temperature``: the base sampled at lower temperatures (``--controls``).
    - ``power``: the base's samples reweighted to p^α, if the samples cover 90 % of its probability.
    - ``answers``: draw m samples of the base and keep them only if their answers agree. This needs only the counts of
      answers, so it exists for every import.
    k is the largest power of two that is at most half of the smallest number of samples, and at most the number of
    samples of the controls. For ``answers`` it is at most a sixteenth of the number of samples. The points of
    ``answers`` are corrected for first-order bias (jackknife). For an accuracy of half a percentage point, ``answers``
    needs 32 samples of each problem for m = 2, 64 for m = 3, 128 for m = 4 and 256 for m = 8. With a stopping rule,
    ``power`` and ``answers`` use the first round of the base.
    Unit: probability (difference). Estimator: unbiased pass@1 and pass@k. The frontier is made monotone (isotonic
    regression) and is interpolated between its points. 95 % interval by a bootstrap over problems that resamples all
    points together. n counts problems.
    Limits: if pass@k is outside the range between the base and its sharpest control, the gain has bounds but no value.
    Where pass@k is near 1 the frontier is flat, so the gain is uncertain: see ``frontier_loss``.
    Source: temperature as a control is ours; power sampling is arXiv 2510.14901; isotonic regression by scikit-learn.

    >>> from oversharp.diagnostics.measures.examples import tiny_frontier
    >>> [(f.checkpoint_id, round(f.value, 3)) for f in frontier_gain(tiny_frontier()) if f.scope == "temperature"]
    [('late', -0.062)]
    """
    return _results(evidence, lambda against: against.gain)


@_declare(title="Pass@k against the sharpened base", unit="probability", y_label="pass@k − sharpened base")
def frontier_loss(evidence: Evidence) -> Iterator[tuple[str, Results]]:
    """Loss beyond sharpening: pass@k minus that of the sharpened base at equal pass@1.

    Meaning: sampling the base at a lower temperature raises pass@1 and lowers pass@k. If the value is below 0, training
    lowered pass@k by more than that. This part is forgetting. The rest of the fall of pass@k is reweighting, which
    sampling at a higher temperature reverses. Scopes and k are those of ``frontier_gain``.
    Unit: probability (difference). Estimator and interval: as for ``frontier_gain``. n counts problems.
    Limits: the value is unknown if no control of the base reaches the checkpoint's pass@1.
    Source: ours; see ``frontier_gain``.

    >>> from oversharp.diagnostics.measures.examples import tiny_frontier
    >>> [(f.checkpoint_id, round(f.value, 3)) for f in frontier_loss(tiny_frontier()) if f.scope == "temperature"]
    [('late', -0.041)]
    """
    return _results(evidence, lambda against: against.loss)


@_declare(title="Share of the rise that is sharpening", unit="part of the rise", y_label="part of the rise")
def sharpening_share(evidence: Evidence) -> Iterator[tuple[str, Results]]:
    """Share of sharpening: the part of the rise of pass@1 that the sharpened base also has.

    Meaning: at 1, training did the same as a lower temperature. At 0, no part of the rise is sharpening. Above 1, a
    lower temperature is better than training. Scopes and k are those of ``frontier_gain``.
    Unit: part of the rise of pass@1. Estimator: 1 − ``frontier_gain`` / rise. The interval is from the same bootstrap.
    n counts problems.
    Limits: the share is unknown unless pass@1 rose significantly (5 %). If the rise is small, the share is uncertain,
    and it is reported only for audits in which pass@1 happened to be high. The interval allows for this: it is a 98 %
    interval, and wider than those of other measures. Among the simulated cases in which the share is reported often
    enough to check, the worst interval contains the truth in 93 % of the audits that report it
    (benchmarks/results/frontier.md).
    Source: ours; see ``frontier_gain``.

    >>> from oversharp.diagnostics.measures.examples import tiny_frontier
    >>> [(f.checkpoint_id, round(f.value, 3)) for f in sharpening_share(tiny_frontier()) if f.scope == "temperature"]
    [('late', 1.5)]
    """
    return _results(evidence, lambda against: against.share)


def _results(evidence: Evidence, choose: Callable[[AgainstFrontier], Matched]) -> Iterator[tuple[str, Results]]:
    """Yield the comparison of each checkpoint with each control, by the control's name."""
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
