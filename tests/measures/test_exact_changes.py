import math

import pytest

from oversharp.diagnostics.measures import get_measure
from oversharp.diagnostics.measures.examples import tiny_evidence


def rows(checkpoint_id, problem, *probabilities):
    return [(checkpoint_id, problem, f"m{i:02}", math.log(p) if p else -math.inf) for i, p in enumerate(probabilities)]


def change(name, *parts):
    (finding,) = get_measure(name)(
        tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", [row for part in parts for row in part])
    )
    return finding


def since(name, base, late):
    """``base`` and ``late``: problem → probabilities of its modes."""
    parts = [rows(c, problem, *ps) for c, of in (("base", base), ("late", late)) for problem, ps in of.items()]
    return change(name, *parts)


@pytest.mark.parametrize(
    ("before", "now", "lost"),
    [(0.021, 0.0019, 1.0), (0.019, 0.0, 0.0), (0.5, 0.0021, 0.0), (0.5, 0.0, 1.0), (0.0, 0.0, 0.0), (0.5, 0.9, 0.0)],
)
def test_lost_means_solvable_before_and_out_of_reach_now(before, now, lost):
    # Two modes of equal probability: the sum is what counts.
    found = since("problems_lost_exact", {"q": (before / 2, before / 2)}, {"q": (now / 2, now / 2)})
    assert found.value == lost


def test_one_fallen_mode_makes_the_problem_over_sharpened():
    base = {"q1": (0.3, 0.2), "q2": (0.3, 0.2)}
    assert since("problems_over_sharpened", base, {"q1": (0.6, 0.1), "q2": (0.4, 0.3)}).value == 0.5


@pytest.mark.parametrize("name", ["problems_over_sharpened", "modes_fallen", "modes_fallen_10x", "mass_lost"])
def test_moderate_sharpening_has_none(name):
    found = since(name, {"q1": (0.3, 0.2), "q2": (0.1,)}, {"q1": (0.5, 0.2), "q2": (0.9,)})
    assert found.value == 0.0
    assert found.high > 0  # two problems without a fall prove little


@pytest.mark.parametrize("name", ["problems_over_sharpened", "modes_fallen"])
def test_a_fall_within_the_numeric_noise_is_equality(name):
    assert since(name, {"q": (0.3,)}, {"q": (0.3 * math.exp(-0.9e-4),)}).value == 0.0
    assert since(name, {"q": (0.3,)}, {"q": (0.3 * math.exp(-1.1e-4),)}).value == 1.0


@pytest.mark.parametrize(("before", "now", "expected"), [(0.0, 0.0, 0.0), (0.0, 0.1, 0.0), (0.1, 0.0, 1.0)])
@pytest.mark.parametrize("name", ["problems_over_sharpened", "modes_fallen", "modes_fallen_10x"])
def test_impossible_modes_can_only_rise(name, before, now, expected):
    assert since(name, {"q": (before,)}, {"q": (now,)}).value == expected


def test_the_share_of_fallen_modes_is_pooled_over_modes():
    found = since("modes_fallen", {"q1": (0.1,) * 4, "q2": (0.5,)}, {"q1": (0.09, 0.09, 0.09, 0.5), "q2": (0.9,)})
    assert (found.value, found.n) == (pytest.approx(3 / 5), 5)
    assert 0.0 <= found.low <= found.value <= found.high <= 1.0


def test_more_than_tenfold_is_counted_and_ninefold_is_not():
    late = tuple(0.05 / factor for factor in (9.9, 10.1, 1.0, 0.2))
    found = since("modes_fallen_10x", {"q1": (0.05,) * 4}, {"q1": late})
    assert (found.value, found.n) == (0.25, 4)


def test_problems_with_many_modes_do_not_pretend_to_be_many_problems():
    # 2 problems × 50 modes that move together: the interval must stay wide.
    base = {"q1": (0.01,) * 50, "q2": (0.01,) * 50}
    found = since("modes_fallen_10x", base, {**base, "q1": (0.0001,) * 50})
    assert found.value == pytest.approx(0.5)
    assert (found.low, found.high) == (0.0, 1.0)


def test_losses_are_weighed_by_base_probability_and_gains_do_not_pay():
    assert since("mass_lost", {"q": (0.4, 0.1)}, {"q": (0.9, 0.05)}).value == pytest.approx(0.05 / 0.5)


def test_problems_count_equally_in_the_mass_lost():
    found = since("mass_lost", {"q1": (0.5,), "q2": (0.001,)}, {"q1": (0.5,), "q2": (0.0,)})
    assert (found.value, found.n) == (pytest.approx(0.5), 2)


def test_long_responses_do_not_underflow():
    base = [("base", "q", "a", -2000.0), ("base", "q", "b", -2000.0)]
    late = [("late", "q", "a", -1990.0), ("late", "q", "b", -2000.0 - math.log(4))]
    assert change("mass_lost", base, late).value == pytest.approx(0.5 * 0.75)


def test_problems_impossible_under_the_base_have_no_share():
    found = since("mass_lost", {"q1": (0.5,), "q2": (0.0,)}, {"q1": (0.25,), "q2": (0.2,)})
    assert (found.value, found.n) == (pytest.approx(0.5), 1)
    nothing = since("mass_lost", {"q": (0.0,)}, {"q": (0.2,)})
    assert nothing.why == "base: every mode of every problem has probability 0"
