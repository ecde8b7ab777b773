import pytest

from diagnostics.measures import get_measure
from diagnostics.measures._example import tiny_evidence

compute = get_measure("pass_at_k_delta").compute

COLUMNS = "checkpoint_id problem_id n n_correct"


def test_the_difference_is_paired_by_problem():
    # Problems differ widely, the change does not: a paired interval is narrow, an unpaired one could not be.
    base = [("base", f"q{i:02}", 64, i) for i in range(60)]
    late = [("late", f"q{i:02}", 64, i + 4) for i in range(60)]
    (finding,) = compute(tiny_evidence("sampled_counts", COLUMNS, base + late, n=64))
    assert finding.value == pytest.approx(4 / 64)
    assert 0.02 < finding.low < finding.value < finding.high < 0.11
    assert finding.n == 60


def test_a_planted_loss_at_large_k_is_below_zero_and_the_twin_is_not():
    base = [("base", f"q{i:02}", 8, 2) for i in range(40)]
    late = [("late", f"q{i:02}", 8, 8 if i % 2 else 0) for i in range(40)]
    twin = [("twin", f"q{i:02}", 8, 3) for i in range(40)]
    findings = compute(tiny_evidence("sampled_counts", COLUMNS, base + late + twin, n=8, ks=(1, 4)))
    found = {(f.checkpoint_id, f.k): f for f in findings}
    assert found["late", 1].value == 0.25
    assert found["late", 4].value == pytest.approx(0.5 - (1 - 15 / 70))  # C(6,4)/C(8,4) = 15/70
    assert found["late", 4].high < 0
    assert found["twin", 4].low > 0


def test_the_base_has_no_row():
    findings = compute(tiny_evidence("sampled_counts", COLUMNS, [("base", "q", 4, 2), ("late", "q", 4, 2)], n=4))
    assert [(f.checkpoint_id, f.value) for f in findings] == [("late", 0.0)]


def test_an_incomplete_base_leaves_nothing_to_compare_with():
    rows = [("base", "q1", 3, 2), ("late", "q1", 4, 2)]
    (finding,) = compute(tiny_evidence("sampled_counts", COLUMNS, rows, n=4))
    assert finding.value is None
    assert finding.why.startswith("base: 0 of 1 problems")


def test_too_few_samples_and_no_interval_beyond_half_of_them():
    rows = [(c, f"q{i}", 4, i) for c in ("base", "late") for i in range(3)]
    found = {f.k: f for f in compute(tiny_evidence("sampled_counts", COLUMNS, rows, n=4, ks=(2, 3, 5)))}
    assert found[2].low is not None
    assert (found[3].value, found[3].low) == (0.0, None)
    assert "needs at least 5" in found[5].why


def test_tasks_are_compared_within_themselves():
    rows = [
        (c, q, t, 4, k)
        for c, q, t, k in [
            ("base", "q1", "sums", 1),
            ("base", "q2", "logic", 2),
            ("late", "q1", "sums", 4),
            ("late", "q2", "logic", 1),
        ]
    ]
    findings = compute(tiny_evidence("sampled_counts", "checkpoint_id problem_id task n n_correct", rows, n=4))
    expected = {"all": 0.25, "task:logic": -0.25, "task:sums": 0.75}
    assert {f.scope: f.value for f in findings} == pytest.approx(expected)
