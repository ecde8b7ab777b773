import pytest

from diagnostics.measures import get_measure
from diagnostics.measures._example import tiny_evidence

compute = get_measure("pass_at_k").compute

COLUMNS = "checkpoint_id problem_id n n_correct"


def by_key(findings):
    return {(f.checkpoint_id, f.scope, f.k): f for f in findings}


def test_the_value_is_the_mean_of_the_unbiased_estimates():
    evidence = tiny_evidence("sampled_counts", COLUMNS, [("base", "q1", 4, 1), ("base", "q2", 4, 2)], n=4, ks=(1, 2, 4))
    found = by_key(compute(evidence))
    assert found["base", "all", 1].value == pytest.approx(3 / 8)
    assert found["base", "all", 2].value == pytest.approx((1 / 2 + 5 / 6) / 2)
    assert found["base", "all", 4].value == 1.0
    assert found["base", "all", 2].n == 2


def test_a_planted_collapse_shows_at_large_k_and_not_in_the_clean_twin():
    base = [("base", f"q{i}", 8, 2) for i in range(4)]
    collapsed = [("late", f"q{i}", 8, 8 if i < 2 else 0) for i in range(4)]
    twin = [("twin", f"q{i}", 8, 4) for i in range(4)]
    found = by_key(compute(tiny_evidence("sampled_counts", COLUMNS, base + collapsed + twin, n=8, ks=(1, 4))))
    assert found["late", "all", 1].value == 0.5 > found["base", "all", 1].value
    assert found["late", "all", 4].value == 0.5 < found["base", "all", 4].value < found["twin", "all", 4].value


def test_more_draws_than_samples_is_unknown_with_a_reason():
    findings = compute(tiny_evidence("sampled_counts", COLUMNS, [("base", "q1", 4, 1)], n=4, ks=(1, 8)))
    unknown = by_key(findings)["base", "all", 8]
    assert unknown.value is None
    assert unknown.why == "pass@8 needs at least 8 samples per problem; there are 4"


def test_there_is_no_interval_beyond_half_the_samples():
    rows = [("base", f"q{i}", 8, i) for i in range(5)]
    found = by_key(compute(tiny_evidence("sampled_counts", COLUMNS, rows, n=8, ks=(1, 4, 5, 8))))
    assert [found["base", "all", k].low is None for k in (1, 4, 5, 8)] == [False, False, True, True]
    single = by_key(compute(tiny_evidence("sampled_counts", COLUMNS, [("b", "p", 1, 1), ("b", "q", 1, 0)], n=1)))
    assert single["b", "all", 1].low is not None


def test_one_problem_has_a_value_but_no_interval():
    (finding,) = compute(tiny_evidence("sampled_counts", COLUMNS, [("base", "q1", 4, 1)], n=4))
    assert finding.value == pytest.approx(0.25)
    assert (finding.low, finding.high, finding.n) == (None, None, 1)


def test_tasks_become_scopes_only_where_there_are_several():
    rows = [("base", "q1", "sums", 4, 1), ("base", "q2", "logic", 4, 3), ("base", "q3", "logic", 4, 4)]
    found = by_key(compute(tiny_evidence("sampled_counts", "checkpoint_id problem_id task n n_correct", rows, n=4)))
    assert found["base", "task:sums", 1].value == pytest.approx(0.25)
    assert found["base", "task:logic", 1].value == pytest.approx(7 / 8)
    assert found["base", "all", 1].value == pytest.approx(2 / 3)
    alone = compute(tiny_evidence("sampled_counts", "checkpoint_id problem_id task n n_correct", rows[1:], n=4))
    assert {f.scope for f in alone} == {"all"}


def test_a_checkpoint_cut_short_is_unknown_instead_of_a_mean_over_other_problems():
    rows = [
        ("base", "q1", 4, 1),
        ("base", "q2", 4, 1),
        ("cut", "q1", 4, 4),
        ("short", "q1", 4, 4),
        ("short", "q2", 3, 3),
    ]
    found = by_key(compute(tiny_evidence("sampled_counts", COLUMNS, rows, n=4)))
    assert found["base", "all", 1].value == pytest.approx(0.25)
    for checkpoint_id in ("cut", "short"):
        assert found[checkpoint_id, "all", 1].value is None
        assert found[checkpoint_id, "all", 1].why.startswith("1 of 2 problems have exactly 4 graded samples")
