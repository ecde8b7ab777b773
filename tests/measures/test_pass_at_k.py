import pytest

from oversharp.diagnostics.measures import get_measure
from oversharp.diagnostics.measures.examples import tiny_evidence

COLUMNS = "checkpoint_id problem_id n n_correct"


def found(name, rows, *, n=4, ks=(1,), columns=COLUMNS):
    findings = get_measure(name)(tiny_evidence("sampled_counts", columns, rows, n=n, ks=ks))
    return {(f.checkpoint_id, f.scope, f.k): f for f in findings}


def test_a_planted_collapse_shows_at_large_k_and_not_in_the_clean_twin():
    base = [("base", f"q{i:02}", 8, 2) for i in range(40)]
    late = [("late", f"q{i:02}", 8, 8 if i % 2 else 0) for i in range(40)]
    twin = [("twin", f"q{i:02}", 8, 4) for i in range(40)]
    values = found("pass_at_k", base + late + twin, n=8, ks=(1, 4))
    assert values["late", "all", 1].value == 0.5 > values["base", "all", 1].value
    assert values["late", "all", 4].value == 0.5 < values["base", "all", 4].value < values["twin", "all", 4].value
    changes = found("pass_at_k_delta", base + late + twin, n=8, ks=(1, 4))
    assert changes["late", "all", 1].value == 0.25
    assert changes["late", "all", 4].value == pytest.approx(0.5 - (1 - 15 / 70))  # C(6,4)/C(8,4) = 15/70
    assert changes["late", "all", 4].high < 0 < changes["twin", "all", 4].low


def test_the_difference_is_paired_by_problem():
    # Problems differ widely, the change does not: a paired interval is narrow, an unpaired one could not be.
    rows = [(c, f"q{i:02}", 64, i + more) for c, more in (("base", 0), ("late", 4)) for i in range(60)]
    (finding,) = found("pass_at_k_delta", rows, n=64).values()
    assert finding.value == pytest.approx(4 / 64)
    assert 0.02 < finding.low < finding.value < finding.high < 0.11
    assert finding.n == 60


@pytest.mark.parametrize("name", ["pass_at_k", "pass_at_k_delta"])
def test_too_few_samples_are_a_reason_and_beyond_half_of_them_there_is_no_interval(name):
    rows = [(c, f"q{i}", 8, i) for c in ("base", "late") for i in range(5)]
    values = found(name, rows, n=8, ks=(1, 4, 5, 8, 9))
    assert [values["late", "all", k].low is None for k in (1, 4, 5, 8)] == [False, False, True, True]
    unknown = values["late", "all", 9]
    assert (unknown.value, unknown.why) == (None, "pass@9 needs at least 9 samples per problem; there are 8")


def test_one_sample_has_an_interval():
    assert found("pass_at_k", [("base", "q1", 1, 1), ("base", "q2", 1, 0)], n=1)["base", "all", 1].low is not None


def test_one_problem_has_a_value_but_no_interval():
    (finding,) = found("pass_at_k", [("base", "q1", 4, 1)]).values()
    assert (finding.value, finding.low, finding.high, finding.n) == (pytest.approx(0.25), None, None, 1)


def test_tasks_become_scopes_only_where_there_are_several():
    columns = "checkpoint_id problem_id task n n_correct"
    rows = [("base", "q1", "sums", 4, 1), ("base", "q2", "logic", 4, 3), ("base", "q3", "logic", 4, 4)]
    rows += [("late", "q1", "sums", 4, 4), ("late", "q2", "logic", 4, 2), ("late", "q3", "logic", 4, 3)]
    values = {key[:2]: f.value for key, f in found("pass_at_k", rows, columns=columns).items()}
    assert values["base", "task:sums"] == pytest.approx(0.25)
    assert values["base", "task:logic"] == pytest.approx(7 / 8)
    assert values["base", "all"] == pytest.approx(2 / 3)
    changes = {key[1]: f.value for key, f in found("pass_at_k_delta", rows, columns=columns).items()}
    assert changes == pytest.approx({"all": 0.25 / 3, "task:logic": -0.25, "task:sums": 0.75})
    assert {scope for _, scope, _ in found("pass_at_k", rows[1:3], columns=columns)} == {"all"}


def test_a_checkpoint_cut_short_is_unknown_instead_of_a_mean_over_other_problems():
    rows = [
        ("base", "q1", 4, 1),
        ("base", "q2", 4, 1),
        ("cut", "q1", 4, 4),
        ("short", "q1", 4, 4),
        ("short", "q2", 3, 3),
    ]
    values = found("pass_at_k", rows)
    assert values["base", "all", 1].value == pytest.approx(0.25)
    for checkpoint_id in ("cut", "short"):
        assert values[checkpoint_id, "all", 1].value is None
        assert values[checkpoint_id, "all", 1].why.startswith("1 of 2 problems have exactly 4 graded samples")
