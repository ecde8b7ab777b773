import pytest

from oversharp.diagnostics.measures.coverage.sharpening.frontier import frontier_loss
from oversharp.diagnostics.measures.examples import tiny_evidence


def loss(late, *, n=8):
    rows = [(c, f"q{i:02}", n, hits[i % 2]) for c, hits in (("base", (3, 2)), ("late", late)) for i in range(40)]
    evidence = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", rows, n=n)
    drawn = [("base", f"q{i:02}", 0.5, 1.0, n, (7, 1)[i % 2]) for i in range(40)]
    columns = "checkpoint_id problem_id temperature own_temperature n n_correct"
    evidence.frames.update(tiny_evidence("control_counts", columns, drawn, n=n).frames)
    [one] = [finding for finding in frontier_loss(evidence) if finding.scope == "temperature"]
    return one


def test_a_run_that_gave_up_half_of_the_problems_lost_more_than_a_temperature_and_its_clean_twin_nothing():
    collapsed, twin = loss((7, 0)), loss((7, 1))
    assert collapsed.value < -0.2
    assert collapsed.high < 0
    assert twin.value == pytest.approx(0, abs=2e-3)


def test_pass_at_1_that_no_temperature_was_drawn_for_has_bounds_and_a_reason():
    beyond = loss((8, 4))
    assert (beyond.value, beyond.k) == (None, 4)
    assert beyond.why
    assert beyond.low > 0
