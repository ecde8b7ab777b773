import numpy as np
import pytest

from diagnostics.measures._example import tiny_ways
from diagnostics.measures.minority_ways_p import compute

N = 32


def p_value(late_of):
    """Of a leading way, a minority way and unread ones: of 0.6, 0.2 and 0 at the base, and of ``late_of`` late."""
    rng, rows = np.random.default_rng(0), []
    for i in range(40):
        for half in (True, False):
            led, beside, _ = rng.multinomial(N // 2, [0.6, 0.2, 0.2])
            rows += [("base", f"q{i}", "a", half, int(led)), ("base", f"q{i}", "b", half, int(beside))]
        drawn = rng.multinomial(N, [*late_of, 1 - sum(late_of)])[:3]
        rows += [("late", f"q{i}", way, True, int(n)) for way, n in zip(("a", "b", None), drawn, strict=True)]
    (found,) = compute(tiny_ways([row for row in rows if row[-1]], n=N))
    return found.value


def test_a_lost_minority_way_is_found_and_a_kept_one_is_not():
    assert p_value((0.8, 0.05, 0)) < 0.01
    assert p_value((0.6, 0.2, 0)) > 0.05
    assert p_value((0.75, 0.2, 0)) > 0.05  # the leading way rose alone


def test_what_cannot_be_read_any_more_is_no_loss():
    assert p_value((0.6, 0.05, 0.35)) > 0.05


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([("base", "q", None, True, 4), ("late", "q", "a", True, 4)], "no problem shows a way in the first half"),
        ([("base", "q", "a", True, 1), ("late", "q", "a", True, 1)], "problems have unequal numbers of samples"),
    ],
)
def test_without_a_leading_way_or_enough_samples_there_is_no_p(rows, why):
    (found,) = compute(tiny_ways(rows, n=4 if "shows" in why else 2))
    assert found.value is None
    assert found.why.startswith(why)
