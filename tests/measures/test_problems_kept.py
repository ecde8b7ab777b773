import pytest

from diagnostics.measures._example import tiny_evidence
from diagnostics.measures.problems_kept import compute

COLUMNS = "checkpoint_id problem_id n n_correct"


def share(now, before=(3, 1, 0, 0)):
    counts = {"base": before, "late": now}
    rows = [(c, f"q{i}", 4, correct) for c, row in counts.items() for i, correct in enumerate(row)]
    (finding,) = compute(tiny_evidence("problem_counts", COLUMNS, rows, n=4))
    return finding


def test_kept_is_solved_before_and_now():
    assert share((1, 4, 0, 0)).value == 0.5
    assert share((1, 0, 4, 4)).value == 0.25
    assert share((0, 0, 4, 4)).value == 0.0


def test_kept_lost_gained_and_never_make_the_whole():
    from diagnostics.measures import problems_gained, problems_lost

    counts = {"base": (3, 1, 0, 0, 2), "late": (1, 0, 2, 0, 2)}
    rows = [(c, f"q{i}", 4, correct) for c, row in counts.items() for i, correct in enumerate(row)]
    evidence = tiny_evidence("problem_counts", COLUMNS, rows, n=4)
    parts = [measure(evidence)[0].value for measure in (compute, problems_lost.compute, problems_gained.compute)]
    assert parts == pytest.approx([0.4, 0.2, 0.2])
