import numpy as np
import pytest

from oversharp.diagnostics.measures.tokens.entropy import high_entropy_tokens
from tests.measures.samples import response


@pytest.mark.slow
def test_the_base_stands_at_a_fifth_and_the_others_at_its_threshold(world):
    base = [response("q1", np.arange(6) / 8), response("q2", np.arange(6, 10) / 8)]  # above 7.2/8: two of ten
    late = [response("q1", [0.0, 0.9, 1.0, 1.5], checkpoint="late"), response("q2", [5.0], checkpoint="late")]
    rows = {row["checkpoint_id"]: row for row in world(base + late, n=1).sql_rows(high_entropy_tokens)}
    assert rows["base"]["value"] == 0.2
    assert rows["base"]["n"] == 10
    assert rows["late"]["value"] == 3 / 5  # pooled over tokens: 0.9 is just below the threshold
    assert rows["late"]["n"] == 5


@pytest.mark.slow
def test_a_planted_collapse_of_the_forks_is_seen_and_a_copy_of_the_base_stays_at_a_fifth(world):
    rng = np.random.default_rng(6)
    entropy_PT = rng.exponential(size=(20, 50))
    samples = [response(f"q{i:02}", row) for i, row in enumerate(entropy_PT)]
    samples += [response(f"q{i:02}", row[::-1], checkpoint="copy") for i, row in enumerate(entropy_PT)]
    samples += [response(f"q{i:02}", row / 2, checkpoint="flat") for i, row in enumerate(entropy_PT)]
    found = world(samples, n=1).values(high_entropy_tokens)
    assert found["base", "all"] == found["copy", "all"] == 0.2
    assert found["flat", "all"] == pytest.approx(0.2**2, abs=0.02)  # P(X > 2·q) of an exponential


def test_ties_at_the_threshold_leave_the_base_below_a_fifth(world):
    assert world([response("q", [0.0, 0.0, 1.0, 1.0, 1.0])], n=1).values(high_entropy_tokens) == {("base", "all"): 0.0}


def test_without_scores_of_the_base_the_share_is_unknown_not_zero(world):
    samples = [{"problem": "q"}, response("q", [1.0, 2.0], checkpoint="late")]
    assert world(samples, n=1).sql_rows(high_entropy_tokens) == []


@pytest.mark.slow
def test_sample_numbers_that_only_some_problems_have_scored_are_left_out(world):
    samples = [response("q1", [0.0, 1.0]), response("q2", [0.0, 1.0, 2.0]), response("q1", [9.0] * 20, index=1)]
    samples += [response("q1", [9.0], checkpoint="part")]
    rows = world(samples, n=2).sql_rows(high_entropy_tokens)
    assert [(row["checkpoint_id"], row["value"], row["n"]) for row in rows] == [("base", 0.2, 5)]


@pytest.mark.slow
def test_intervals_are_over_problems_and_the_base_has_none(world):
    samples = [response(f"q{i:02}", [0.0, 0.0, 0.0, 0.0, 1.0]) for i in range(30)]
    # the threshold is between 0 and 1; half of the problems have no high-entropy token left
    late = [response(f"q{i:02}", [0.0] * 4 + [float(i % 2)], checkpoint="late") for i in range(30)]
    rows = {row["checkpoint_id"]: row for row in world(samples + late, n=1).sql_rows(high_entropy_tokens)}
    assert (rows["base"]["low"], rows["base"]["high"]) == (None, None)
    spread_P = np.array([i % 2 / 5 for i in range(30)]) - 0.1
    half_width = 1.959964 * np.sqrt(29 * spread_P.var(ddof=1) + 1) / 30
    assert rows["late"]["value"] == pytest.approx(0.1)
    assert (rows["late"]["low"], rows["late"]["high"]) == pytest.approx((0.1 - half_width, 0.1 + half_width))
    few = world(samples[:29] + late[:29], n=1).sql_rows(high_entropy_tokens)
    assert all(row["low"] is None for row in few)


def test_the_share_is_unknown_if_the_entropies_of_the_base_are(world):
    samples = [response("q", [1.0]) | {"token_entropies": None}, response("q", [1.0], checkpoint="late")]
    assert world(samples, n=1).sql_rows(high_entropy_tokens) == []
