import itertools

import pytest

from oversharp.diagnostics.measures.coverage.changes import k_star
from oversharp.diagnostics.measures.examples import tiny_evidence

COLUMNS = "checkpoint_id problem_id n n_correct"


def counts(checkpoint_id, *hits, n=8, n_problems=40):
    return [(checkpoint_id, f"q{i:02}", n, hits[i % len(hits)]) for i in range(n_problems)]


def findings_of(*rows, n=8, ks=(1,)):
    evidence = tiny_evidence("sampled_counts", COLUMNS, list(itertools.chain(*rows)), n=n, ks=ks)
    return {f.checkpoint_id: f for f in k_star(evidence)}


def test_k_star_by_hand():
    # base 2 of 8: pass@1, 2, 4 = .25, 1 − 15/28, 1 − 15/70; late 7 or 0 of 8: .4375, .5, .5
    found = findings_of(counts("base", 2), counts("late", 7, 0))["late"]
    ahead, behind = 0.5 - 13 / 28, 55 / 70 - 0.5
    assert found.value == pytest.approx(2 ** (1 + ahead / (ahead + behind)))
    assert 1 <= found.low < found.value < found.high < 4
    assert (found.n, found.k, found.scope) == (40, None, "all")


def test_a_planted_collapse_crosses_and_the_clean_twin_does_not():
    found = findings_of(counts("base", 2), counts("late", 8, 0), counts("twin", 3))
    assert "base" not in found
    assert found["late"].value < 4
    assert found["twin"].value is None
    assert found["twin"].why == "pass@k does not fall below the base up to k = 4"
    assert (found["twin"].low, found["twin"].high) == (None, None)


def test_worse_at_any_number_of_attempts_is_one():
    found = findings_of(counts("base", 4), counts("late", 2))["late"]
    assert (found.value, found.low, found.high) == (1.0, 1.0, 1.0)


def test_an_interval_may_reach_beyond_the_range_without_a_bound():
    late = [("late", f"q{i:02}", 8, 7 if i % 16 else 1) for i in range(40)]
    base = [("base", f"q{i:02}", 8, 5) for i in range(40)]
    found = findings_of(base, late)["late"]
    assert found.value < 4
    assert found.low is not None
    assert found.high is None


def test_what_does_not_cross_may_be_bounded_from_below():
    late = [("late", f"q{i:02}", 8, 7 if i % 40 else 1) for i in range(40)]
    base = [("base", f"q{i:02}", 8, 4) for i in range(40)]
    found = findings_of(base, late)["late"]
    assert found.value is None
    assert 1 < found.low < 4


def test_k_goes_to_half_of_the_samples_whatever_was_asked_for():
    for ks in ((1,), (1, 2, 4, 8, 16)):
        found = findings_of(counts("base", 2), counts("late", 3), ks=ks)["late"]
        assert found.why.endswith("up to k = 4")
    # the base was sampled more often than the checkpoint: the fewest samples bound k
    found = findings_of(counts("base", 8, n=32), counts("late", 3), n=8)["late"]
    assert "exactly" in found.why  # 32 samples are not the 8 that were planned


def test_unequal_samples_are_compared_up_to_half_of_the_fewest():
    columns = f"{COLUMNS} n_planned"
    rows = [(*row, 32) for row in counts("base", 8, n=32)] + [(*row, 8) for row in counts("late", 3)]
    (found,) = k_star(tiny_evidence("sampled_counts", columns, rows, n=8))
    assert found.why == "pass@k does not fall below the base up to k = 4"


def test_one_problem_has_a_value_but_no_interval():
    found = findings_of(counts("base", 4, n_problems=1), counts("late", 2, n_problems=1))["late"]
    assert (found.value, found.low, found.high, found.n) == (1.0, None, None, 1)
