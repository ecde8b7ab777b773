import pytest

from oversharp.diagnostics.measures.coverage.greedy import greedy_accuracy


def test_only_greedy_responses_count(world):
    samples = [
        {"greedy": True, "problem": "q1", "correct": True},
        {"greedy": True, "problem": "q2", "correct": False},
        {"greedy": True, "problem": "q3", "correct": True},
        {"greedy": False, "problem": "q2", "correct": True},
        {"greedy": True, "problem": "q1", "correct": False, "checkpoint": "late"},
        {"greedy": True, "problem": "q2", "correct": False, "checkpoint": "late"},
        {"greedy": True, "problem": "q3", "correct": False, "checkpoint": "late"},
    ]
    base, late = world(samples, n=1).sql_rows(greedy_accuracy)
    assert (base["value"], base["n"]) == (pytest.approx(2 / 3), 3)
    assert (late["value"], late["low"]) == (0.0, 0.0)
    assert late["high"] == pytest.approx(3.8415 / (3 + 3.8415), abs=1e-4)  # Wilson at 0 of n: z²/(n+z²)
    assert base["low"] < base["value"] < base["high"]


def test_without_greedy_responses_there_are_no_rows(world):
    assert world([{"greedy": False}], n=1).sql_rows(greedy_accuracy) == []
