import math

import pytest

from diagnostics.measures import get_measure
from diagnostics.measures._example import tiny_evidence

compute = get_measure("perplexity_base_samples").compute

COLUMNS = "checkpoint_id problem_id sample_index correct n_tokens logp_sum"


def row(checkpoint, problem, index, perplexity, *, correct=True, n_tokens=3):
    return (checkpoint, problem, index, correct, n_tokens, -n_tokens * math.log(perplexity))


def found(*rows):
    return {(f.checkpoint_id, f.scope): f for f in compute(tiny_evidence("panel_logps", COLUMNS, list(rows)))}


def test_the_mean_is_within_a_problem_first_and_correct_responses_stand_apart():
    findings = found(
        row("base", "q1", 0, 2, n_tokens=1),
        row("base", "q1", 1, 3, n_tokens=9),
        row("base", "q1", 2, 7, correct=False),
        row("base", "q2", 0, 10),
        row("base", "q2", 1, 20, correct=False),
        row("base", "q2", 2, 30, correct=False),
    )
    assert findings["base", "all"].value == pytest.approx((4 + 20) / 2)
    assert findings["base", "correct"].value == pytest.approx((2.5 + 10) / 2)
    assert findings["base", "all"].low == 1.0


def test_a_checkpoint_that_moves_away_from_base_samples_has_a_higher_perplexity(world):
    samples = [{"panel": True, "text": "a"}, {"panel": True, "text": "b", "sample_index": 1, "correct": False}]
    scores = [
        ("base", "q1", "a", [-1.0, -1.0], [0.0, 0.0]),
        ("base", "q1", "b", [-2.0, -2.0], [0.0, 0.0]),
        ("late", "q1", "a", [-1.0, -4.0], [0.0, 0.0]),
        ("late", "q1", "b", [-2.0, -2.0], [0.0, 0.0]),
    ]
    store = world(samples, n=1, panel=2, panel_logps=scores)
    findings = {(f.checkpoint_id, f.scope): f.value for f in compute(store.evidence())}
    assert findings == {
        ("base", "all"): pytest.approx((math.e + math.exp(2)) / 2),
        ("base", "correct"): pytest.approx(math.e),
        ("late", "all"): pytest.approx((math.exp(2.5) + math.exp(2)) / 2),
        ("late", "correct"): pytest.approx(math.exp(2.5)),
    }


def test_a_problem_without_a_correct_response_is_in_all_alone():
    findings = found(row("base", "q1", 0, 2), row("base", "q2", 0, 8, correct=False))
    assert (findings["base", "all"].value, findings["base", "all"].n) == (pytest.approx(5.0), 2)
    assert (findings["base", "correct"].value, findings["base", "correct"].n) == (pytest.approx(2.0), 1)


def test_without_a_correct_response_correct_says_why():
    findings = found(row("base", "q1", 0, 2, correct=False))
    assert findings["base", "all"].value == pytest.approx(2.0)
    assert findings["base", "correct"].why == "no panel response is correct; run the audit with a larger --panel"


def test_a_panel_scored_in_part_is_unknown_in_both_scopes():
    findings = found(row("base", "q1", 0, 2), row("base", "q2", 0, 2), row("late", "q1", 0, 2))
    assert findings["base", "correct"].value == pytest.approx(2.0)
    assert findings["late", "all"].why == findings["late", "correct"].why
    assert findings["late", "all"].why.startswith("1 of 2 panel responses are scored here")


def test_broken_weights_are_a_reason_not_an_overflow():
    findings = found(row("base", "q1", 0, 2), ("late", "q1", 0, True, 3, -6000.0))
    assert "2000 nats per token" in findings["late", "all"].why
    assert findings["late", "correct"].value is None
