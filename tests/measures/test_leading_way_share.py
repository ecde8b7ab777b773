from oversharp.diagnostics.measures.examples import tiny_ways
from oversharp.diagnostics.measures.modes.ways.diversity import leading_way_share


def shares(rows, n=8):
    return {f.checkpoint_id: f for f in leading_way_share(tiny_ways(rows, n=n))}


def test_the_leading_way_is_chosen_and_measured_on_different_samples_of_the_base():
    found = shares([("base", "q", "a", True, 3), ("base", "q", "b", True, 1), ("base", "q", "b", False, 4)])
    assert found["base"].value == 0.0


def test_a_problem_without_a_known_way_in_the_first_half_is_left_out():
    rows = [("base", "q1", "a", True, 2), ("base", "q1", "a", False, 2), ("base", "q2", "b", False, 2)]
    found = shares([*rows, ("late", "q1", "b", True, 2), ("late", "q1", None, True, 2), ("late", "q2", "b", True, 2)])
    assert {name: (f.value, f.n) for name, f in found.items()} == {"base": (1.0, 1), "late": (0.0, 1)}


def test_without_any_leading_way_the_share_is_unknown():
    assert shares([("base", "q", None, True, 4)])["base"].why.startswith("no problem with a leading way")
