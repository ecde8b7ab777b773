import pytest

from diagnostics.measures import get_measure
from diagnostics.measures._example import tiny_evidence

compute = get_measure("interference_step").compute

COLUMNS = "checkpoint_id problem_id task sample_index correct logp_sum n_tokens"
LOGPS = {"base": (-8.0, -3.0, -5.0), "20": (-6.0, -1.0, -4.0), "40": (-7.0, -9.0, -7.0)}


def findings(logps=LOGPS, tasks=("sums", "sums")):
    rows = [
        row
        for checkpoint, (right, wrong, other) in logps.items()
        for row in (
            (checkpoint, "q1", tasks[0], 0, True, right, 5),
            (checkpoint, "q1", tasks[0], 1, False, wrong, 5),
            (checkpoint, "q2", tasks[1], 0, True, other, 5),
            (checkpoint, "q2", tasks[1], 1, True, other, 5),
        )
    ]
    return compute(tiny_evidence("panel_logps", COLUMNS, [row for row in rows if row[5] is not None]))


def test_each_checkpoint_is_compared_with_the_one_before():
    # q1 +2, then −1; q2 +1, then −3; the wrong response of q1 counts in neither
    assert [(f.checkpoint_id, f.value, f.n) for f in findings()] == [("20", 1.5, 2), ("40", -2.0, 2)]


def test_the_steps_add_up_to_the_change_since_the_base():
    assert sum(f.value for f in findings()) == pytest.approx(((-7 + 8) + (-7 + 5)) / 2)


def test_tasks_are_scopes_where_there_are_several():
    found = {(f.checkpoint_id, f.scope): f.value for f in findings(tasks=("sums", "logic"))}
    assert found["40", "task:sums"] == -1.0
    assert found["40", "task:logic"] == -3.0


def test_a_partly_scored_checkpoint_hides_its_own_step_and_the_next():
    gap = LOGPS | {"20": (-6.0, None, -4.0), "60": (-7.0, -9.0, -6.0)}
    middle, after, last = findings(gap)
    assert middle.why == "3 of 4 panel responses are scored here; run the audit again to complete them"
    assert after.why == f"the checkpoint before: {middle.why}"
    assert last.value == 0.5
