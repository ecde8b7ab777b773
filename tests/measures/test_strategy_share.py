import pytest

from oversharp.diagnostics.measures.modes.strategies import strategy_share
from tests.measures.samples import drawn

pytestmark = pytest.mark.slow


def test_the_share_is_a_mean_over_problems_and_the_pattern_is_the_audits(world):
    samples = drawn("base", "q1", text=["def f():", "hence"]) + drawn("base", "q2", text=["thus", "so"])
    samples += drawn("late", "q1", text=["def f():", "x\ndef g():"]) + drawn("late", "q2", text=["def h():", "so"])
    samples += [{"greedy": True, "problem": "q1", "text": "def f():"}]
    found = world(samples, n=2, strategy_regex=r"\bdef \w+\(").values(strategy_share)
    assert found == {
        ("base", "code"): 0.25,
        ("base", "prose"): 0.75,
        ("late", "code"): 0.75,
        ("late", "prose"): 0.25,
    }


@pytest.mark.slow
def test_the_interval_needs_thirty_problems_and_is_the_floored_one(world):
    def rows(problems):
        samples = [
            row for i in range(problems) for row in drawn("base", f"q{i:02}", text=["```x```" if i % 2 else "so", "so"])
        ]
        return {row["scope"]: row for row in world(samples, n=2).sql_rows(strategy_share)}

    assert rows(29)["code"]["low"] is None
    code, prose = rows(30)["code"], rows(30)["prose"]
    variance = 0.0625 * 30 / 29  # half of the problems at 0, half at 1/2
    half_width = 1.959964 * (29 * variance + 1) ** 0.5 / 30
    assert (code["value"], code["n"]) == (0.25, 30)
    assert code["high"] == pytest.approx(0.25 + half_width)
    assert prose["low"] == pytest.approx(0.75 - half_width)
