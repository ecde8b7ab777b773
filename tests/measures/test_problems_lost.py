from diagnostics.measures._example import tiny_evidence
from diagnostics.measures.problems_lost import compute

COLUMNS = "checkpoint_id problem_id n n_correct"


def share(now, before=(3, 1, 0, 0)):
    counts = {"base": before, "late": now}
    rows = [(c, f"q{i}", 4, correct) for c, row in counts.items() for i, correct in enumerate(row)]
    (finding,) = compute(tiny_evidence("problem_counts", COLUMNS, rows, n=4))
    return finding


def test_a_planted_loss_is_counted_and_a_mere_drop_is_not():
    assert share((0, 1, 0, 0)).value == 0.25
    assert share((0, 0, 4, 4)).value == 0.5
    assert share((1, 1, 0, 0)).value == 0.0


def test_no_loss_still_has_an_interval():
    finding = share((3, 1, 0, 0))
    assert (finding.value, finding.low, finding.n) == (0.0, 0.0, 4)
    assert finding.high > 0


def test_unequal_numbers_of_samples_are_not_compared():
    rows = [("base", "q1", 4, 1), ("late", "q1", 2, 0)]
    (finding,) = compute(tiny_evidence("problem_counts", COLUMNS, rows, n=4))
    assert finding.value is None
    assert "exactly 4 graded samples" in finding.why
