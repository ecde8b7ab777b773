from oversharp.diagnostics.measures.examples import tiny_ways
from oversharp.diagnostics.measures.modes.ways.diversity import ways_unknown


def test_the_share_is_a_mean_over_problems_with_a_correct_sample():
    rows = [("base", "q1", None, True, 1), ("base", "q1", "a", False, 3), ("base", "q2", "a", True, 2)]
    (found,) = ways_unknown(tiny_ways(rows, n=4))
    assert (found.value, found.n) == (0.125, 2)
