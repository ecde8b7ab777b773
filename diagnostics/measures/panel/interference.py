"""Measures of the change of log-probabilities of the base's responses.

The change is since the base, or since the previous checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot, Result, Results
from oversharp.diagnostics.measures.counts import drop_interval, select_clusters
from oversharp.diagnostics.measures.declare import compare_with_base, pair_steps, per_series
from oversharp.diagnostics.measures.panel.scores import (
    NO_PANEL,
    NONE_CORRECT,
    PanelScores,
    Scope,
    base_success_scopes,
    load_panel_scores,
)
from oversharp.diagnostics.statistics.intervals import median_interval

#: The earlier checkpoint, the later checkpoint, and the reason why the two cannot be compared, or None.
Pair = tuple[str, str, str | None]


def _declare(
    *, title: str, unit: str, rank: int, y_label: str, signed: bool = False
) -> Callable[[Callable[[Evidence], Iterable[tuple[str, Results]]]], Measure]:
    return per_series(
        needs=("panel_logps", "sampled_counts"),
        missing=NO_PANEL,
        title=title,
        unit=unit,
        section="interference",
        rank=rank,
        plot=Plot(x="step", group="scope", y_label=y_label),
        signed=signed,
        of_base=False,
    )


@_declare(
    title="Interference against base", unit="nats per response", rank=10, y_label="Δ⁺ (nats per response)", signed=True
)
def interference(evidence: Evidence) -> Iterator[tuple[str, Results]]:
    """Interference against base: the change in log-probability of the base's correct responses.

    Meaning: the value is Δ⁺. The panel's correct responses were sampled once from the base, separately from the audit's
    samples. Every checkpoint scores them. If the value is below 0, training made the base's solutions less likely. The
    base has no finding. Scopes:
    - ``all``: the whole problem set.
    - ``task:NAME``: one task, if there are several.
    - ``base 0``: problems that no base sample solved.
    - ``base 0-10%`` to ``base 90-100%``: problems by the base's success rate, including the upper bound. The rate is
      computed from other samples than the panel.
    - ``median``: the median over all problems.
    Unit: nats per response (sum over its tokens). Estimator: mean over the correct panel responses of a problem, then
    over problems. (Def 4.1 averages over pairs of problem and response, so problems with many correct responses would
    have more weight.) n counts problems with a correct panel response. Means have no interval: if 3 % of problems
    change thirty times as much as the rest, a t interval over 30 problems misses the truth in 40 % of audits. The
    median has a 95 % interval that is valid for any distribution, for at least six problems.
    Limits: this does not test Def 2.1 of [A]. Different wordings of a mode can exchange probability while the mode
    keeps its own. One nat of this phrasing noise makes Δ⁺ negative for nearly all unchanged modes. The panel is sampled
    at the panel temperature, which favours likely responses if it is below 1. Long responses change by more nats.
    Intervals of single checkpoints are not corrected for multiple comparisons.
    Source: [C] (The Reasoning Boundary Paradox), Def 4.1, Eq 5, with the base as μ and all training as the update.

    >>> from oversharp.diagnostics.measures.examples import combine_views, tiny_evidence
    >>> panel = tiny_evidence("panel_logps", "checkpoint_id problem_id sample_index correct logp_sum n_tokens", [
    ...     ("base", "q1", 0, True, -8.0, 9), ("base", "q1", 1, False, -7.0, 9), ("base", "q2", 0, True, -5.0, 9),
    ...     ("base", "q2", 1, True, -4.0, 9), ("late", "q1", 0, True, -9.0, 9), ("late", "q1", 1, False, -1.0, 9),
    ...     ("late", "q2", 0, True, -5.5, 9), ("late", "q2", 1, True, -7.5, 9)])
    >>> counts = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", [
    ...     ("base", "q1", 4, 0), ("base", "q2", 4, 3), ("late", "q1", 4, 0), ("late", "q2", 4, 4)])
    >>> evidence = combine_views(panel, counts)
    >>> [(f.scope, f.value, f.n) for f in interference(evidence)]  # q2: (−0.5 − 3.5) / 2 = −2
    [('all', -1.5, 2), ('base 0', -1.0, 1), ('base 70-80%', -2.0, 1), ('median', -1.5, 2)]
    """
    scores, why = load_panel_scores(evidence)
    why_not = base_success_scopes(evidence, next(iter(scores.values())).problem_ids)[1] if scores else None
    for checkpoint_id, results in _changes(evidence, _pairs_with_base(evidence, why), squared=False):
        yield checkpoint_id, results | {"base success": why_not} if why_not else results


@_declare(
    title="Interference between checkpoints",
    unit="nats per response",
    rank=20,
    y_label="Δ⁺ since the previous checkpoint (nats per response)",
    signed=True,
)
def interference_step(evidence: Evidence) -> Iterator[tuple[str, Results]]:
    """Interference between checkpoints: the change of the base's correct responses by step.

    Meaning: Δ⁺ of the training between two consecutive checkpoints. If it is below 0, these updates made the base's
    solutions less likely (negative interference). The base has no finding.
    Unit: nats per response (sum over its tokens). Scopes, estimator and intervals: as for ``interference``.
    Limits: as for ``interference``. In the paper an update is one optimiser step. Here it is all steps between two
    checkpoints, so compare values only if checkpoints are evenly spaced. The values sum to ``interference``.
    Source: [C] (The Reasoning Boundary Paradox), Def 4.1, Eq 5, Fig 2C, with the base as μ.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("panel_logps", "checkpoint_id problem_id sample_index correct logp_sum n_tokens", [
    ...     ("base", "q1", 0, True, -8.0, 9), ("base", "q2", 0, True, -5.0, 9),
    ...     ("20", "q1", 0, True, -6.0, 9), ("20", "q2", 0, True, -4.0, 9),
    ...     ("40", "q1", 0, True, -7.0, 9), ("40", "q2", 0, True, -6.0, 9)])
    >>> [(f.checkpoint_id, f.value) for f in interference_step(evidence) if f.scope == "all"]
    [('20', 1.5), ('40', -1.5)]
    """
    return _changes(evidence, pair_steps(evidence, load_panel_scores(evidence)[1]), squared=False)


@_declare(title="Interference magnitude against base", unit="nats²", rank=30, y_label="mean squared change (nats²)")
def interference_magnitude(evidence: Evidence) -> Iterator[tuple[str, Results]]:
    """Interference magnitude against base: the mean squared change of the base's responses.

    Meaning: the value is ‖Δ‖, over correct and wrong panel responses, whether they rise or fall. At 0 nothing outside
    the training batches changed, so coverage cannot have been lost. Scopes are those of ``interference``. The base has
    no finding.
    Unit: nats²: the mean square, without a root, of the change summed over a response's tokens. Estimator: mean over
    all panel responses of a problem, then over problems. n counts problems of the panel. Means have no interval,
    because a few problems may dominate them. The median has a 95 % interval for at least six problems.
    Limits: a few responses with a large change dominate the mean. The value has no direction: sharpening that only
    raises correct responses also has a large magnitude. Long responses change more. The panel is sampled at the panel
    temperature. Wordings of one mode that exchange probability (phrasing noise) count as change.
    Source: [C] (The Reasoning Boundary Paradox), Def 4.1, with the base as μ and all training as the update.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("panel_logps", "checkpoint_id problem_id sample_index correct logp_sum n_tokens", [
    ...     ("base", "q1", 0, True, -8.0, 9), ("base", "q2", 0, False, -5.0, 9),
    ...     ("late", "q1", 0, True, -6.0, 9), ("late", "q2", 0, False, -8.0, 9)])
    >>> findings = interference_magnitude(evidence)  # (2² + 3²) / 2 nats²
    >>> [(f.checkpoint_id, f.value, f.n) for f in findings if f.scope == "all"]
    [('late', 6.5, 2)]
    """
    return _changes(evidence, _pairs_with_base(evidence, load_panel_scores(evidence)[1]), squared=True)


@_declare(
    title="Interference magnitude between checkpoints",
    unit="nats²",
    rank=40,
    y_label="mean squared change since the previous checkpoint (nats²)",
)
def interference_magnitude_step(evidence: Evidence) -> Iterator[tuple[str, Results]]:
    """Interference magnitude between checkpoints: the mean squared change by step.

    Meaning: ‖Δ‖ of the training between two consecutive checkpoints, over correct and wrong panel responses, whether
    they rise or fall. If it grows, updates have more effect beyond their batches: the model distinguishes problems
    less. The base has no finding.
    Unit: nats²: the mean square, without a root, of the change summed over a response's tokens. Scopes, estimator and
    intervals: as for ``interference_magnitude``.
    Limits: as for ``interference_magnitude``, but the values do not sum to it. In the paper an update is one optimiser
    step. Here it is all steps between two checkpoints, so compare values only if checkpoints are evenly spaced. The
    values grow with the learning rate.
    Source: [C] (The Reasoning Boundary Paradox), Def 4.1, Fig 2B, with the base as μ.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("panel_logps", "checkpoint_id problem_id sample_index correct logp_sum n_tokens", [
    ...     ("base", "q1", 0, True, -8.0, 9), ("base", "q2", 0, False, -5.0, 9),
    ...     ("20", "q1", 0, True, -6.0, 9), ("20", "q2", 0, False, -8.0, 9),
    ...     ("40", "q1", 0, True, -7.0, 9), ("40", "q2", 0, False, -8.0, 9)])
    >>> [(f.checkpoint_id, f.value) for f in interference_magnitude_step(evidence) if f.scope == "all"]
    [('20', 6.5), ('40', 0.5)]
    """
    return _changes(evidence, pair_steps(evidence, load_panel_scores(evidence)[1]), squared=True)


def _pairs_with_base(evidence: Evidence, why: Mapping[str, str]) -> Iterator[Pair]:
    return ((evidence.base_id, checkpoint_id, why_not) for checkpoint_id, why_not in compare_with_base(evidence, why))


def _changes(evidence: Evidence, pairs: Iterable[Pair], *, squared: bool) -> Iterator[tuple[str, dict[str, Result]]]:
    """Yield the change in nats by scope at the later checkpoint of each pair.

    The change is Δ⁺ over correct responses, or ‖Δ‖ over all responses if ``squared``. Scopes are tasks, bins of base
    success, and the median over all problems.
    """
    scores, _ = load_panel_scores(evidence)
    for before_id, after_id, why_not in pairs:
        if why_not:
            yield after_id, {"all": why_not}
        elif not (squared or scores[after_id].correct_R.any()):
            yield after_id, {"all": NONE_CORRECT}
        else:
            yield after_id, _by_scope(evidence, scores[before_id], scores[after_id], squared=squared)


def _by_scope(evidence: Evidence, before: PanelScores, after: PanelScores, *, squared: bool) -> dict[str, Result]:
    change_R = after.change_nats(before)
    values_R, is_counted_R = (change_R**2, None) if squared else (change_R, after.correct_R)
    # means have no interval: a few problems with a large change dominate the mean, and a sample may lack them
    means = after.intervals(values_R, _scopes(evidence, after), is_counted_R=is_counted_R)
    mean_P, has_mean_P = after.problem_means(values_R, is_counted_R)
    median = median_interval(mean_P[has_mean_P], cluster_P=select_clusters(after.cluster_P, has_mean_P))
    results: dict[str, Result] = {scope: drop_interval(interval) for scope, interval in means.items()}
    return results | {"median": median}


def _scopes(evidence: Evidence, scores: PanelScores) -> list[Scope]:
    """Return the tasks, and the bins of the base's success rate if it is known."""
    if "sampled_counts" not in evidence.frames:
        return scores.task_scopes()
    return [*scores.task_scopes(), *base_success_scopes(evidence, scores.problem_ids)[0]]
