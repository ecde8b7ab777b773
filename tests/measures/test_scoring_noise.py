import pytest

from diagnostics.measures import get_measure
from diagnostics.measures._example import tiny_evidence

compute = get_measure("scoring_noise").compute

COLUMNS = "checkpoint_id problem_id response_id n_tokens logp_sum second_logp_sum"


def found(*rows):
    return {(f.checkpoint_id, f.scope): f for f in compute(tiny_evidence("repeated_logps", COLUMNS, list(rows)))}


def test_noise_in_either_direction_adds_up_and_problems_count_equally():
    findings = found(
        ("base", "q1", "a", 2, -3.0, -3.25),  # 1/8 per token
        ("base", "q1", "b", 4, -3.0, -1.5),  # 3/8, the other way
        ("base", "q2", "c", 8, -3.0, -3.0),
    )
    assert findings["base", "all"].value == pytest.approx(0.125)
    assert (findings["base", "all"].low, findings["base", "all"].n) == (0.0, 2)
    largest = findings["base", "max"]
    assert (largest.value, largest.low, largest.high, largest.n) == (0.375, None, None, 3)


def test_both_scores_are_read_from_the_store(world):
    samples = [{"panel": True, "text": "p"}]
    scores = [(c, "q1", "p", [-1.0, -1.0], [0.0, 0.0]) for c in ("base", "late")]
    second = [("base", "q1", "p", -2.0), ("late", "q1", "p", -2.5)]
    store = world(samples, n=1, panel=1, panel_logps=scores, second_logps=second)
    findings = {(f.checkpoint_id, f.scope): f.value for f in compute(store.evidence())}
    assert findings == {("base", "all"): 0.0, ("base", "max"): 0.0, ("late", "all"): 0.25, ("late", "max"): 0.25}


def test_a_checkpoint_without_a_second_score_says_so(world):
    samples = [{"panel": True, "text": "p"}]
    scores = [(c, "q1", "p", [-1.0], [0.0]) for c in ("base", "late")]
    store = world(samples, n=1, panel=1, panel_logps=scores, second_logps=[("base", "q1", "p", -1.0)])
    findings = {(f.checkpoint_id, f.scope): f for f in compute(store.evidence())}
    assert findings["base", "all"].value == 0.0
    assert findings["late", "max"].why.startswith("no panel response is scored twice here")
