from diagnostics.measures import get_measure
from diagnostics.measures._example import tiny_evidence

compute = get_measure("interference_magnitude_step").compute

COLUMNS = "checkpoint_id problem_id sample_index correct logp_sum n_tokens"


def findings(*logps, lacking=None):
    rows = [
        (checkpoint, "q1", index, index == 0, logp[index], 5)
        for checkpoint, logp in zip(("base", "20", "40"), logps, strict=True)
        for index in range(2)
        if (checkpoint, index) != lacking
    ]
    return compute(tiny_evidence("panel_logps", COLUMNS, rows))


def test_a_move_and_its_reversal_are_two_steps():
    found = findings((-8.0, -5.0), (-6.0, -1.0), (-8.0, -5.0))
    assert [(f.checkpoint_id, f.value) for f in found] == [("20", 10.0), ("40", 10.0)]  # (2² + 4²) / 2, twice


def test_a_still_model_after_a_move_has_no_magnitude():
    assert [f.value for f in findings((-8.0, -5.0), (-6.0, -5.0), (-6.0, -5.0))] == [2.0, 0.0]


def test_a_partly_scored_checkpoint_hides_its_own_step_and_the_next():
    middle, last = findings((-8.0, -5.0), (-6.0, -5.0), (-6.0, -5.0), lacking=("20", 1))
    assert middle.why.startswith("1 of 2 panel responses are scored here")
    assert last.why == f"the checkpoint before: {middle.why}"
