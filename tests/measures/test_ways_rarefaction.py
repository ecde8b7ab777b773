import pytest

from oversharp.diagnostics.measures.examples import tiny_ways
from oversharp.diagnostics.measures.modes.ways.diversity import NONE_KNOWN, ways_rarefaction


def shown(rows, n, ks):
    return {(f.checkpoint_id, f.k): f for f in ways_rarefaction(tiny_ways(rows, n=n, ks=ks))}


def test_the_expected_number_of_ways_in_k_samples():
    found = shown([("base", "q1", "a", True, 3), ("base", "q2", "a", True, 1), ("base", "q2", "b", True, 1)], 4, (2,))
    # a: 1 − 0; of q2 each: 1 − 3/6
    assert found["base", 2].value == pytest.approx((1.0 + 0.5 + 0.5) / 2)


def test_more_samples_than_there_are_show_an_unknown_number():
    found = shown([("base", "q", "a", True, 2)], 4, (8,))
    assert found["base", 8].why == "pass@8 needs at least 8 samples per problem; there are 4"


def test_where_no_way_is_known_there_is_a_reason_and_no_0():
    found = shown([("base", "q", None, True, 2)], 4, (1,))
    assert (found["base", 1].value, found["base", 1].why) == (None, NONE_KNOWN)
