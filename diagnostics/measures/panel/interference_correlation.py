"""Measures of the correlation between Δ⁺ and pass@k over a series, and its permutation test."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from oversharp.diagnostics.measures.contract import Evidence, Plot, Result, Results
from oversharp.diagnostics.measures.counts import Counts, explain_too_few, load_sampled_counts
from oversharp.diagnostics.measures.declare import per_series
from oversharp.diagnostics.measures.panel.scores import NO_PANEL, NONE_CORRECT, find_positions, load_panel_scores
from oversharp.diagnostics.statistics.permutation import link_test, within_correlation
from oversharp.diagnostics.statistics.units import Interval

PERMUTATIONS = 1999
SEED = 0


@dataclass(frozen=True, kw_only=True)
class _Trajectories:
    """Panel scores and counts at the checkpoints with complete data of both, in step order.

    ``logp_TP`` is the mean log-probability in nats of a problem's correct panel responses, which are the same at every
    checkpoint. It covers only problems with a correct panel response. ``place_P`` are their indices among the sampled
    problems.
    """

    counts: tuple[Counts, ...]
    logp_TP: Float[np.ndarray, "checkpoint problem"]
    place_P: Int[np.ndarray, " problem"]

    def why_too_few(self, k: int) -> str | None:
        """Return why pass@k is unknown at one of the checkpoints, or None."""
        return explain_too_few(k, min(counts.fewest for counts in self.counts))

    def pass_at_k(self, k: int) -> Float[np.ndarray, "checkpoint sampled_problem"]:
        """Return the unbiased pass@k of every sampled problem."""
        return np.stack([counts.pass_at_k(k) for counts in self.counts])


def _load_trajectories(evidence: Evidence) -> _Trajectories | str:
    """Load the complete checkpoints, or return why there is nothing to compare."""
    scores, why_scores = load_panel_scores(evidence)
    counts, why_counts = load_sampled_counts(evidence)
    why_not = {**why_scores, **why_counts}
    complete = [i for i in evidence.checkpoint_ids if i not in why_not]
    if len(complete) < 3:
        first = f" ({next(iter(why_not.values()))})" if why_not else ""
        return f"needs 3 complete checkpoints; there are {len(complete)}{first}"
    first_scores, first_counts = scores[complete[0]], counts[complete[0]]
    _, has_correct_P = first_scores.problem_means(first_scores.logp_R, first_scores.correct_R)
    if not has_correct_P.any():
        return NONE_CORRECT
    panel_ids = [i for i, has in zip(first_scores.problem_ids, has_correct_P, strict=True) if has]
    place_P, why_lacking = find_positions(panel_ids, first_counts.problem_ids)
    if why_lacking:
        return why_lacking
    means_TP = [scores[i].problem_means(scores[i].logp_R, scores[i].correct_R)[0] for i in complete]
    return _Trajectories(
        counts=tuple(counts[i] for i in complete),
        logp_TP=np.stack([mean_P[has_correct_P] for mean_P in means_TP]),
        place_P=place_P,
    )


@per_series(
    needs=("panel_logps", "sampled_counts"),
    missing=NO_PANEL,
    title="Interference and pass@k, correlation",
    unit="correlation",
    section="interference",
    rank=50,
    plot=Plot(x="k", group="checkpoint", y_label="r of Δ⁺ and Δ pass@k", log_x=True, y_range=(-1.0, 1.0)),
    signed=True,
)
def interference_correlation(evidence: Evidence) -> Iterator[tuple[str, Results]]:
    """Interference and pass@k: the correlation of their changes between checkpoints.

    Meaning: Pearson's r between Δ⁺ (the change in log-probability of the base's correct panel responses) and the change
    of pass@k, over all pairs of an earlier and a later checkpoint. If r is near 1, checkpoints that lost the base's
    solutions also lost coverage. There is one value for the series, at its last checkpoint.
    Unit: correlation, −1 to 1. Δ⁺ is the mean over the correct panel responses of a problem, then over problems. pass@k
    is the unbiased estimate averaged over all sampled problems. The samples of pass@k do not include panel responses,
    so the two changes share no noise. n counts pairs of checkpoints. There is no interval, because each checkpoint is
    in many pairs.
    Limits: this is a description, not evidence. Two curves that merely have a trend have |r| near 0.8. The test is
    ``interference_correlation_p``. Checkpoints without a complete panel or without all samples are excluded. r is
    unknown for fewer than 3 checkpoints, and if a curve is constant. The paper's y⁺ are correct solutions of its test
    set, while here they are the base's panel responses. The panel is sampled at the panel temperature. Teacher-forced
    Δ⁺ contains phrasing noise, and does not test Def 2.1 of [A].
    Source: [C] (The Reasoning Boundary Paradox), section 4.2, Fig 3.

    >>> from oversharp.diagnostics.measures.examples import combine_views, tiny_evidence
    >>> panel = tiny_evidence("panel_logps", "checkpoint_id problem_id sample_index correct logp_sum n_tokens", [
    ...     ("base", "q1", 0, True, -8.0, 9), ("20", "q1", 0, True, -6.0, 9), ("40", "q1", 0, True, -7.0, 9)])
    >>> counts = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", [
    ...     ("base", "q1", 4, 1), ("20", "q1", 4, 3), ("40", "q1", 4, 2)])
    >>> evidence = combine_views(panel, counts)
    >>> [(f.checkpoint_id, f.k, round(f.value, 4), f.n) for f in interference_correlation(evidence)]
    [('40', 1, 1.0, 3)]
    """
    return _estimate_at_last(evidence, _correlation)


@per_series(
    needs=("panel_logps", "sampled_counts"),
    missing=NO_PANEL,
    title="Interference and pass@k, permutation test",
    unit="p-value",
    section="interference",
    rank=60,
    plot=Plot(x="k", group="checkpoint", y_label="p-value", log_x=True, y_range=(0.0, 1.0)),
)
def interference_correlation_p(evidence: Evidence) -> Iterator[tuple[str, Results]]:
    """Interference and pass@k, tested: whether the same problems lost both.

    Meaning: the p-value of a permutation test. For each pair of neighbouring checkpoints, each problem has a change in
    log-probability of its correct panel responses, and a change of its pass@k. The test statistic is the correlation of
    the two over problems. Deviations are taken from the mean of the pair (and of the task), so a trend that all
    problems share has no effect. A small p means that the same problems changed in both, and not only that two curves
    have a trend. There is one value for the series, at its last checkpoint.
    Unit: p-value, two-sided, never 0: (1 + number of permutations as extreme) / (1 + 1999). There are 1999
    permutations, with seed 0. Each permutation assigns each problem the whole trajectory of another problem of its
    task, which preserves the dependence between steps within a problem. n counts problems with a correct panel
    response. The samples of pass@k do not include panel responses, so common noise cannot cause the correlation.
    Limits: there is one p-value per k, without a correction for multiple tests. The p-value is valid for these problems
    if the problems of a task are exchangeable. It does not show a cause: a common cause of both changes, such as
    difficulty, also makes them correlate. With few samples, or if pass@k is near 0 or 1 for most problems, a true
    correlation is not detected. Checkpoints without a complete panel or without all samples are excluded. The panel is
    sampled at the panel temperature. Teacher-forced Δ⁺ contains phrasing noise, and does not test Def 2.1 of [A].
    Source: the claim is [C] (The Reasoning Boundary Paradox), section 4.2, Fig 3; the test is ours, after Pitman 1937
    (J. R. Stat. Soc. Suppl. 4:225), pooled over pairs.

    >>> from oversharp.diagnostics.measures.examples import combine_views, tiny_evidence
    >>> panel = tiny_evidence("panel_logps", "checkpoint_id problem_id sample_index correct logp_sum n_tokens", [
    ...     (c, f"q{i}", 0, True, -9.0 - i * t, 9) for t, c in enumerate(("base", "20", "40")) for i in range(8)])
    >>> counts = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", [
    ...     (c, f"q{i}", 16, 16 - i * t) for t, c in enumerate(("base", "20", "40")) for i in range(8)], n=16)
    >>> evidence = combine_views(panel, counts)
    >>> findings = interference_correlation_p(evidence)  # log-probability and pass@1 fall alike
    >>> [(f.checkpoint_id, f.k, f.value, f.n) for f in findings]
    [('40', 1, 0.0005, 8)]
    """
    return _estimate_at_last(evidence, _p_value)


def _estimate_at_last(
    evidence: Evidence, estimate: Callable[[_Trajectories, int], Result]
) -> Iterator[tuple[str, dict[int, Result]]]:
    """Yield the last checkpoint with an estimate for every k, or the reason why there is none."""
    loaded = _load_trajectories(evidence)
    yield (
        evidence.checkpoint_ids[-1],
        {k: loaded if isinstance(loaded, str) else loaded.why_too_few(k) or estimate(loaded, k) for k in evidence.ks},
    )


def _correlation(trajectories: _Trajectories, k: int) -> Result:
    interference_C = _changes(trajectories.logp_TP.mean(axis=1))
    coverage_C = _changes(trajectories.pass_at_k(k).mean(axis=1))
    r = within_correlation(interference_C[None], coverage_C[None])
    if r is None:
        return f"Δ⁺ or pass@{k} is the same at every checkpoint, so they have no correlation"
    return Interval(mean=r, low=None, high=None, n=len(interference_C))


def _changes(level_T: Float[np.ndarray, " checkpoint"]) -> Float[np.ndarray, " pair"]:
    """Return later minus earlier for every pair of checkpoints."""
    return np.array([later - earlier for earlier, later in itertools.combinations(level_T, 2)])


def _p_value(trajectories: _Trajectories, k: int) -> Result:
    interference_SP = np.diff(trajectories.logp_TP, axis=0)
    test = link_test(
        interference_SP,
        np.diff(trajectories.pass_at_k(k)[:, trajectories.place_P], axis=0),
        stratum_P=trajectories.counts[0].task_P[trajectories.place_P],
        n_permutations=PERMUTATIONS,
        seed=SEED,
    )
    if test.p_value is None:
        return f"Δ⁺ or pass@{k}: {test.why}"
    return Interval(mean=test.p_value, low=None, high=None, n=interference_SP.shape[1])
