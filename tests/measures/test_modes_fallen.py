import math

import pytest

from diagnostics.measures._example import tiny_evidence
from diagnostics.measures.modes_fallen import compute

COLUMNS = "checkpoint_id problem_id mode logp_sum"


def test_the_share_is_pooled_over_modes():
    base = [("base", "q1", m, math.log(0.1)) for m in "abcd"] + [("base", "q2", "e", math.log(0.5))]
    late = [("late", "q1", m, math.log(0.09)) for m in "abc"] + [("late", "q1", "d", math.log(0.5))]
    late += [("late", "q2", "e", math.log(0.9))]
    (finding,) = compute(tiny_evidence("mode_logps", COLUMNS, base + late))
    assert (finding.value, finding.n) == (pytest.approx(3 / 5), 5)
    assert 0.0 <= finding.low <= finding.value <= finding.high <= 1.0


def test_the_clean_twin_has_none():
    rows = [
        (c, q, m, math.log(p))
        for c, p in (("base", 0.1), ("twin", 0.1 * (1 - 5e-5)))
        for q in ("q1", "q2")
        for m in "abcd"
    ]
    (finding,) = compute(tiny_evidence("mode_logps", COLUMNS, rows))
    assert finding.value == 0.0
    assert finding.high > 0  # two queries without a fall prove little


def test_rows_pair_by_mode_whatever_their_order():
    rows = [
        ("base", "q", "a", math.log(0.1)), ("base", "q", "b", math.log(0.6)),
        ("late", "q", "b", math.log(0.7)), ("late", "q", "a", math.log(0.2)),
    ]  # fmt: skip
    (finding,) = compute(tiny_evidence("mode_logps", COLUMNS, rows))
    assert finding.value == 0.0
