"""Pass@k corrected by gold labels, the sets that are labelled, and the test for a judge that grows lenient."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from oversharp.diagnostics.statistics.labels.correction import LabelledOutcomes, corrected_pass_at_k, draw_sets
from oversharp.diagnostics.statistics.labels.leniency import JointShares, leniency_change
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table


def outcomes(judged: list[float], gold: list[int], judge: list[int]) -> LabelledOutcomes:
    """One labelled set of each problem."""
    return LabelledOutcomes(
        judged_P=np.array(judged, dtype=float),
        problem_S=np.arange(len(gold)),
        gold_S=np.array(gold, dtype=bool),
        judge_S=np.array(judge, dtype=bool),
    )


def test_a_judge_that_is_always_right_is_weighted_and_one_by_chance_is_not() -> None:
    half = [0, 1] * 20
    right = outcomes([0.5] * 40, half, half)
    assert right.weight == pytest.approx(40 / 80)  # λ = 1, times problems / (problems + sets)
    unrelated = outcomes([0.5] * 40, [0, 0, 1, 1] * 10, half)
    assert unrelated.weight == pytest.approx(1 / (40 / 4 + 1) / 2)  # no covariance, one pseudo-set


def test_the_correction_moves_the_estimate_by_the_error_on_the_labelled_sets() -> None:
    # the judge accepts every sample, half of them wrongly: its grades carry nothing, and the labels decide
    late = outcomes([1.0] * 40, [0, 1] * 20, [1] * 40)
    corrected = corrected_pass_at_k(late)
    assert corrected.mean == pytest.approx(0.5)
    assert corrected.low is not None
    assert corrected.high is not None
    assert corrected.low < 0.5 < corrected.high < 1.0
    base = outcomes([1.0] * 40, [1] * 40, [1] * 40)
    change = corrected_pass_at_k(late, base)
    assert change.mean == pytest.approx(-0.5)
    assert change.high is not None
    assert change.high < -0.3


def test_related_problems_widen_the_interval_and_few_have_none() -> None:
    gold = ([0] * 4 + [1] * 4) * 10
    late = outcomes([0.5] * 80, gold, [1, 0] * 40)
    alone = corrected_pass_at_k(late)
    related = corrected_pass_at_k(late, cluster_P=np.arange(80) // 4)
    assert (related.high - related.low) > 1.5 * (alone.high - alone.low)  # type: ignore[operator]
    few = corrected_pass_at_k(outcomes([0.5] * 9, [1, 0, 1] * 3, [1] * 9))
    assert (few.low, few.why) == (None, "the labels have only 9 independent problems")


def test_an_outcome_of_a_set_has_the_expectation_of_unbiased_pass_at_k() -> None:
    correct = [1, 0, 0, 1, 0]
    for k in (1, 2, 3):
        hits = [any(correct[place] for place in order[:k]) for order in permutations(range(5))]
        assert np.mean(hits) == pytest.approx(pass_at_k_table(5, [k])[2, 0])


def test_sets_are_drawn_until_the_expected_labels_are_enough() -> None:
    never = np.zeros((30, 8), dtype=bool)
    problem_S, sample_SK = draw_sets(never, np.arange(30), n_labels=60, k=4, rng=np.random.default_rng(0))
    assert len(problem_S) == 15  # 4 labels each, because the judge accepts none
    assert sample_SK.shape == (15, 4)
    assert all(len(set(row)) == 4 for row in sample_SK.tolist())
    assert len(draw_sets(never, np.arange(30), n_labels=1, k=8, rng=np.random.default_rng(0))[0]) == 10
    with pytest.raises(ValueError, match="needs 1 <= k <= 8 samples, got 9"):
        draw_sets(never, np.arange(30), n_labels=60, k=9, rng=np.random.default_rng(0))


def shares(extra: np.ndarray, other: np.ndarray, n: int = 1000) -> JointShares:
    return JointShares(n=n, extra_P=extra, other_P=other)


def test_extra_accepts_that_follow_from_accuracy_are_no_leniency() -> None:
    rng = np.random.default_rng(1)
    base_P = rng.random(100)
    late_P = np.clip(base_P + rng.uniform(-0.1, 0.5, 100), 0, 1)
    noise_P = rng.normal(0, 0.002, 100)
    base = shares(0.1 * (1 - base_P), base_P)  # a tenth of the wrong samples, at both
    same = leniency_change(base, shares(0.1 * (1 - late_P) + noise_P, late_P))
    planted = leniency_change(base, shares(0.1 * (1 - late_P) + noise_P + 0.02, late_P))
    assert not isinstance(same, str)
    assert not isinstance(planted, str)
    assert not same.is_found
    assert planted.is_found
    assert planted.change.mean == pytest.approx(0.02, abs=0.002)


def test_the_test_of_leniency_needs_problems_and_clusters() -> None:
    few = shares(np.zeros(19), np.zeros(19))
    assert leniency_change(few, few) == "only 19 problems; the test needs 20"
    many = shares(np.zeros(40), np.full(40, 0.5))
    assert "an interval needs at least 10" in str(leniency_change(many, many, cluster_P=np.arange(40) // 20))
    unchanged = leniency_change(many, many)
    assert not isinstance(unchanged, str)
    assert (unchanged.p, unchanged.is_found) == (1.0, False)
