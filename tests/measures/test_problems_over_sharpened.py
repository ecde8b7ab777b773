import math

import pytest

from diagnostics.measures._example import tiny_evidence
from diagnostics.measures.problems_over_sharpened import compute

COLUMNS = "checkpoint_id problem_id mode logp_sum"


def share(base, late):
    """``base`` and ``late``: query → probabilities of its modes."""
    rows = [
        (checkpoint_id, query, f"m{i}", math.log(p) if p else -math.inf)
        for checkpoint_id, queries in (("base", base), ("late", late))
        for query, probabilities in queries.items()
        for i, p in enumerate(probabilities)
    ]
    (finding,) = compute(tiny_evidence("mode_logps", COLUMNS, rows))
    return finding.value


def test_one_fallen_mode_makes_the_query_over_sharpened():
    base = {"q1": (0.3, 0.2), "q2": (0.3, 0.2)}
    assert share(base, {"q1": (0.6, 0.1), "q2": (0.4, 0.3)}) == 0.5


def test_moderate_sharpening_has_none():
    assert share({"q1": (0.3, 0.2), "q2": (0.1,)}, {"q1": (0.5, 0.2), "q2": (0.9,)}) == 0.0


def test_a_fall_within_the_numeric_noise_is_equality():
    assert share({"q": (0.3,)}, {"q": (0.3 * math.exp(-0.9e-4),)}) == 0.0
    assert share({"q": (0.3,)}, {"q": (0.3 * math.exp(-1.1e-4),)}) == 1.0


@pytest.mark.parametrize(("before", "now", "expected"), [(0.0, 0.0, 0.0), (0.0, 0.1, 0.0), (0.1, 0.0, 1.0)])
def test_impossible_modes_can_only_rise(before, now, expected):
    assert share({"q": (before,)}, {"q": (now,)}) == expected
