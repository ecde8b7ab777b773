import pytest

from oversharp.diagnostics.measures.coverage.sharpening.control_pass_at_k import control_pass_at_k
from oversharp.diagnostics.measures.examples import tiny_evidence

COLUMNS = "checkpoint_id problem_id temperature own_temperature n n_correct"


def rows(checkpoint, temperature, *hits):
    return [(checkpoint, f"q{i}", temperature, 1.0, 4, hit) for i, hit in enumerate(hits)]


def test_every_temperature_of_every_checkpoint_has_its_own_pass_at_k():
    drawn = [*rows("base", 0.5, 4, 0), *rows("base", 0.25, 2, 2), *rows("late", 1.5, 1, 0)]
    made = {
        (f.checkpoint_id, f.scope, f.k): f.value
        for f in control_pass_at_k(tiny_evidence("control_counts", COLUMNS, drawn))
    }
    assert made["base", "T=0.5", 4] == 0.5
    assert made["base", "T=0.25", 2] == pytest.approx(5 / 6)
    assert made["late", "T=1.5", 1] == pytest.approx(0.125)
    assert len(made) == 9


def test_a_problem_that_lacks_its_samples_leaves_the_temperature_unknown():
    drawn = [*rows("base", 0.5, 4, 0), *rows("base", 0.25, 2)]
    whys = {f.scope: f.why for f in control_pass_at_k(tiny_evidence("control_counts", COLUMNS, drawn))}
    assert whys == {"T=0.5": None, "T=0.25": "the samples are incomplete"}
