import pytest

from oversharp.diagnostics.measures.health.response_length import response_length
from tests.measures.samples import drawn

pytestmark = pytest.mark.slow


def test_lengths_are_given_for_all_and_by_grade(world):
    samples = drawn("base", n_tokens=[2, 4, 9], correct=[True, True, False])
    samples += drawn("late", n_tokens=[8, 10], correct=[False, False])
    samples.append({"greedy": True, "n_tokens": 1000})
    assert world(samples, n=3).values(response_length) == {
        ("base", "all"): 5.0,
        ("base", "correct"): 3.0,
        ("base", "not_correct"): 9.0,
        ("late", "all"): 9.0,
        ("late", "not_correct"): 9.0,
    }
