import pytest

from oversharp.diagnostics.measures.coverage.sharpening.frontier import sharpening_share
from oversharp.diagnostics.measures.examples import tiny_evidence


def share(late, *, n=8):
    rows = [(c, f"q{i:02}", n, hits[i % 2]) for c, hits in (("base", (3, 2)), ("late", late)) for i in range(40)]
    evidence = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", rows, n=n)
    drawn = [("base", f"q{i:02}", 0.5, 1.0, n, (7, 1)[i % 2]) for i in range(40)]
    columns = "checkpoint_id problem_id temperature own_temperature n n_correct"
    evidence.frames.update(tiny_evidence("control_counts", columns, drawn, n=n).frames)
    [one] = [finding for finding in sharpening_share(evidence) if finding.scope == "temperature"]
    return one


def test_all_of_a_temperatures_rise_is_sharpening_and_more_than_all_where_coverage_was_lost_beside():
    assert share((7, 1)).value == pytest.approx(1, abs=0.02)
    assert share((6, 1)).value == pytest.approx(1.5, abs=0.02)


def test_without_a_sure_rise_there_is_no_share():
    assert share((3, 2)).why == "pass@1 did not rise significantly"
