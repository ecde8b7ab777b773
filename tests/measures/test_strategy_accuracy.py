import pytest

from oversharp.diagnostics.measures.modes.strategies import strategy_accuracy
from tests.measures.samples import drawn

CODE, PROSE = "```python```", "so"


@pytest.fixture(scope="module")
def accuracy(world):
    samples = [
        *drawn("base", text=[CODE, CODE, CODE, PROSE], correct=[True, True, False, False]),
        *drawn("late", text=[CODE, PROSE, PROSE, PROSE], correct=[True, True, False, False]),
        *drawn("base", "q2", text=[PROSE] * 4, correct=[True] * 4),
        *drawn("late", "q2", text=[PROSE] * 4, correct=[True, True, False, False]),
    ]
    return world(samples, n=4).values(strategy_accuracy)


def test_accuracy_is_a_mean_over_the_problems_where_a_strategy_is_used(accuracy):
    assert accuracy["base", "code"] == pytest.approx(2 / 3)
    assert accuracy["late", "code"] == 1.0
    assert accuracy["late", "prose"] == pytest.approx((1 / 3 + 1 / 2) / 2)


def test_the_same_mixture_is_pass_at_1_without_the_switch(accuracy):
    assert accuracy["base", "same_mixture"] == pytest.approx((2 / 4 + 1) / 2)  # pass@1 itself
    assert accuracy["late", "same_mixture"] == pytest.approx((3 / 4 * 1 + 1 / 4 * 1 / 3 + 1 / 2) / 2)
